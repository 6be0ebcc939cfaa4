//! What a role may do to its machine: the user that it becomes, the files that it may touch. Root runs these tests.

use crate::common::{App, Server, eventually, free_port, hoop, run, service_at};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

/// `nobody`, on every Debian.
const NOBODY: u32 = 65534;

/// What the kernel says of each thread of a process, by the field's name.
fn of_each_thread(pid: u32, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // One that has ended meanwhile has nothing any more.
    let status = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let line =
        |status: String| status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned));
    status.map(|status| line(status).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Every thread is nobody's, has no power of root's, and gets none by a program that it begins.
fn is_nobodys(server: &Server) {
    let pid = server.pid();
    for (field, value) in [
        ("Uid", "65534 65534 65534 65534"),
        ("Gid", "65534 65534 65534 65534"),
        ("Groups", "65534"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapInh", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("NoNewPrivs", "1"),
    ] {
        // A thread that has not run yet gives up its powers as it begins.
        let is_so = |threads: &[String]| threads.len() > 1 && threads.iter().all(|thread| thread == value);
        eventually(&format!("{field}: {value} in each thread"), || is_so(&of_each_thread(pid, field)).then_some(()));
    }
}

/// A folder that nobody may go through, with files that are nobody's.
fn shared_folder(files: &[&str]) -> tempfile::TempDir {
    let world = tempfile::tempdir().unwrap();
    fs::set_permissions(world.path(), Permissions::from_mode(0o755)).unwrap();
    files.iter().for_each(|name| given(world.path(), name));
    world
}

fn given(folder: &Path, name: &str) {
    chown(folder.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
}

#[test]
fn a_gateway_started_by_root_listens_below_1024_and_keeps_no_privileges() {
    let world = shared_folder(&[]);
    let folder = world.path();
    let gateway = Server::start(
        folder,
        "gateway",
        &["gateway", "--listen", "127.41.0.1:81", "--spool", "spool", "--no-mdns", "--user", "nobody"],
    );
    is_nobodys(&gateway);
    assert_eq!(fs::metadata(folder.join("spool")).unwrap().uid(), NOBODY);
    assert_eq!(fs::metadata(folder.join("spool/index.db")).unwrap().uid(), NOBODY);
}

#[test]
fn a_service_that_root_began_becomes_its_user_before_it_reads_its_keys() {
    let world = shared_folder(&[]);
    let folder = world.path();
    run(folder, &["keygen", "-o", "kws"]).exits(0);
    let fixed = ["service", "--keys", "kws", "--state-dir", "state", "--listen", "127.41.0.2:82", "--user", "nobody"];
    let arguments = [&fixed[..], &["--upstream", "http://127.0.0.1:9", "--origin", "http://127.41.0.2:82"]].concat();
    let refused = hoop(folder, &arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot use the key file"), "{refused:?}");
    given(folder, "kws");
    is_nobodys(&Server::start(folder, "service", &arguments));
}

#[test]
fn a_relay_that_root_began_keeps_none_of_roots_powers() {
    let world = shared_folder(&[]);
    let folder = world.path();
    let made = rcgen::generate_simple_self_signed(["relay.example".to_owned()]).unwrap();
    fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    run(folder, &["introduce", "relay.example:83", "--devices", "devices.toml", "-o", "told.toml"]).exits(0);
    ["cert.pem", "key.pem", "devices.toml"].iter().for_each(|name| given(folder, name));
    let fixed = ["relay", "--listen", "127.41.0.3:83", "--cert", "cert.pem", "--key", "key.pem"];
    is_nobodys(&Server::start(
        folder,
        "relay",
        &[&fixed[..], &["--devices", "devices.toml", "--user", "nobody"]].concat(),
    ));
}

#[test]
fn a_user_that_is_not_there_or_is_root_is_refused() {
    let world = shared_folder(&[]);
    for (name, says) in [("no-such-user-here", "there is no such user"), ("root", "is root, which no role needs")] {
        let arguments = ["gateway", "--listen", "127.0.0.1:0", "--spool", "spool", "--no-mdns", "--user", name];
        let ran = hoop(world.path(), &arguments).output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains(says), "{ran:?}");
    }
    assert!(!world.path().join("spool").exists());
}

#[test]
fn a_running_role_reads_no_file_outside_the_folders_that_it_was_given() {
    let (world, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = world.path();
    let outside = other.path().join("routes.toml");
    fs::write(&outside, "# nothing\n").unwrap();
    let app = App::start();
    for (more, says) in [(&[][..], "Permission denied"), (&["--no-landlock"][..], "the configuration was read again")] {
        fs::write(folder.join("service.toml"), "max-bytes = \"1G\"\n").unwrap();
        let port = free_port();
        let origin = format!("http://127.0.0.1:{port}");
        let service = service_at(folder, &app, port, &origin, &[&["--config", "service.toml"], more].concat());
        if service.log().contains("this kernel has no Landlock") {
            println!("not tested: this kernel has no Landlock");
            return;
        }
        fs::write(folder.join("service.toml"), format!("routes = {outside:?}\n")).unwrap();
        assert!(Command::new("kill").args(["-HUP", &service.pid().to_string()]).status().unwrap().success());
        eventually(says, || service.log().contains(says).then_some(()));
    }
}
