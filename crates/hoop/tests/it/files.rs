//! What the roles write is their owner's alone (`hoop-files`), whatever the umask and the folder were.

use crate::common::{App, Ran, gateway, hoop, noise_file, run, service};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Runs a role that is not to begin; one that does is ended.
fn refused(folder: &Path, arguments: &[&str]) -> Ran {
    let command = hoop(folder, arguments);
    let mut bounded = Command::new("timeout");
    bounded.args(["60", command.get_program().to_str().unwrap()]).args(command.get_args()).current_dir(folder);
    bounded.output().unwrap().into()
}

/// What is in a folder, with itself, and its mode.
fn modes(path: &Path, into: &mut Vec<(PathBuf, u32)>) {
    let is = fs::symlink_metadata(path).unwrap();
    into.push((path.to_owned(), is.permissions().mode() & 0o7777));
    if is.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| modes(&entry.unwrap().path(), into));
    }
}

/// Names what others may get at.
fn exposed(path: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    modes(path, &mut found);
    found.into_iter().filter(|(_, mode)| mode & 0o077 != 0).map(|(path, mode)| (path, format!("{mode:o}"))).collect()
}

#[test]
fn what_the_roles_keep_is_their_owners_alone() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    // As systemd's StateDirectory= makes them by default, and with what an earlier version left.
    for name in ["spool", "service", "state"] {
        fs::create_dir(folder.join(name)).unwrap();
        chmod(&folder.join(name), 0o755);
    }
    fs::write(folder.join("service/lock"), "").unwrap();
    chmod(&folder.join("service/lock"), 0o644);
    let app = App::start();
    let (service, gateway) = (service(folder, &app), gateway(folder, &["--permits", "required"]));
    noise_file(folder, "photo", 300_000);
    let form = format!("{}/f", service.url);
    run(folder, &["push", "--gateway", &gateway.url, "-F", "f=@photo", "--wait", "accepted", &form]).exits(0);
    run(folder, &["keygen", "--rotate", "kws"]).exits(0);
    run(folder, &["introduce", "relay.example:4669", "--devices", "relay/devices.toml", "-o", "told.toml"]);
    fs::create_dir(folder.join("relay")).unwrap();
    chmod(&folder.join("relay"), 0o700);
    let introduce = ["introduce", "relay.example:4669", "--devices", "relay/devices.toml", "-o", "told.toml"];
    run(folder, &introduce).exits(0);
    for name in ["spool", "service", "state", "relay", "kws", "told.toml"] {
        assert_eq!(exposed(&folder.join(name)), [], "{name}");
    }
    for name in
        ["service/index.sqlite-wal", "service/index.sqlite-shm", "spool/index.db-wal", "relay/devices.toml.lock"]
    {
        assert!(folder.join(name).exists(), "{name} was there to be looked at");
    }
    assert!(service.log().contains("others could look into this folder"));
    assert!(gateway.log().contains("others could look into this folder"));
}

#[test]
fn a_folder_that_others_may_have_filled_is_refused_by_every_role() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    run(folder, &["keygen", "-o", "kws"]).exits(0);
    let open = folder.join("open");
    fs::create_dir(&open).unwrap();
    fs::write(open.join("planted"), "").unwrap();
    chmod(&open, 0o777);
    let gateway: &[&str] = &["gateway", "--listen", "127.0.0.1:0", "--no-mdns", "--spool", "open"];
    let service: &[&str] = &[
        "service",
        "--keys",
        "kws",
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        "http://127.0.0.1:1",
        "--origin",
        "http://127.0.0.1:2",
        "--state-dir",
        "open",
    ];
    let device: &[&str] = &["status", "--state", "open"];
    for role in [gateway, service, device] {
        let ran = refused(folder, role);
        assert_ne!(ran.code, 0, "{role:?}");
        assert!(ran.err.contains("others may write to it"), "{role:?}: {ran}");
    }
    assert_eq!(fs::read_dir(&open).unwrap().count(), 1, "nothing was written there");
}

#[test]
fn a_sticky_folder_for_everybody_is_refused() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    fs::create_dir(folder.join("tmp")).unwrap();
    chmod(&folder.join("tmp"), 0o1777);
    let ran = refused(folder, &["gateway", "--listen", "127.0.0.1:0", "--no-mdns", "--spool", "tmp"]);
    assert!(ran.code != 0 && ran.err.contains("place for everybody"), "{ran}");
    assert_eq!(fs::metadata(folder.join("tmp")).unwrap().permissions().mode() & 0o7777, 0o1777);
}

#[test]
fn no_role_leaves_a_core_and_a_carried_program_keeps_its_own() {
    let world = tempfile::tempdir().unwrap();
    let gateway = gateway(world.path(), &[]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    // Who may not dump it owns none of its files in /proc; root owns them in any case.
    let umask = fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    assert!(umask.contains("Umask:\t0077"), "{umask}");
    let told = "server = \"127.0.0.1:1\"\nhost = \"0000000000000000000000000000000000000000\"\nkey = \"0000000000000000000000000000000000000000000000000000000000000000\"\n";
    fs::write(world.path().join("told.toml"), told).unwrap();
    let arguments = ["run", "--relay", "told.toml", "--", "sh", "-c", "umask; ulimit -H -c"];
    let ran: Ran = hoop(world.path(), &arguments).output().unwrap().into();
    let hard = Command::new("sh").args(["-c", "ulimit -H -c"]).output().unwrap();
    assert_eq!(ran.out, format!("0000\n{}", String::from_utf8_lossy(&hard.stdout)), "{ran}");
}
