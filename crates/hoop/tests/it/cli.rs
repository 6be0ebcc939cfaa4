//! Transcripts of the command line: what is printed where, and how it exits.

use crate::common::{self, App, free_port, run};
use std::io::Write as _;
use std::process::Stdio;

#[test]
fn the_version_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["version"]).exits(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), (concat!("hoop ", env!("CARGO_PKG_VERSION"), "\n"), ""));
}

#[test]
fn what_means_nothing_exits_with_2_and_says_what_to_try() {
    let folder = tempfile::tempdir().unwrap();
    let url = "https://photos.example/";
    for (arguments, words) in [
        (&["push", "-d", "x", "photos.example"][..], "Error: `photos.example` is not a URL."),
        (&["push", url], "  Try: add -F 'file=@holiday.jpg', -d @file or -T file."),
        (&["push", "-d", "x", "-X", "DELETE", url], "Error: the method must be POST, PUT or PATCH, not DELETE."),
        (&["push", "-d", "x", "-H", "Host: y", url], "Error: the header host cannot be set"),
        (&["push", "-d", "x", "--gateway", "hoop.local", url], "Error: `hoop.local` is not a gateway."),
        (&["push", "-d", "x", "-F", "a=b", url], "cannot be used with"),
        (&["push", "-d", "x", "--ca", "missing.pem", url], "Error: cannot use the certificates to trust."),
        (&["status", "abc"], "Error: this device does not remember an upload `abc`."),
        (&["status", "00000000000000000000000000000000"], "Error: this device does not remember an upload 0000"),
        (&["gateway"], "Error: --spool is missing."),
        (&["service"], "Error: --upstream is missing."),
        (&["gateway", "--admin", "[::]:4672"], "for this machine alone"),
        (&["service", "--admin", "0.0.0.0:4670"], "for this machine alone"),
        (&["relay", "--admin", "192.0.2.1:4671"], "for this machine alone"),
        (&["seal", "--raw"], "--key"),
        (&["push", "--no-such-flag"], "--no-such-flag"),
    ] {
        let ran = run(folder.path(), arguments).exits(2);
        assert!(ran.err.contains(words) && ran.out.is_empty(), "{arguments:?}: {ran}");
    }
}

#[test]
fn a_missing_file_exits_with_3_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start();
    let ran = run(folder.path(), &["push", "-F", "f=@missing", &app.origin()]).exits(3);
    assert_eq!(ran.err, "Error: cannot read missing.\n  Cause: No such file or directory (os error 2).\n");
    let ran = run(folder.path(), &["push", "-F", "f=@.", &app.origin()]).exits(3);
    assert!(ran.err.starts_with("Error: . is a directory."), "{ran}");
    assert_eq!(app.uploads().len(), 0);
}

#[test]
fn nobody_there_exits_with_7() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://127.0.0.1:{}/", free_port());
    for plain in [&[][..], &["--plain"]] {
        let ran = run(folder.path(), &[&["push", "-d", "x"], plain, &[&url]].concat()).exits(7);
        assert!(ran.err.contains("Connection refused"), "{ran}");
    }
}

#[test]
fn without_uploads_the_list_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    // Other tests' runs may be listed behind it.
    assert!(run(folder.path(), &["status"]).exits(0).out.starts_with("No uploads yet.\n"));
    assert_eq!(run(folder.path(), &["status", "--json"]).exits(0).out, "[]\n");
}

#[test]
fn a_key_is_made_once_and_rotated() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["keygen", "-o", "kws"]).exits(0);
    assert!(ran.err.starts_with("hoop: key ") && ran.err.ends_with(" is in kws\n") && ran.out.is_empty(), "{ran}");
    let again = run(folder.path(), &["keygen", "-o", "kws"]).exits(3);
    assert!(again.err.starts_with("Error: cannot make kws.\n  Cause: File exists"), "{again}");
    run(folder.path(), &["keygen", "--rotate", "kws"]).exits(0);
    let text = std::fs::read_to_string(folder.path().join("kws")).unwrap();
    assert!(text.lines().count() == 2 && text.lines().all(|line| line.starts_with("hoop-kws-v1 ")));
    let printed = run(folder.path(), &["keygen"]).exits(0);
    assert!(printed.out.starts_with("hoop-kws-v1 ") && printed.out.lines().count() == 1);
}

#[test]
fn an_unknown_name_in_a_configuration_file_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), "spool = \"s\"\nspeed = 7\n").unwrap();
    let ran = run(folder.path(), &["gateway", "--config", "gateway.toml"]).exits(2);
    assert!(ran.err.contains("gateway.toml is not a valid configuration") && ran.err.contains("speed"), "{ran}");
}

#[test]
fn servers_stop_on_a_signal_with_0() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start();
    assert_eq!(common::service(folder.path(), &app).stop(), 0);
    assert_eq!(common::gateway(folder.path(), &[]).stop(), 0);
}

#[test]
fn a_port_in_use_is_a_plain_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let ran = run(folder.path(), &["gateway", "--spool", "s", "--no-mdns", "--listen", &listen]);
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains(&format!("cannot listen on {listen}")), "{ran}");
}

#[test]
fn raw_content_is_sealed_and_opened_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let key = "yqdlZ-tYemfogSmv7Ws5PQ";
    let filter = |arguments: &[&str], input: &[u8]| {
        let mut command = common::hoop(folder.path(), arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        output
    };
    for suite in ["aes128gcm", "aes256gcm"] {
        let plaintext = common::noise(1_000_000, 7);
        let sealed = filter(
            &["seal", "--raw", "--key", key, "--suite", suite, "--record-size", "4096", "--key-id", "0a0b"],
            &plaintext,
        );
        assert!(sealed.status.success());
        assert_eq!(&sealed.stdout[16..23], [0, 0, 16, 0, 2, 0x0a, 0x0b], "record size, key id");
        let opened = filter(&["open", "--raw", "--key", key, "--suite", suite], &sealed.stdout);
        assert!(opened.stdout == plaintext);
        let cut = filter(&["open", "--raw", "--key", key, "--suite", suite], &sealed.stdout[..900_000]);
        assert_eq!(cut.status.code(), Some(4));
        assert!(plaintext.starts_with(&cut.stdout), "what was released is genuine");
    }
    // RFC 8188 §3.1, to the letter.
    let salt = "I1BsxtFttlv3u_Oo94xnmw";
    let arguments = ["seal", "--raw", "--suite", "aes128gcm", "--record-size", "4096", "--key", key, "--salt", salt];
    let sealed = filter(&arguments, b"I am the walrus").stdout;
    assert_eq!(
        hex::encode(sealed),
        "23506cc6d16db65bf7bbf3a8f78c679b0000100000f8d015b9bdaa160044b902916a9a19bbe231908bdadcc101d4f0fe972f138638"
    );
}

#[test]
fn a_fetch_of_tickets_that_is_refused_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start();
    let ran = run(folder.path(), &["tickets", &app.origin()]).exits(4);
    assert!(ran.err.starts_with("Error: the service does not take sealed uploads."), "{ran}");
}
