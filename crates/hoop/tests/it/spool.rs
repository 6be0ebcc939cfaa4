//! `hoop spool`: transcripts of an operator at a gateway's folder.

use crate::common::{App, Ran, eventually, free_port, gateway, noise_file, post, run, service_at};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

fn spool(folder: &Path, arguments: &[&str]) -> Ran {
    run(folder, &[&["spool", "--spool", "spool"], arguments].concat())
}

fn flip(folder: &Path, id: &str, at: u64) {
    let own = folder.join("spool/uploads").join(&id[..2]).join(format!("{id}.z"));
    // The first upload of the first segment.
    let path = if own.exists() { own } else { folder.join("spool/uploads/segments/0.segment") };
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn an_operator_lists_checks_exports_repairs_and_hand_delivers_an_upload() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    let (app, port) = (App::start(), free_port());
    let origin = format!("http://127.0.0.1:{port}");
    let mut service = service_at(folder, &app, port, &origin, &[]);
    let photo = noise_file(folder, "photo", 200_000);
    run(folder, &["seal", "-o", "z", "-T", "photo", &format!("{origin}/f")]).exits(0);
    service.stop();
    let z = std::fs::read(folder.join("z")).unwrap();
    let mut box_ = gateway(folder, &[]);
    let dest = format!("{origin}/hoop/post");
    let answer = post(&format!("{}/offload?dest={dest}", box_.url), &z);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");

    // While the gateway runs.
    let listed = eventually("an attempt", || {
        let ran = spool(folder, &["list", "--json"]).exits(0);
        (ran.json()["reason"] == "dest-unreachable").then_some(ran)
    });
    assert_eq!(listed.err, "hoop: a gateway uses spool; this shows how it was a moment ago\n");
    let object = listed.json();
    let id = object["id"].as_str().unwrap().to_owned();
    assert_eq!((&object["device"], &object["dest_origin"]), (&"127.0.0.1".into(), &origin.as_str().into()));
    assert_eq!((&object["total"], &object["stored"]), (&z.len().into(), &z.len().into()));
    let refused = spool(folder, &["check", "--repair"]).exits(3);
    assert_eq!(
        refused.err,
        "Error: cannot open the spool.\n  Cause: the spool folder spool is in use by another gateway.\n  \
         Try: stop the gateway first; `hoop spool list` works while it runs.\n"
    );
    box_.stop();

    // When it is stopped.
    let listed = spool(folder, &["list"]).exits(0);
    // Whether an attempt had got as far as sending is a matter of chance.
    let listed_as = |state: &str| format!("{id}  {state:<10}  127.0.0.1        {origin}  {0} of {0} bytes  ", z.len());
    let begins = ["stored", "delivering"].iter().any(|state| listed.out.starts_with(&listed_as(state)));
    assert!(begins && listed.out.ends_with(" old  dest-unreachable\n"), "{listed}");
    let well = spool(folder, &["check"]).exits(0);
    assert_eq!(well.out, format!("1 uploads, {} bytes stored: 0 findings, 0 repaired\n", z.len()));
    let exported = spool(folder, &["export", &id, "out"]).exits(0);
    assert_eq!(
        exported.err,
        format!(
            "hoop: {0} of {0} bytes are in out\nhoop: to send it to its service: curl --data-binary '@out' '{dest}'\n",
            z.len()
        )
    );
    assert!(std::fs::read(folder.join("out")).unwrap() == z);
    let again = spool(folder, &["export", &id, "out"]).exits(3);
    assert!(again.err.starts_with("Error: cannot write out.\n  Cause: File exists"), "{again}");

    // A bit flips in record 1: bytes 65664 to 131199.
    flip(folder, &id, 70_000);
    let found = spool(folder, &["check"]).exits(1);
    let line = format!("spoilt {id}: bytes 65664-131199 are not as they were written");
    let summary = format!("1 uploads, {} bytes stored: 1 findings", z.len());
    assert_eq!(found.out, format!("{line}\n{summary}, 0 repaired\n"));
    let whole = spool(folder, &["export", &id, "two"]).exits(3);
    let missing = format!("bytes 65664-131199 of upload {id} are missing or spoilt on the disk");
    assert_eq!(whole.err, format!("Error: {missing}.\n  Try: --partial writes what is there.\n"));
    assert!(!folder.join("two").exists());
    let partial = spool(folder, &["export", "--partial", &id, "two"]).exits(0);
    let there = z.len() - 65_536;
    assert_eq!(partial.err, format!("hoop: {there} of {} bytes are in two\nhoop: {missing}\n", z.len()));
    let two = std::fs::read(folder.join("two")).unwrap();
    assert!(two.len() == z.len() && two[..65_664] == z[..65_664] && two[131_200..] == z[131_200..]);
    assert!(two[65_664..131_200].iter().all(|byte| *byte == 0), "what is spoilt is not written out");
    let mended = spool(folder, &["check", "--repair"]).exits(0);
    assert_eq!(mended.out, format!("{line} (repaired)\n{summary}, 1 repaired\n"));
    assert_eq!(
        spool(folder, &["check"]).exits(0).out,
        format!("1 uploads, {there} bytes stored: 0 findings, 0 repaired\n")
    );
    assert_eq!(spool(folder, &["list", "--json"]).exits(0).json()["reason"], "spool-damaged");

    // What was exported is what its service takes.
    let _service = service_at(folder, &app, port, &origin, &[]);
    let answer = post(&dest, &std::fs::read(folder.join("out")).unwrap());
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    assert!(app.upload().body == photo);
}

#[test]
fn what_is_no_spool_or_no_upload_is_said_plainly() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    let nothing = spool(folder, &["list"]).exits(3);
    assert!(
        nothing.err.starts_with("Error: cannot open the spool.\n  Cause: cannot use the spool folder spool: No such")
    );
    assert!(!folder.join("spool").exists(), "looking makes none");
    gateway(folder, &[]).stop();
    assert_eq!(spool(folder, &["list"]).exits(0).out, "");
    assert_eq!(spool(folder, &["check"]).exits(0).out, "0 uploads, 0 bytes stored: 0 findings, 0 repaired\n");
    let id = "0a".repeat(16);
    let unknown = spool(folder, &["export", &id, "out"]).exits(2);
    assert_eq!(unknown.err, format!("Error: the spool has no upload {id}.\n"));
    let wrong = spool(folder, &["export", "abc", "out"]).exits(2);
    assert!(wrong.err.starts_with("Error: `abc` is not an upload id."), "{wrong}");
    let missing = run(folder, &["spool", "list"]).exits(2);
    assert_eq!(missing.err, "Error: --spool is missing.\n  Try: name the folder: --spool FOLDER.\n");
}
