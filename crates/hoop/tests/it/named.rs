//! A service that takes uploads from certain gateways only: real processes on loopback. `hoop push` finds out which of them it has before it,
//! and gets a permit for that one.

use crate::common::{self, App, Breaker, Server, free_port, gateway, noise_file, run, service_at};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

/// Enough that records go out early, where a gateway takes them.
const LEN: usize = 600_000;

/// The name of the gateway at that URL.
fn name_of(gateway: &Server) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port())).unwrap();
    stream.write_all(b"GET /test HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let test: serde_json::Value = serde_json::from_str(body).unwrap();
    test["gateway"].as_str().unwrap().to_owned()
}

/// A service with three gateways on its LAN, of which it lists two.
struct World {
    folder: tempfile::TempDir,
    app: App,
    service: Server,
    listed: [(tempfile::TempDir, Server); 2],
    stranger: (tempfile::TempDir, Server),
}

impl World {
    fn new(permits: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = App::start();
        let [one, two, stranger] = [(); 3].map(|()| {
            let folder = tempfile::tempdir().unwrap();
            let gateway = gateway(folder.path(), &[]);
            (folder, gateway)
        });
        let port = free_port();
        let origin = format!("http://127.0.0.1:{port}");
        let names = [name_of(&one.1), name_of(&two.1)];
        let more = ["--gateway", &names[0], "--gateway", &names[1], "--permits", permits];
        let service = service_at(folder.path(), &app, port, &origin, &more);
        Self { folder, app, service, listed: [one, two], stranger }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Pushes a file by way of `gateway` until the application has it, and returns what was said.
    fn push(&self, gateway: &str, more: &[&str]) -> serde_json::Value {
        let bytes = noise_file(self.path(), "file", LEN);
        let before = self.app.uploads().len();
        let url = format!("{}/f", self.service.url);
        let fixed = ["push", "--json", "--gateway", gateway, "--wait", "accepted", "-T", "file", &url];
        let said = run(self.path(), &[&fixed[..], more].concat()).exits(0).json();
        let uploads = self.app.uploads();
        assert_eq!(uploads.len(), before + 1, "once: {said}");
        assert!(uploads.last().unwrap().body == bytes);
        said
    }
}

#[test]
fn each_of_several_listed_gateways_gets_a_permit_of_its_own() {
    let world = World::new("required");
    for (_, gateway) in &world.listed {
        let said = world.push(&gateway.url, &[]);
        assert_eq!(said["via"], "gateway", "{said}");
    }
}

#[test]
fn an_unlisted_gateway_is_passed_over_whether_permits_are_required_or_not() {
    for permits in ["offered", "required"] {
        let world = World::new(permits);
        let said = world.push(&world.stranger.1.url, &[]);
        assert_eq!(said["via"], "direct", "{said}");
        assert!(said["gateway"].is_null(), "{said}");
    }
}

#[test]
fn a_ticket_that_was_fetched_ahead_is_good_at_any_of_them() {
    let world = World::new("required");
    run(world.path(), &["tickets", "--count", "1", "-X", "PUT", &format!("{}/f", world.service.url)]).exits(0);
    let said = world.push(&world.listed[1].1.url, &[]);
    assert_eq!(said["via"], "gateway", "{said}");
}

#[test]
fn another_process_goes_on_at_the_other_gateway() {
    let world = World::new("required");
    noise_file(world.path(), "file", 12_000_000);
    let breaker = Breaker::holding_after(3_000_000, &world.listed[0].1.url);
    let url = format!("{}/f", world.service.url);
    let breaking = breaker.url();
    let mut push = common::hoop(world.path(), &["push", "-q", "--gateway", &breaking, "-T", "file", &url]);
    let mut push = push.spawn().unwrap();
    breaker.holds();
    push.kill().unwrap();
    push.wait().unwrap();
    breaker.shut();
    let list = run(world.path(), &["status", "--json"]).json();
    let id = list[0]["id"].as_str().unwrap();
    let other = &world.listed[1].1.url;
    let arguments = ["resume", id, "--gateway", other, "--wait", "accepted", "--service-patience", "2s"];
    let ran = run(world.path(), &arguments).exits(0);
    assert!(ran.out.contains("at the gateway"), "{ran}");
    assert!(world.app.upload().body == common::noise(12_000_000, 12_000_000));
}
