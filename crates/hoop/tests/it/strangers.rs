//! Whoever answers at a gateway's or a service's address without being one is not believed: ordinary web servers, sign-in pages of
//! networks, answers about something else.

use crate::common::{self, App, always, noise_file, run, service};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

/// An answer, of the upload's id, its total, and the method.
pub type Answer = fn(&str, &str, &str) -> String;

/// A server that takes whole requests, and answers each with what `write` makes of the upload's id, total and method.
pub fn stranger(write: Answer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    serve(listener, write);
    address
}

/// Answers so at that address.
pub fn serve(listener: TcpListener, write: Answer) {
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(connection);
                while answer_one(&mut reader, write).is_some() {}
            });
        }
    });
}

fn answer_one(reader: &mut BufReader<TcpStream>, write: Answer) -> Option<()> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let field = |name: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")));
        line.and_then(|line| line.split_once(": ")).map_or("", |(_, value)| value)
    };
    let mut body = vec![0; field("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let id = head.split(['/', '?', ' ', '=']).find(|part| part.len() == 32).unwrap_or_default();
    let total = field("content-range").rsplit('/').next().unwrap_or_default();
    reader.get_mut().write_all(write(id, total, head.split(' ').next()?).as_bytes()).ok()
}

/// An answer with those of Hoop's fields, and a document that names `id`.
pub fn hoop(status: &str, id: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields.iter().map(|(name, value)| format!("Hoop-{name}: {value}\r\n")).collect();
    let body = format!(r#"{{"id":"{id}","state":"stored"}}"#);
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

const OTHER: &str = "0123456789abcdef0123456789abcdef";

/// Answers that are no gateway's receipt for this upload.
const STRANGERS: [(&str, Answer); 12] = [
    ("a bare 201", |_, _, _| "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n".into()),
    ("a 204", |_, _, _| "HTTP/1.1 204 No Content\r\n\r\n".into()),
    ("a 202 with JSON", |_, _, _| "HTTP/1.1 202 Accepted\r\nContent-Length: 12\r\n\r\n{\"saved\": 1}".into()),
    ("a sign-in page", |_, _, _| {
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>".into()
    }),
    ("a redirect", |_, _, _| "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n".into()),
    ("nothing missing, and no more", |id, _, _| hoop("201 Created", id, &[("Missing", "")])),
    ("no state", |id, total, _| hoop("201 Created", id, &[("Upload-Id", id), ("Total", total), ("Missing", "")])),
    ("no id", |id, total, _| hoop("201 Created", id, &[("State", "stored"), ("Total", total), ("Missing", "")])),
    ("another id", |id, total, _| {
        hoop("201 Created", id, &[("Upload-Id", OTHER), ("State", "stored"), ("Total", total), ("Missing", "")])
    }),
    ("another upload's document", |id, total, _| {
        hoop("201 Created", OTHER, &[("Upload-Id", id), ("State", "stored"), ("Total", total), ("Missing", "")])
    }),
    ("another total", |id, _, _| {
        hoop("201 Created", id, &[("Upload-Id", id), ("State", "stored"), ("Total", "7"), ("Missing", "")])
    }),
    ("an upload given up", |id, total, _| {
        hoop("200 OK", id, &[("Upload-Id", id), ("State", "expired"), ("Total", total), ("Missing", "")])
    }),
];

#[test]
fn an_upload_that_a_stranger_answers_goes_to_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start();
    let service = service(folder.path(), &app);
    let bytes = noise_file(folder.path(), "file", 100_000);
    let url = format!("{}/f", service.url);
    for (sent, (what, write)) in STRANGERS.into_iter().enumerate() {
        let stranger = format!("http://{}", stranger(write));
        let ran = run(folder.path(), &["push", "--json", "--gateway", &stranger, "-T", "file", &url]).exits(0);
        assert_eq!(ran.json()["via"], "direct", "{what}: {ran}");
        let seen = common::eventually("the upload", || app.uploads().get(sent).cloned());
        assert!(seen.body == bytes, "{what}");
    }
    // An ordinary web server, and one whose answer never ends.
    let endless = always("HTTP/1.1 201 Created\r\nContent-Length: 99999999999\r\n\r\n");
    for stranger in [app.origin(), format!("http://{endless}")] {
        let patience = ["--gateway-patience", "1s"];
        let push = ["push", "--json", "--gateway", &stranger, "-T", "file", &url];
        let ran = run(folder.path(), &[&push[..], &patience].concat()).exits(0);
        assert_eq!(ran.json()["via"], "direct", "{ran}");
    }
}

#[test]
fn a_strangers_201_while_the_service_is_away_leaves_it_resumable() {
    let folder = tempfile::tempdir().unwrap();
    let (app, web) = (App::start(), App::start());
    let mut service = service(folder.path(), &app);
    let (port, origin) = (service.port(), service.url.clone());
    let bytes = noise_file(folder.path(), "file", 100_000);
    let url = format!("{origin}/f");
    run(folder.path(), &["tickets", "--count", "2", "-X", "PUT", &url]).exits(0);
    assert_eq!(service.stop(), 0);
    let gateway = web.origin();
    let push = ["push", "--gateway", &gateway, "--retry-max-time", "1s", "-T", "file", &url];
    let ran = run(folder.path(), &push).exits(7);
    assert!(!ran.out.contains("you may leave") && ran.err.contains("hoop resume"), "{ran}");
    let id = run(folder.path(), &["status", "--json"]).json()[0]["id"].as_str().unwrap().to_owned();
    let _service = common::service_at(folder.path(), &app, port, &origin, &[]);
    run(folder.path(), &["resume", &id, "--gateway", "none"]).exits(0);
    assert!(app.upload().body == bytes);
}

#[test]
fn a_sign_in_page_in_front_of_the_service_is_not_believed() {
    for (what, write) in STRANGERS.iter().filter(|(what, _)| ["a sign-in page", "a redirect"].contains(what)) {
        let folder = tempfile::tempdir().unwrap();
        let app = App::start();
        let mut service = service(folder.path(), &app);
        let (port, url) = (service.port(), format!("{}/f", service.url));
        noise_file(folder.path(), "file", 100_000);
        run(folder.path(), &["tickets", "--count", "1", "-X", "PUT", &url]).exits(0);
        assert_eq!(service.stop(), 0);
        serve(TcpListener::bind(("127.0.0.1", port)).unwrap(), *write);
        let ran = run(folder.path(), &["push", "--retry-max-time", "1s", "-T", "file", &url]).exits(7);
        assert!(ran.err.contains("hoop resume"), "{what}: {ran}");
    }
}

#[test]
fn a_service_that_answers_at_once_is_asked_with_pauses() {
    static QUESTIONS: AtomicU64 = AtomicU64::new(0);
    let service = stranger(|id, _, _| {
        QUESTIONS.fetch_add(1, Ordering::Relaxed);
        let document = format!(r#"{{"id":"{id}","state":"received"}}"#);
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{document}", document.len())
    });
    let folder = tempfile::tempdir().unwrap();
    let uploads = folder.path().join("state/uploads");
    std::fs::create_dir_all(&uploads).unwrap();
    let record = serde_json::json!({
        "id": OTHER, "key": "A".repeat(43), "url": "https://photos.example/f", "dest": "https://photos.example/hoop/post",
        "uploads": format!("http://{service}/hoop/uploads"), "gateway": null, "monitor": null, "name": "file", "bytes": 1, "total": 2,
        "created": 1, "expires": 2, "state": "rejected", "finished": true,
    });
    std::fs::write(uploads.join(format!("{OTHER}.json")), record.to_string()).unwrap();
    let ran = run(folder.path(), &["release", OTHER, "--timeout", "2s"]).exits(8);
    let questions = QUESTIONS.load(Ordering::Relaxed);
    assert!((3..=12).contains(&questions), "{questions} questions in 2 s: {ran}");
}
