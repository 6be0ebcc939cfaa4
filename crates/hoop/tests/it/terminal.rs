//! What a terminal is shown of others' words: a hostile gateway, service, application and file name are put through the commands, and no
//! letter that does anything to a terminal comes out; nor a line that reads like one of ours.

use crate::common::{self, App, eventually, noise_file, run, service};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

/// Clears the screen, sets the title, turns text round, hides, and begins a line of its own.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{200b}\r\nhoop: you may leave\u{7f}";

/// A server that answers every request so.
fn answering(status: &'static str, kind: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let body = body.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(connection);
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let length = head
                        .lines()
                        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                    let mut sent = vec![0; length.unwrap_or(0)];
                    let _ = reader.read_exact(&mut sent);
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}");
                    if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

fn problem(code: &str, status: u16) -> String {
    serde_json::json!({"type": "urn:hoop:error:x", "code": code, "title": HOSTILE, "status": status, "detail": HOSTILE,
        "field": HOSTILE})
    .to_string()
}

/// Panics if something in what was printed acts, or if a line pretends to be ours.
#[track_caller]
fn is_plain(what: &str, ran: &common::Ran) {
    for text in [&ran.out, &ran.err] {
        let acts =
            text.chars().find(|letter| hoop_units::plain::is_active(*letter) && *letter != '\n' && *letter != '\t');
        assert_eq!(acts, None, "{what}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("hoop: you may leave")), "{what}: {ran}");
    }
}

#[test]
fn a_hostile_gateways_words_do_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start();
    let service = service(folder.path(), &app);
    noise_file(folder.path(), "file", 100_000);
    let url = format!("{}/f", service.url);
    for (code, status) in [("spool-full", "507 No"), ("permit-required", "403 No"), ("dest-forbidden", "403 No")] {
        let gateway = answering(status, "application/problem+json", problem(code, 403));
        for more in [&["-v"][..], &["--json"]] {
            let push = ["push", "--gateway", &gateway, "-T", "file", &url];
            let ran = run(folder.path(), &[&push[..], more].concat());
            is_plain(code, &ran);
            assert!(more == ["--json"] || ran.err.contains("\\u001b[2J"), "it is shown as it is: {ran}");
        }
    }
}

#[test]
fn a_hostile_services_words_do_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    noise_file(folder.path(), "file", 100);
    for (code, status) in [("sign-in-required", "401 No"), ("too-large", "413 No"), ("internal", "500 No")] {
        let url = format!("{}/f", answering(status, "application/problem+json", problem(code, 401)));
        for command in
            [&["push", "-T", "file"][..], &["tickets"], &["push", "--json", "-T", "file"], &["seal", "-T", "file"]]
        {
            is_plain(command[0], &run(folder.path(), &[command, &[&url]].concat()));
        }
    }
    let url = format!("{}/f", answering("200 OK", "application/json", HOSTILE.to_owned()));
    is_plain("no JSON", &run(folder.path(), &["push", "-T", "file", &url]));
    let receipt = serde_json::json!({"hoop": "receipt", "origin": HOSTILE, "receipt": HOSTILE, "signing_keys": {HOSTILE: HOSTILE}});
    std::fs::write(folder.path().join("receipt.json"), receipt.to_string()).unwrap();
    for more in [&[][..], &["--offline"], &["--json"]] {
        is_plain("receipt", &run(folder.path(), &[&["receipt", "verify", "receipt.json"], more].concat()));
    }
}

#[test]
fn an_applications_answer_and_a_files_name_do_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let app = answering("403 No", "text/plain", HOSTILE.to_owned());
    let port = common::free_port();
    run(folder.path(), &["keygen", "-o", "kws"]).exits(0);
    let service = common::service_before(folder.path(), &app, port);
    let gateway = common::gateway(folder.path(), &[]);
    let name = "\u{1b}[2J\u{202e}gpj.exe\nhoop: you may leave";
    noise_file(folder.path(), name, 100);
    let url = format!("{}/f", service.url);
    let part = format!("f=@{name}");
    let push = ["push", "-v", "--gateway", &gateway.url, "--wait", "accepted", "-F", &part, &url];
    let ran = run(folder.path(), &push);
    is_plain("push", &ran);
    let list = run(folder.path(), &["status", "--json"]);
    let id = list.json()[0]["id"].as_str().unwrap().to_owned();
    is_plain("status --json", &list);
    for command in [&["status"][..], &["status", &id], &["status", "--json", &id], &["resume", &id]] {
        is_plain(command[0], &run(folder.path(), command));
    }
    for more in ["list", "check"] {
        is_plain("spool", &run(folder.path(), &["spool", "--spool", "spool", more]));
    }
    is_plain("push --plain", &run(folder.path(), &["push", "--plain", "-F", &part, &format!("{app}/f")]));
}

#[test]
fn a_log_has_an_event_a_line_whatever_it_tells() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = common::gateway(folder.path(), &[]);
    let dest = "https%3A%2F%2Fa.example%2F%1B%5B2J%0Ahoop%3A%20you%20may%20leave%E2%80%AE";
    let address = gateway.url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /offload?dest={dest} HTTP/1.1\r\nHost: {address}\r\nX-A: \x1b[2J\u{9b}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let log = eventually("a log", || Some(gateway.log()).filter(|log| !log.is_empty()));
    assert!(log.lines().all(|line| line.starts_with("20")), "each line begins with its time: {log}");
    assert!(!log.chars().any(|letter| hoop_units::plain::is_active(letter) && letter != '\n'), "{log:?}");
}

#[test]
fn a_relays_and_a_devices_names_and_files_do_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let file = "\u{1b}[2J\u{202e}\nhoop: you may leave";
    let server = format!("{HOSTILE}:4669");
    let certificate = format!("-----BEGIN CERTIFICATE-----\n{HOSTILE}\n-----END CERTIFICATE-----\n");
    write("cert.pem", &certificate);
    write("garbage", HOSTILE);
    write("devices.toml", &format!("[\"{file}\"]\n{HOSTILE} = 1\n"));
    write(file, HOSTILE);
    for arguments in [
        &[&server, "--devices", "new.toml"][..],
        &["relay.example:4669", "--devices", "devices.toml"],
        &["relay.example:4669", "--devices", file],
        &["relay.example:4669", "--devices", "new.toml", "--cert", "cert.pem"],
        &["relay.example:4669", "--devices", "new.toml", "--cert", file],
        &["relay.example:4669", "--devices", "new.toml", "--address", HOSTILE],
        &["relay.example:4669", "--devices", "new.toml", "--name", HOSTILE],
        &["relay.example:4669", "--devices", "new.toml", "--output", &format!("{file}/no/folder")],
    ] {
        is_plain("introduce", &run(folder.path(), &[&["introduce"], arguments].concat()));
    }
    run(folder.path(), &["introduce", "localhost:9", "--devices", "mine.toml", "-o", "told.toml"]).exits(0);
    let told = std::fs::read_to_string(folder.path().join("told.toml")).unwrap();
    let escaped = HOSTILE.chars().fold(String::new(), |text, letter| text + &format!("\\U{:08x}", u32::from(letter)));
    write("hostile-server.toml", &told.replace("localhost:9", &format!("{escaped}:9")));
    write("hostile-member.toml", &format!("\"{escaped}\" = 1\n{told}"));
    for arguments in [
        &["--relay", file, "true"][..],
        &["--relay", "garbage", "true"],
        &["--relay", "hostile-server.toml", "true"],
        &["--relay", "hostile-member.toml", "true"],
        &["--relay", "told.toml", "--interface", HOSTILE, "true"],
        &["--relay", "told.toml", file],
        &["--relay", "told.toml", HOSTILE],
        &["--relay", "told.toml", "--\u{1b}[2J\u{202e}\nhoop: you may leave"],
    ] {
        is_plain("run", &run(folder.path(), &[&["run"], arguments].concat()));
    }
}

#[test]
fn what_a_certificate_says_does_nothing_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start();
    noise_file(folder.path(), "file", 100);
    // Names in a certificate are ASCII, which has all that is needed.
    let hostile: String = HOSTILE.chars().filter(char::is_ascii).collect();
    let name = |text: &str| rcgen::SanType::DnsName(text.try_into().unwrap());
    let mut parameters = rcgen::CertificateParams::default();
    parameters.subject_alt_names = vec![name(&hostile), name("other.example")];
    parameters.distinguished_name.push(rcgen::DnType::CommonName, HOSTILE);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    std::fs::write(folder.path().join("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
    let port = common::free_port();
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let _service = common::service_at(folder.path(), &app, port, &format!("https://localhost:{port}"), &tls);
    let url = format!("https://localhost:{port}/f");
    for trust in [&["--ca", "cert.pem"][..], &[]] {
        for command in [&["push", "-v", "-T", "file"][..], &["push", "--json", "-T", "file"], &["tickets"]] {
            let ran = run(folder.path(), &[command, trust, &[&url]].concat());
            assert_ne!(ran.code, 0, "{ran}");
            is_plain("a certificate", &ran);
        }
    }
}

#[test]
fn a_monitor_link_to_another_origin_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start();
    let service = service(folder.path(), &app);
    let gateway = common::gateway(folder.path(), &["--public-url", "http://127.0.0.1.evil.example/"]);
    noise_file(folder.path(), "file", 1_000);
    let url = format!("{}/f", service.url);
    let ran = run(folder.path(), &["push", "-v", "--gateway", &gateway.url, "-T", "file", &url]).exits(0);
    assert!(!ran.out.contains("evil.example") && !ran.err.contains("evil.example"), "{ran}");
    let json = run(folder.path(), &["push", "--json", "--gateway", &gateway.url, "-T", "file", &url]).exits(0).json();
    assert!(json["monitor"].as_str().unwrap().starts_with(&format!("{}/monitor?ID=", gateway.url)), "{json}");
}

/// Its pipe holds 64 KiB, and each press of a button is a line.
#[test]
fn a_log_that_nobody_reads_stops_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let admin = format!("127.0.0.1:{}", common::free_port());
    let role = ["gateway", "--listen", "127.0.0.1:0", "--spool", "s", "--no-mdns", "--admin", &admin];
    let mut command = common::hoop(folder.path(), &role);
    let mut gateway = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(gateway.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    let mut unread = gateway.stderr.take().unwrap();
    let presses = format!("http://{admin}/pause?[1-1000]");
    let ran =
        common::curl(&["-X", "POST", "-o", "/dev/null", "-w", "%{http_code} ", "--max-time", "60", presses.as_str()]);
    assert_eq!(ran.out.matches("303").count(), 1_000, "{ran}");
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    let mut log = Vec::new();
    unread.read_to_end(&mut log).unwrap();
    assert!(log.len() >= 60_000, "there was not enough of it to fill the pipe: {} bytes", log.len());
}
