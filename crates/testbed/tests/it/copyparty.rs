//! An application that nobody here wrote: copyparty receives forms through push → gateway → sidecar over a lab uplink.
//!
//! copyparty comes from the Python registry (`tools/setup` installs it) and runs as its users run it.

use hoop_testbed::{House, HouseConfig, ORIGIN, Program, sha256};
use hoop_units::Bitrate;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

/// An uplink thin enough to be the bottleneck, and wide enough for 50 MB in a test.
fn house() -> House {
    let config = HouseConfig { lan: Bitrate::mbps(200), up: Bitrate::mbps(50), ..HouseConfig::default() };
    House::build(config).expect("a house: run as root, or where user namespaces are allowed")
}

const PORT: u16 = 3923;

fn copyparty(house: &House) -> Program {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/venv/bin/python");
    let volume = house.path("volume");
    std::fs::create_dir(&volume).unwrap();
    let mut command = house.command("service", python);
    command.args(["-m", "copyparty", "-i", "127.0.0.1", "-p", &PORT.to_string(), "-a", "alice:secret", "--http-only"]);
    command.arg("-v").arg(format!("{}::A,alice", volume.display()));
    command
        .env("LC_ALL", "C.UTF-8")
        .env("PYTHONUNBUFFERED", "1")
        .env("HOME", house.path(""))
        .env("XDG_CONFIG_HOME", house.path("config"));
    Program::start("copyparty", command, "0 volumes in").expect("copyparty: tools/setup installs it")
}

/// Everything running: the house first, so that it goes last.
struct Running {
    _gateway: Program,
    _service: Program,
    _copyparty: Program,
    house: House,
}

fn running() -> Running {
    let house = house();
    let copyparty = copyparty(&house);
    let routes = house.path("routes.toml");
    std::fs::write(&routes, "[[route]]\npath = \"/\"\npreset = \"copyparty\"\n").unwrap();
    let service = house.start_service(PORT, &["--routes", routes.to_str().unwrap()]).unwrap();
    let gateway = house.start_gateway(&["--no-mdns"]).unwrap();
    Running { _gateway: gateway, _service: service, _copyparty: copyparty, house }
}

/// `hoop push … -F act=bput -F f=@… https://photos.example/?j`, waiting for the application.
fn push(house: &House, password: &str, files: &[&Path]) -> Output {
    let mut push = house.push(&house.gateway_url());
    push.args(["--json", "--wait", "accepted", "-H", &format!("PW: {password}"), "-F", "act=bput"]);
    for file in files {
        push.arg("-F").arg(format!("f=@{}", file.display()));
    }
    push.arg(format!("{ORIGIN}/?j")).output().unwrap()
}

fn said(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn copyparty_receives_every_size_byte_for_byte() {
    let running = running();
    let house = &running.house;
    let record = 65_519;
    let sizes = [
        ("empty", 0),
        ("one-byte", 1),
        ("one-record", record),
        ("one-record-and-one-byte", record + 1),
        ("large", 50_000_000),
    ];
    for (name, len) in sizes {
        let file = house.file(&format!("{name}.bin"), len).unwrap();
        let output = push(house, "secret", &[&file]);
        let said = said(&output);
        assert!(output.status.success(), "{name}: {said}");
        assert_eq!(
            (said["state"].as_str(), said["via"].as_str()),
            (Some("accepted"), Some("gateway")),
            "{name}: {said}"
        );
        assert_eq!(
            sha256(&house.path("volume").join(format!("{name}.bin"))).unwrap(),
            sha256(&file).unwrap(),
            "{name}"
        );
    }
}

/// A body whose plaintext fills its records exactly: the multipart framing counts too, so the file's length is found by asking.
#[test]
fn a_body_that_fills_its_records_exactly_arrives() {
    let running = running();
    let house = &running.house;
    // Plaintext is the sealed request's head, the form's framing and the file: Z tells how long it came out.
    let probe = house.file("probe.bin", 100_000).unwrap();
    let monitor = said(&push(house, "secret", &[&probe]))["monitor"].as_str().unwrap().to_owned();
    let status = house.curl().args(["-H", "Accept: application/json", &monitor]).output().unwrap();
    let total = said(&status)["total"].as_u64().unwrap();
    let ticket_and_prelude = 21 + 107;
    let plaintext = total - ticket_and_prelude - 17 * (total - ticket_and_prelude).div_ceil(65_536);
    // Another length with as many digits leaves the head as long as it was.
    let framing = plaintext - 100_000;
    for records in [3_u64, 4] {
        for more in [0, 1] {
            let len = usize::try_from(records * 65_519 - framing + more).unwrap();
            let file = house.file(&format!("x{records}-{more}.bin"), len).unwrap();
            let output = push(house, "secret", &[&file]);
            assert!(output.status.success(), "{}", said(&output));
            let name = file.file_name().unwrap();
            assert_eq!(sha256(&house.path("volume").join(name)).unwrap(), sha256(&file).unwrap());
        }
    }
}

#[test]
fn three_files_in_one_form_arrive() {
    let running = running();
    let house = &running.house;
    let files: Vec<PathBuf> = [("a.bin", 70_000), ("b.bin", 0), ("c.bin", 1_000_000)]
        .map(|(name, len)| house.file(name, len).unwrap())
        .to_vec();
    let output = push(house, "secret", &files.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    assert!(output.status.success(), "{}", said(&output));
    for file in &files {
        let arrived = house.path("volume").join(file.file_name().unwrap());
        assert_eq!(sha256(&arrived).unwrap(), sha256(file).unwrap(), "{}", file.display());
    }
}

#[test]
fn a_wrong_password_is_refused_by_copyparty_and_the_user_can_read_why() {
    let running = running();
    let house = &running.house;
    let file = house.file("a.bin", 1_000).unwrap();
    let output = push(house, "wrong", &[&file]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(5), "rejected by the application: {said}");
    assert_eq!(said["state"], "rejected", "{said}");
    assert!(!house.path("volume").join("a.bin").exists());
    let mut status = house.hoop("device");
    let status = status
        .args(["status", said["id"].as_str().unwrap(), "--ca"])
        .arg(&house.certificates().authority)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&status.stdout);
    assert!(
        text.contains("403") && text.contains("you don't have write-access"),
        "{text}\n{}",
        String::from_utf8_lossy(&status.stderr)
    );
}
