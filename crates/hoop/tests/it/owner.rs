//! What an upload's owner does with it at the service while a gateway delivers it: real processes on loopback.

use crate::common::{self, App, Server, curl, eventually, gateway, noise_file, run, service_at};
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// What the gateway sends in a minute: longer than it takes to act, also where each sync of a busy disk takes seconds.
const LEN: u64 = 2_000_000;
const RATE: &str = "256kbit";

/// The least time until the gateway asks after an upload that is paused: the service says 4 s or more, the spool keeps whole seconds.
const WAIT_SECS: u64 = 3;

/// An upload that the gateway has whole and is delivering, slowly.
struct World {
    folder: tempfile::TempDir,
    app: App,
    service: Server,
    gateway: Server,
    /// Where service and gateway tell their figures.
    figures: [String; 2],
    bytes: Vec<u8>,
    id: String,
}

impl World {
    fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (app, port) = (App::start(), common::free_port());
        let origin = format!("http://127.0.0.1:{port}");
        let figures = [(); 2].map(|()| format!("127.0.0.1:{}", common::free_port()));
        let service = service_at(folder.path(), &app, port, &origin, &["--admin", &figures[0]]);
        let gateway = gateway(folder.path(), &["--rate", RATE, "--admin", &figures[1]]);
        let bytes = noise_file(folder.path(), "file", LEN as usize);
        let pushed = ["push", "--json", "--gateway", &gateway.url, "-b", "session=abc", "-T", "file"];
        let pushed = run(folder.path(), &[&pushed[..], &[&format!("{origin}/f")]].concat()).exits(0).json();
        assert!(pushed["via"] == "gateway" && common::has_it_all(&pushed["state"]), "{pushed}");
        let id = pushed["id"].as_str().unwrap().to_owned();
        Self { folder, app, service, gateway, figures, bytes, id }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The upload at the service.
    fn url(&self) -> String {
        format!("{}/hoop/uploads/{}", self.service.url, self.id)
    }

    /// What the owner gets who does this: the status of the upload, or a problem.
    fn does(&self, action: &str) -> Value {
        let action = format!("{{\"action\":\"{action}\"}}");
        let url = self.url();
        let json = ["-H", "Hoop-Version: 1", "-H", "Content-Type: application/json"];
        curl(&[&json[..], &["-b", "session=abc", "-d", &action, &url]].concat()).json()
    }

    /// The same, as soon as some of it has come to the service.
    fn does_in_mid_delivery(&self, action: &str) {
        let has_some = |answer: &Value| answer["received"].as_u64().is_some_and(|bytes| bytes > 0);
        eventually("something to act on", || Some(curl(&[&self.url()]).json()).filter(has_some));
        // Whose it is the service may learn a moment later.
        let answer = eventually("its owner's word", || Some(self.does(action)).filter(has_some));
        assert!(answer["received"].as_u64() < answer["total"].as_u64(), "too late: {answer}");
    }

    /// What the gateway's monitor says of it.
    fn status(&self) -> Value {
        curl(&["-H", "Accept: application/json", &format!("{}/monitor?ID={}", self.gateway.url, self.id)]).json()
    }

    /// One of a server's figures; 0 if it is not told.
    fn figure(&self, name: &str) -> u64 {
        let [service, gateway] = &self.figures;
        let address = if name.starts_with("hoop_service_") { service } else { gateway };
        let told = curl(&[&format!("http://{address}/metrics")]).out;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        told.lines().find_map(value).unwrap_or(0)
    }

    /// How many messages the service has refused with this code.
    fn refused(&self, code: &str) -> u64 {
        self.figure(&format!("hoop_service_refused_total{{code=\"{code}\"}}"))
    }

    /// How often the gateway has begun to send it or to ask after it.
    fn attempts(&self) -> u64 {
        self.figure("hoop_gateway_attempts_total")
    }
}

#[test]
fn the_gateway_rarely_asks_after_a_paused_upload_and_sends_it_on_resume() {
    let mut world = World::begin();
    world.does_in_mid_delivery("pause");
    let (paused, before) = (Instant::now(), world.attempts());
    eventually("a question", || {
        let (questions, most) = (world.attempts() - before, paused.elapsed().as_secs() / WAIT_SECS);
        assert!(questions <= most, "{questions} in {:?}", paused.elapsed());
        (questions > 0).then_some(())
    });
    let refused = || Some(world.refused("upload-paused")).filter(|refused| *refused > 1);
    assert_eq!(eventually("its refusal", refused), 2, "the message that was cut short, and one for the question");
    let paused = |status: &Value| status["reason"]["code"] == "upload-paused" && !status["next_attempt"].is_null();
    let status = eventually("the reason", || Some(world.status()).filter(paused));
    assert_eq!((&status["state"], world.app.uploads().len()), (&"delivering".into(), 0));
    assert!(status["attempts"].as_u64() <= Some(3), "a pause is no failure that waits grow with: {status}");
    assert!(world.figure("hoop_gateway_sent_bytes_total") < LEN, "what is refused is not sent to its end");
    // The gateway's next life has all of the line.
    assert_eq!(world.gateway.stop(), 0);
    world.gateway = gateway(world.path(), &[]);
    assert_eq!(world.status()["reason"]["code"], "upload-paused");
    world.does("resume");
    assert!(world.app.upload().body == world.bytes);
    eventually("the application's word", || (world.status()["state"] == "accepted").then_some(()));
    assert_eq!(world.app.uploads().len(), 1);
}

#[test]
fn the_gateway_drops_an_upload_that_its_owner_stops_and_gives_the_reason() {
    let world = World::begin();
    world.does_in_mid_delivery("stop");
    let status =
        eventually("the gateway's word", || Some(world.status()).filter(|status| status["state"] == "stopped"));
    assert_eq!(status["reason"]["code"], "upload-stopped");
    assert!(status["next_attempt"].is_null(), "{status}");
    assert!(world.figure("hoop_gateway_sent_bytes_total") < LEN, "what is refused is not sent to its end");
    let payload = world.path().join(format!("spool/uploads/{}/{}.z", &world.id[..2], world.id));
    eventually("the payload's end", || (!payload.exists()).then_some(()));
    assert_eq!((world.refused("upload-stopped"), world.app.uploads().len()), (1, 0));
    let told = run(world.path(), &["status", &world.id]).exits(4);
    assert!(told.out.contains("stopped"), "{told}");
}
