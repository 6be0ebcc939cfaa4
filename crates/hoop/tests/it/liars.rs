//! What a gateway claims of service and application is not final at the device: without the service's proof an upload can be gone on with.

use crate::common::{self, App, Ran, Server, noise_file, run, service};
use crate::strangers::{Answer, hoop, serve, stranger};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device, a true service, and a gateway that says of each upload that it has stored it, and later something else; it sends nothing.
struct World {
    folder: tempfile::TempDir,
    app: App,
    service: Server,
    liar: String,
    bytes: Vec<u8>,
}

impl World {
    fn new(lie: Answer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let app = App::start();
        let service = service(folder.path(), &app);
        let bytes = noise_file(folder.path(), "file", 100_000);
        Self { folder, app, service, liar: format!("http://{}", stranger(lie)), bytes }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn push(&self, more: &[&str]) -> Ran {
        let url = format!("{}/f", self.service.url);
        run(self.path(), &[&["push", "--json", "--gateway", &self.liar], more, &["-T", "file", &url]].concat())
    }

    /// Pushes it to the liar, and leaves, since the user says that it is to be trusted: the upload's id.
    fn left_with_the_liar(&self) -> String {
        let ran = self.push(&["--trust-new-gateway"]).exits(0);
        assert_eq!((&ran.json()["via"], &ran.json()["state"]), (&"gateway".into(), &"stored".into()), "{ran}");
        ran.json()["id"].as_str().unwrap().to_owned()
    }

    fn status(&self, id: &str) -> Ran {
        run(self.path(), &["status", id])
    }

    fn status_json(&self, id: &str) -> Ran {
        run(self.path(), &["status", "--json", id])
    }
}

/// It says that it has stored it; and of the upload later, what the document says.
fn stored_then(id: &str, total: &str, method: &str, status: &str, document: &str) -> String {
    let missing = ("Missing", "");
    match method {
        "PUT" => hoop("201 Created", id, &[("Upload-Id", id), ("State", "stored"), ("Total", total), missing]),
        _ => {
            let length = document.len();
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{document}")
        }
    }
}

fn claims(id: &str, total: &str, method: &str, state: &str) -> String {
    stored_then(id, total, method, "200 OK", &format!(r#"{{"id":"{id}","state":"{state}","received_at":1795000000}}"#))
}

const FORGETS: Answer = |id, total, method| stored_then(id, total, method, "404 Not Found", "{}");

/// What a gateway may claim of others, and the exit code of `hoop status` when the service knows nothing of the upload.
const CLAIMS: [(&str, Answer, i32); 7] = [
    ("received", |id, total, method| claims(id, total, method, "received"), 12),
    ("accepted", |id, total, method| claims(id, total, method, "accepted"), 12),
    ("rejected", |id, total, method| claims(id, total, method, "rejected"), 12),
    ("unknown", |id, total, method| claims(id, total, method, "unknown"), 12),
    ("held", |id, total, method| claims(id, total, method, "held"), 12),
    ("expired", |id, total, method| claims(id, total, method, "expired"), 4),
    ("refused", |id, total, method| claims(id, total, method, "refused"), 4),
];

#[test]
fn what_a_gateway_claims_and_the_service_denies_is_delivered_by_resume() {
    for (claim, lie, code) in CLAIMS {
        let world = World::new(lie);
        let id = world.left_with_the_liar();
        for _ in 0..2 {
            let ran = world.status(&id).exits(code);
            let state = ran.out.lines().find(|line| line.contains("  state ")).unwrap_or_default();
            assert!(
                state.contains(claim) && state.contains("the service knows nothing of this upload"),
                "{claim}: {ran}"
            );
            assert!(ran.out.contains(&format!("hoop resume {id}")), "{claim}: {ran}");
            let told = world.status_json(&id).exits(code);
            let told = told.json();
            let (proven, denied) = (&told["proven"], &told["denied"]);
            assert_eq!(
                (proven, denied, &told["finished"]),
                (&false.into(), &true.into(), &false.into()),
                "{claim}: {told}"
            );
            assert_eq!((&told["state"], &told["resumable"]), (&claim.into(), &true.into()), "{claim}: {told}");
        }
        // The liar is passed over though it is named.
        let ran =
            run(world.path(), &["resume", "--json", &id, "--gateway", &world.liar, "--wait", "accepted"]).exits(0);
        assert_eq!(
            (&ran.json()["via"], &ran.json()["state"]),
            (&"direct".into(), &"accepted".into()),
            "{claim}: {ran}"
        );
        assert!(world.app.upload().body == world.bytes, "{claim}");
        let told = world.status_json(&id).exits(0);
        assert_eq!((&told.json()["proven"], &told.json()["finished"]), (&true.into(), &true.into()), "{claim}: {told}");
        assert_eq!(world.app.uploads().len(), 1, "{claim}");
    }
}

#[test]
fn an_upload_that_a_gateway_has_forgotten_is_delivered_by_resume() {
    let world = World::new(FORGETS);
    let id = world.left_with_the_liar();
    let ran = world.status(&id).exits(12);
    assert!(ran.err.contains("neither the gateway nor the service knows") && ran.err.contains("hoop resume"), "{ran}");
    run(world.path(), &["resume", &id, "--gateway", &world.liar, "--wait", "accepted"]).exits(0);
    assert!(world.app.upload().body == world.bytes);
}

#[test]
fn an_unverifiable_claim_is_not_proven_and_leaves_the_upload_resumable() {
    let mut world = World::new(CLAIMS[1].1);
    let id = world.left_with_the_liar();
    let (port, origin) = (world.service.port(), world.service.url.clone());
    assert_eq!(world.service.stop(), 0);
    let ran = world.status(&id).exits(11);
    assert!(ran.out.contains("without proof; the service cannot be asked"), "{ran}");
    assert!(ran.out.contains("received      not proven"), "{ran}");
    let _service = common::service_at(world.path(), &world.app, port, &origin, &[]);
    run(world.path(), &["resume", &id, "--gateway", "none", "--wait", "accepted"]).exits(0);
    assert!(world.app.upload().body == world.bytes);
}

#[test]
fn a_state_beyond_stored_in_a_gateways_201_is_not_believed() {
    const LIE: Answer = |id, total, method| match method {
        "PUT" => {
            let fields = [("Upload-Id", id), ("State", "accepted"), ("Total", total), ("Missing", "")];
            hoop("201 Created", id, &fields)
        }
        _ => claims(id, total, method, "received"),
    };
    let world = World::new(LIE);
    world.push(&["--trust-new-gateway"]).exits(0);
    let list = run(world.path(), &["status", "--json"]).json();
    assert_eq!((&list[0]["finished"], &list[0]["resumable"]), (&false.into(), &true.into()), "{list}");
    assert_ne!(list[0]["state"], "accepted");
    for wait in ["received", "accepted"] {
        let ran = world.push(&["--wait", wait]).exits(0);
        assert_eq!(ran.json()["via"], "direct", "{wait}: {ran}");
    }
    common::eventually("both that were waited for", || (world.app.uploads().len() == 2).then_some(()));
}

#[test]
fn a_service_that_answers_503_denies_nothing_and_nobody_may_leave() {
    const BUSY: Answer = |_, _, _| "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".into();
    let mut world = World::new(CLAIMS[1].1);
    let url = format!("{}/f", world.service.url);
    run(world.path(), &["tickets", "--count", "1", "-X", "PUT", &url]).exits(0);
    let port = world.service.port();
    assert_eq!(world.service.stop(), 0);
    serve(TcpListener::bind(("127.0.0.1", port)).unwrap(), BUSY);
    let ran = world.push(&["--timeout", "2s", "--service-patience", "1s", "--retry-max-time", "1s"]).exits(8);
    assert_eq!((&ran.json()["via"], &ran.json()["may_leave"]), (&"gateway".into(), &false.into()), "{ran}");
    let id = ran.json()["id"].as_str().unwrap().to_owned();
    let told = world.status_json(&id);
    assert_eq!((&told.json()["denied"], &told.json()["resumable"]), (&false.into(), &true.into()), "{told}");
}

#[test]
fn a_gateway_that_stores_a_byte_a_message_is_given_up_for_the_service() {
    static TOTAL: AtomicU64 = AtomicU64::new(0);
    static HAS: AtomicU64 = AtomicU64::new(0);
    const SPARING: Answer = |id, total, method| {
        if method == "PUT" {
            TOTAL.store(total.parse().unwrap(), Ordering::Relaxed);
            HAS.fetch_add(1, Ordering::Relaxed);
        }
        let (has, total) = (HAS.load(Ordering::Relaxed), TOTAL.load(Ordering::Relaxed));
        let missing = format!("{has}-{}", total.saturating_sub(1));
        let fields = [("Upload-Id", id), ("State", "receiving"), ("Total", &total.to_string()), ("Missing", &missing)];
        let answer = hoop("200 OK", id, &fields);
        // An answer to HEAD has no body.
        if method == "HEAD" { answer.split_inclusive("\r\n\r\n").next().unwrap().to_owned() } else { answer }
    };
    let world = World::new(SPARING);
    let url = format!("{}/f", world.service.url);
    let ran = run(world.path(), &["push", "--gateway", &world.liar, "-T", "file", &url]).exits(0);
    assert!(ran.err.contains("directly, since that is no gateway to rely on: it took what it was sent"), "{ran}");
    assert!(ran.err.contains("has stored not one whole record more"), "{ran}");
    assert!(world.app.upload().body == world.bytes, "{ran}");
}
