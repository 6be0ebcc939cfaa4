//! Programs of root's that become other users, under `hoop run`: real apt-get, which fetches as `_apt`, from a repository behind the relay.

use hoop_testbed::Roaming;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// A repository of one package.
const PACKAGES: &str = "Package: hoop-nothing\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: nothing\n\
                        Filename: ./nothing.deb\nSize: 1\nSHA256: 6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d\n";

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|told| told.status.success())
}

#[test]
fn apt_get_updates_as_root_though_it_fetches_as_another_user() {
    if !is_there("apt-get") {
        println!("not tested: there is no apt-get");
        return;
    }
    let world = Roaming::build(1_000).expect("a lab: run as root, or where user namespaces are allowed");
    world.enter_wifi().unwrap();
    fs::create_dir(world.path("www/repository")).unwrap();
    fs::write(world.path("www/repository/Packages"), PACKAGES).unwrap();
    // The user `_apt` has to get there.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let made = |name: &str| {
        fs::create_dir_all(folder.path().join(name)).unwrap();
        folder.path().join(name)
    };
    let (state, cache, etc) = (made("state"), made("cache"), made("etc"));
    let lists = made("state/lists");
    made("state/lists/partial");
    let source = format!("deb [trusted=yes] http://{}/repository ./\n", world.lab.address("web"));
    fs::write(etc.join("sources.list"), source).unwrap();
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    let update = |mut run: Command| {
        run.arg("update").arg(option("Dir::State", &state)).arg(option("Dir::Cache", &cache));
        run.arg(option("Dir::Etc::sourcelist", &etc.join("sources.list")));
        run.args([
            "-oDir::Etc::sourceparts=-",
            "-oAcquire::AllowInsecureRepositories=true",
            "-oAcquire::Languages=none",
        ]);
        run.args(["-oAcquire::Retries=0", "-oAcquire::http::Timeout=20"]);
        run.args(["-oAPT::Update::Post-Invoke=", "-oAPT::Update::Post-Invoke-Success="]);
        run.output().unwrap()
    };
    let ended = update(world.run("apt-get"));
    let told = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{told}");
    assert!(!told.contains("unsandboxed"), "as `_apt`: {told}");
    let names: Vec<_> = fs::read_dir(lists).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let has_come = names.iter().any(|name| name.to_string_lossy().contains("_Packages"));
    assert!(has_come, "{names:?}: {told}");
}
