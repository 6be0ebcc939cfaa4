//! Keys, tokens, cookies and plaintext appear in no log, answer or file.

#[path = "it/support/mod.rs"]
mod support;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::device::{plaintext, seal_plaintext, ticket};
use support::upstream::{Upstream, answer};
use support::{COOKIE, Sidecar};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(octets);
        Ok(octets.len())
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

fn holds(octets: &[u8], secret: &[u8]) -> bool {
    octets.windows(secret.len()).any(|window| window == secret)
}

#[tokio::test]
async fn no_log_answer_or_file_shows_a_secret() {
    let log = Log::default();
    let level = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone());
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
    let stored = files(&sidecar.dir);
    assert!(holds(&stored, &ticket.upload_id().0), "the files are the right ones");
    sidecar.stop().await;
    let log = log.0.lock().unwrap().clone();
    assert!(holds(&log, ticket.id.as_bytes()), "there is a log");
    let answers = [posted.body, released.body, held.to_string().into_bytes()].concat();
    let key = URL_SAFE_NO_PAD.encode(ticket.key.0);
    let service_key = support::keys().primary().to_line();
    for secret in ["s3cret", COOKIE, &ticket.token, &key, service_key.rsplit(' ').next().unwrap()] {
        for (what, octets) in [("log", &log), ("files", &stored), ("answers", &answers)] {
            assert!(!holds(octets, secret.as_bytes()), "{secret} is in the {what}");
        }
    }
    for (what, octets) in [("log", &log), ("files", &stored), ("answers", &answers)] {
        assert!(!holds(octets, &ticket.key.0), "the key's octets are in the {what}");
    }
}
