//! Going on with an upload from another process: `hoop push` is killed in the middle, `hoop resume` ends it.

use crate::common::{self, App, Breaker, free_port, gateway, noise_file, run, service};
use std::path::Path;
use std::process::{Child, Stdio};

/// More than socket buffers hold, so that a push is still under way when its connection is cut.
const LEN: usize = 12_000_000;

struct World {
    folder: tempfile::TempDir,
    app: App,
    service: common::Server,
    gateway: common::Server,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = App::start();
        let service = service(folder.path(), &app);
        let gateway = gateway(folder.path(), &[]);
        Self { folder, app, service, gateway }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Begins to push `file` by way of this gateway.
    fn begin(&self, gateway: &str) -> Child {
        let url = format!("{}/f", self.service.url);
        let arguments = ["push", "-q", "--gateway", gateway, "--gateway-patience", "60s", "-T", "file", &url];
        let mut push = common::hoop(self.path(), &arguments);
        push.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Pushes half of it to the gateway, then kills the push as a power switch would; returns the upload's id.
    fn killed_half_way(&self) -> String {
        let breaker = Breaker::holding_after(3_000_000, &self.gateway.url);
        let mut push = self.begin(&breaker.url());
        breaker.holds();
        // It is remembered beside the sending, which may be faster.
        let id = (0..600).find_map(|_| {
            let list = run(self.path(), &["status", "--json"]).json();
            std::thread::sleep(std::time::Duration::from_millis(50));
            list[0]["id"].as_str().map(str::to_owned)
        });
        push.kill().unwrap();
        push.wait().unwrap();
        breaker.shut();
        let id = id.expect("it is remembered");
        self.has_kept_some(&id);
        id
    }

    /// Waits until the gateway has noticed that the sender is gone, and recorded what came.
    fn has_kept_some(&self, id: &str) {
        let url = format!("{}/offload/{id}", self.gateway.url);
        common::eventually("some of it is kept", || {
            let head = common::curl(&["-I", &url]).out.to_lowercase();
            let (_, missing) = head.split_once("hoop-missing: ")?;
            let begins: usize = missing.split_once('-')?.0.parse().ok()?;
            (begins > 1_000_000).then_some(())
        });
    }
}

#[test]
fn another_process_completes_a_killed_push_and_sends_only_what_is_missing() {
    let world = World::new();
    let bytes = noise_file(world.path(), "file", LEN);
    let id = world.killed_half_way();
    let counter = Breaker::before(&world.gateway.url, &[]);
    let ran = run(world.path(), &["resume", &id[..8], "--gateway", &counter.url(), "--wait", "accepted"]).exits(0);
    assert!(ran.out.starts_with("file: at the gateway") && ran.out.contains("has accepted it"), "{ran}");
    assert!(world.app.upload().body == bytes);
    assert_eq!(world.app.uploads().len(), 1);
    assert!(counter.passed() < LEN as u64 - 1_000_000, "{} bytes went again", counter.passed());
    let again = run(world.path(), &["resume", &id]).exits(4);
    assert!(again.err.contains("cannot resume the upload") && again.err.contains("it is finished"), "{again}");
}

#[test]
fn another_gateway_or_the_service_itself_gets_the_rest() {
    for there in ["another", "none"] {
        let world = World::new();
        let bytes = noise_file(world.path(), "file", LEN);
        let id = world.killed_half_way();
        let elsewhere = tempfile::tempdir().unwrap();
        let another = gateway(elsewhere.path(), &[]);
        let there = if there == "none" { there } else { &another.url };
        let arguments = ["resume", &id, "--gateway", there, "--wait", "accepted", "--service-patience", "2s"];
        let ran = run(world.path(), &arguments).exits(0);
        assert!(ran.out.contains("has accepted it"), "{ran}");
        assert!(world.app.upload().body == bytes, "by {there}");
        assert_eq!(world.app.uploads().len(), 1);
    }
}

#[test]
fn a_file_that_changed_since_is_an_error_and_nothing_of_it_is_sent() {
    let world = World::new();
    noise_file(world.path(), "file", LEN);
    let id = world.killed_half_way();
    let file = std::fs::File::options().write(true).open(world.path().join("file")).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 5_000_000).unwrap();
    file.set_modified(modified).unwrap();
    let counter = Breaker::before(&world.gateway.url, &[]);
    let ran = run(world.path(), &["resume", &id, "--gateway", &counter.url()]).exits(10);
    assert!(ran.err.contains("changed while it was being sent"), "{ran}");
    assert_eq!((counter.passed(), world.app.uploads().len()), (0, 0));
}

#[test]
fn two_processes_do_not_work_on_one_upload() {
    let world = World::new();
    noise_file(world.path(), "file", LEN);
    let breaker = Breaker::holding_after(3_000_000, &world.gateway.url);
    let mut push = world.begin(&breaker.url());
    breaker.holds();
    let list = run(world.path(), &["status", "--json"]).json();
    let ran = run(world.path(), &["resume", list[0]["id"].as_str().unwrap()]);
    assert!(ran.err.contains("another process is at it now"), "{ran}");
    push.kill().unwrap();
    push.wait().unwrap();
}

#[test]
fn what_no_gateway_and_no_service_takes_is_said_to_be_resumable_and_is() {
    let mut world = World::new();
    let bytes = noise_file(world.path(), "file", LEN);
    let url = format!("{}/f", world.service.url);
    run(world.path(), &["tickets", "--count", "1", "-X", "PUT", &url]).exits(0);
    let (port, origin) = (world.service.port(), world.service.url.clone());
    assert_eq!(world.service.stop(), 0);
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let push = ["push", "--gateway", &nobody, "--retry-max-time", "500ms", "-T", "file", &url];
    let ran = run(world.path(), &push).exits(7);
    let line = ran.err.lines().find(|line| line.contains("hoop resume")).unwrap_or_else(|| panic!("{ran}"));
    let id = line.split("hoop resume ").nth(1).and_then(|rest| rest.get(..32)).unwrap().to_owned();
    world.service = common::service_at(world.path(), &world.app, port, &origin, &[]);
    run(world.path(), &["resume", &id, "--gateway", &world.gateway.url, "--wait", "accepted"]).exits(0);
    assert!(world.app.upload().body == bytes);
}
