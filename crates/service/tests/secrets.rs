//! Keys, tokens, cookies and plaintext appear in no log, answer or file; what owners do is in the log.

#[path = "it/support/mod.rs"]
mod support;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::device::{Ticket, plaintext, seal_plaintext, ticket};
use support::upstream::{Upstream, answer};
use support::{COOKIE, Sidecar};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn files(dir: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.extend(std::fs::read(path).unwrap()),
        }
    }
    all
}

fn holds(bytes: &[u8], secret: &[u8]) -> bool {
    bytes.windows(secret.len()).any(|window| window == secret)
}

/// Everything that owners do over HTTP, and what is refused to others.
async fn owners_act(sidecar: &Sidecar, ticket: &Ticket) {
    let path = format!("/hoop/uploads/{}", ticket.id);
    let json = ("Content-Type", "application/json");
    let own = [("Hoop-Version", "1"), ("Hoop-Token", &ticket.token), ("Cookie", "session=s3cret-again"), json];
    let note = "{\"total\":9,\"caption\":\"lake\\u001b[31m caption\\nforged audit: line\"}";
    assert_eq!(sidecar.send("PUT", &path, &own, note.as_bytes()).await.status, 204);
    assert_eq!(sidecar.send("PUT", "/hoop/settings", &own, b"{\"policy\":\"never\"}").await.status, 200);
    let nobody = [("Hoop-Version", "1"), json];
    assert_eq!(sidecar.send("PUT", "/hoop/settings", &nobody, b"{}").await.status, 401);
    for action in ["{\"action\":\"pause\"}", "{\"action\":\"resume\"}", "{\"risk\":\"twice\"}"] {
        assert_eq!(sidecar.send("POST", &path, &own, action.as_bytes()).await.status, 200, "{action}");
    }
    sidecar.reaches(&ticket.id, "held").await;
    let stranger = [("Hoop-Version", "1"), ("Cookie", "session=s3cret-of-mallory"), json];
    assert_eq!(sidecar.send("POST", &path, &stranger, b"{\"action\":\"stop\"}").await.status, 403);
    assert_eq!(sidecar.send("DELETE", &path, &own, b"").await.status, 200);
    assert_eq!(sidecar.send("PUT", &path, &own, b"{\"total\":9}").await.status, 204);
}

#[tokio::test]
async fn no_log_answer_or_file_shows_a_secret() {
    let log = Log::default();
    let level =
        tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::TRACE).with_writer(log.clone());
    tracing::subscriber::set_global_default(level.finish()).unwrap();
    let upstream = Upstream::new(|_, _| {
        answer("302 Found\r\nLocation: /login/?code=s3cret-code\r\nSet-Cookie: session=s3cret-new", "s3cret answer")
    })
    .await;
    let sidecar = Sidecar::before(upstream.address).await;
    let ticket = ticket(&sidecar).await;
    let body = b"s3cret picture of the birthday party";
    let fields = "X-CSRFToken: s3cret-csrf\r\n";
    let text = plaintext(&ticket, "POST /upload?password=s3cret-query", fields, body);
    let sealed = seal_plaintext(&ticket, &text);
    let posted = sealed.post(&sidecar).await;
    let held = sidecar.reaches(&ticket.id, "held").await;
    let path = format!("/hoop/uploads/{}", ticket.id);
    let fields = [("Hoop-Version", "1"), ("Hoop-Token", ticket.token.as_str()), ("Cookie", "session=s3cret-again")];
    let released = sidecar.send("POST", &path, &fields, b"").await;
    assert_eq!(released.status, 200);
    sidecar.reaches(&ticket.id, "held").await;
    owners_act(&sidecar, &ticket).await;
    let stored = files(&sidecar.dir);
    assert!(holds(&stored, &ticket.upload_id().0), "the files are the right ones");
    sidecar.stop().await;
    let log = log.0.lock().unwrap().clone();
    assert!(holds(&log, ticket.id.as_bytes()), "there is a log");
    let text = String::from_utf8(log.clone()).unwrap();
    let acts: Vec<_> = text.lines().filter(|line| line.contains(" audit: ")).collect();
    let known = [
        ("release", "received"),
        ("note", "saved"),
        ("settings", "saved"),
        ("settings", "sign-in-required"),
        ("pause", "held"),
        ("resume", "held"),
        ("release-twice", "received"),
        ("stop", "not-owner"),
        ("stop", "stopped"),
        ("note", "saved"),
    ];
    assert_eq!(acts.len(), known.len(), "{acts:#?}");
    assert!(!text.contains("forged audit"), "no caption is in the log");
    for (line, (act, outcome)) in acts.iter().zip(known) {
        assert!(line.contains(&format!("act=\"{act}\"")) && line.contains(&format!("outcome=\"{outcome}\"")), "{line}");
        assert!(line.contains("address=127.0.0.1"), "{line}");
        assert_eq!(line.contains(&ticket.id), act != "settings", "{line}");
        let who = line.split("who=\"").nth(1).map(|rest| rest.split('"').next().unwrap().len());
        assert_eq!(who, (!["not-owner", "sign-in-required"].contains(&outcome)).then_some(12), "{line}");
    }
    let answers = [posted.body, released.body, held.to_string().into_bytes()].concat();
    let key = URL_SAFE_NO_PAD.encode(ticket.key.0);
    let service_key = support::keys().primary().to_line();
    for secret in ["s3cret", COOKIE, &ticket.token, &key, service_key.rsplit(' ').next().unwrap()] {
        for (what, bytes) in [("log", &log), ("files", &stored), ("answers", &answers)] {
            assert!(!holds(bytes, secret.as_bytes()), "{secret} is in the {what}");
        }
    }
    for (what, bytes) in [("log", &log), ("files", &stored), ("answers", &answers)] {
        assert!(!holds(bytes, &ticket.key.0), "the key's bytes are in the {what}");
    }
}
