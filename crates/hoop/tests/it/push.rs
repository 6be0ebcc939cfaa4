//! `hoop push` from end to end: device, gateway, service and application as real processes on loopback.

use crate::common::{
    self, App, Breaker, always, eventually, free_port, gateway, has_it_all, holds, noise_file, run, service,
};
use std::path::Path;
use std::time::SystemTime;

/// Everything that one upload needs.
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

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.service.url)
    }

    /// `hoop push` by the gateway.
    fn push(&self, more: &[&str], path: &str) -> common::Ran {
        let fixed = ["push", "--gateway", &self.gateway.url];
        run(self.path(), &[&fixed[..], more, &[&self.url(path)]].concat())
    }
}

#[test]
fn uploads_of_every_length_reach_the_application_byte_for_byte() {
    let world = World::new();
    let send = |len: usize| {
        let bytes = noise_file(world.path(), "file", len);
        let before = world.app.uploads().len();
        let ran = world.push(&["--json", "-T", "file"], "/dav/").exits(0);
        assert!(ran.json()["via"] == "gateway" && has_it_all(&ran.json()["state"]), "{ran}");
        let seen = eventually("the upload", || world.app.uploads().get(before).cloned());
        assert_eq!(seen.line, "PUT /dav/file HTTP/1.1");
        assert!(seen.body == bytes, "{len} bytes arrived as {}", seen.body.len());
        let id = ran.json()["id"].as_str().unwrap().to_owned();
        let total = run(world.path(), &["status", "--json", &id]).json()["total"].as_u64().unwrap();
        usize::try_from(total).unwrap()
    };
    // Z is prelude, plaintext, and 17 bytes a record; the plaintext is head and body. Same digits, same head.
    const PRELUDE: usize = 21 + 107;
    let head = send(60_000) - PRELUDE - 17 - 60_000;
    let one_record = 65_519 - head;
    assert_eq!(send(one_record), PRELUDE + 65_536, "one record exactly");
    assert_eq!(send(one_record + 1), PRELUDE + 65_536 + 18, "one byte in a second record");
    for len in [0, 1, 3_000_000] {
        send(len);
    }
}

#[test]
fn a_form_with_three_files_arrives_as_curl_would_send_it() {
    let world = World::new();
    let files = ["a.jpg", "b.bin", "c.txt"].map(|name| noise_file(world.path(), name, 100_000 + name.len()));
    let form = ["-F", "act=bput", "-F", "f=@a.jpg", "-F", "f=@b.bin;type=x/y", "-F", "f=@c.txt;filename=d e.txt"];
    let extra = ["-H", "X-CSRFToken: sea", "-b", "session=abc", "-u", "alice:secret"];
    let ran = world.push(&[&form[..], &extra].concat(), "/up?j").exits(0);
    assert!(ran.out.starts_with(&format!("3 files: at the gateway {}", world.gateway.url)), "{ran}");
    assert!(ran.out.contains("you may leave") && ran.out.contains("/monitor?ID="), "{ran}");
    let seen = world.app.upload();
    assert_eq!(seen.line, "POST /up?j HTTP/1.1");
    assert_eq!(seen.field("x-csrftoken"), Some("sea"));
    assert_eq!(seen.field("cookie"), Some("session=abc"), "captured with the ticket");
    assert_eq!(seen.field("authorization"), Some("Basic YWxpY2U6c2VjcmV0"));
    assert_eq!(seen.field("hoop-token"), None);
    for file in &files {
        assert!(holds(&seen.body, file));
    }
    let disposition =
        b"Content-Disposition: form-data; name=\"f\"; filename=\"d e.txt\"\r\nContent-Type: text/plain\r\n";
    assert!(holds(&seen.body, disposition) && holds(&seen.body, b"filename=\"b.bin\"\r\nContent-Type: x/y\r\n"));
}

#[test]
fn after_broken_connections_only_what_is_missing_is_sent_again() {
    let world = World::new();
    const LEN: usize = 4_000_000;
    let bytes = noise_file(world.path(), "file", LEN);
    let breaker = Breaker::before(&world.gateway.url, &[1_500_000, 1_000_000]);
    let ran = run(world.path(), &["push", "--gateway", &breaker.url(), "-T", "file", &world.url("/f")]).exits(0);
    assert!(ran.err.contains("trying again") && ran.out.contains("at the gateway"), "{ran}");
    assert!(world.app.upload().body == bytes);
    // Twice a broken connection: at most what was in its buffers, and the record that was cut, are sent again.
    assert!(breaker.passed() < LEN as u64 + 1_500_000, "{} bytes passed", breaker.passed());
}

#[test]
fn without_a_gateway_it_goes_to_the_service_directly_and_says_so() {
    let world = World::new();
    let bytes = noise_file(world.path(), "file", 300_000);
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let full = "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n";
    let busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n";
    let other = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello";
    let stands_in = |answer| format!("http://{}", always(answer));
    let elsewhere = tempfile::tempdir().unwrap();
    let small = gateway(elsewhere.path(), &["--quota", "100K"]);
    let stand_ins = [stands_in(full), stands_in(busy), stands_in(other)];
    let gateways = [&[nobody, small.url.clone(), "none".to_owned()][..], &stand_ins].concat();
    for (count, gateway) in gateways.iter().enumerate() {
        let ran =
            run(world.path(), &["push", "--wait", "accepted", "--gateway", gateway, "-T", "file", &world.url("/f")])
                .exits(0);
        assert!(ran.err.contains("sealed, to the service directly"), "{gateway}: {ran}");
        assert!(ran.out.contains("The application has accepted it.") && ran.out.contains("Its answer: 201"), "{ran}");
        assert_eq!(world.app.uploads().len(), count + 1, "once each");
        assert!(world.app.upload().body == bytes);
    }
}

#[test]
fn when_the_gateway_dies_half_way_the_service_gets_it_directly() {
    let world = World::new();
    let bytes = noise_file(world.path(), "file", 4_000_000);
    let breaker = Breaker::holding_after(1_000_000, &world.gateway.url);
    let url = world.url("/f");
    let arguments = ["push", "--retry-max-time", "3s", "--gateway", &breaker.url(), "-T", "file", &url];
    let child = common::hoop(world.path(), &arguments)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    breaker.holds();
    breaker.shut();
    let ran = common::Ran::from(child.wait_with_output().unwrap()).exits(0);
    assert!(ran.err.contains("sealed, to the service directly") && ran.out.contains("at the service"), "{ran}");
    assert!(world.app.upload().body == bytes);
    assert_eq!(world.app.uploads().len(), 1);
}

#[test]
fn over_https_the_certificate_is_checked_by_device_and_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(["photos.example".to_owned()]).unwrap();
    std::fs::write(folder.path().join("ca.pem"), certified.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    let (app, port) = (App::start(), free_port());
    let origin = format!("https://photos.example:{port}");
    let tls = ["--tls-cert", "ca.pem", "--tls-key", "key.pem"];
    let service = common::service_at(folder.path(), &app, port, &origin, &tls);
    assert!(service.url.starts_with("https://"));
    let resolve = format!("photos.example:{port}:127.0.0.1");
    let places = ["--ca", "ca.pem", "--resolve", &resolve];
    let gateway = gateway(folder.path(), &places);
    let bytes = noise_file(folder.path(), "file", 500_000);
    let url = format!("{origin}/f");
    let push = ["push", "--wait", "accepted", "--gateway", &gateway.url, "-T", "file", &url];
    let ran = run(folder.path(), &[&push[..], &places].concat()).exits(0);
    assert!(ran.out.contains("The application has accepted it."), "{ran}");
    let seen = app.upload();
    assert!(seen.body == bytes);
    assert_eq!(seen.field("host"), Some(&origin["https://".len()..]));
    let untrusted = run(folder.path(), &[&push[..], &places[2..]].concat()).exits(7);
    assert!(untrusted.err.starts_with("Error: cannot trust the service's certificate."), "{untrusted}");
}

#[test]
fn a_service_without_hoop_gets_the_ordinary_request() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start();
    let bytes = noise_file(folder.path(), "a.bin", 700_000);
    let url = format!("{}/up?j", app.origin());
    for more in [&[][..], &["--plain"]] {
        let form = ["push", "-F", "f=@a.bin", "-b", "s=1", "-H", "X-CSRFToken: sea"];
        let ran = run(folder.path(), &[&form[..], more, &[&url]].concat()).exits(0);
        assert!(ran.err.contains("the ordinary request, not sealed"), "{ran}");
        assert!(ran.out.contains("Its answer: 201 application/json\n  {\"saved\":"), "{ran}");
        let seen = app.upload();
        assert_eq!(seen.line, "POST /up?j HTTP/1.1");
        assert_eq!((seen.field("cookie"), seen.field("x-csrftoken")), (Some("s=1"), Some("sea")));
        assert_eq!(seen.field("transfer-encoding"), None);
        assert!(holds(&seen.body, &bytes));
    }
    assert_eq!(app.uploads().len(), 2);
    let rejected = run(folder.path(), &["push", "-d", "x", &format!("{}/status/413", app.origin())]).exits(5);
    assert!(rejected.out.contains("The application has rejected it"), "{rejected}");
}

#[test]
fn a_deadline_is_told_to_the_gateway() {
    let world = World::new();
    noise_file(world.path(), "file", 100);
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let begun = now();
    world.push(&["--deadline", "6h", "-T", "file"], "/dav/").exits(0);
    let listed = run(world.path(), &["spool", "--spool", "spool", "list", "--json"]).exits(0);
    let deadline = listed.json()["deadline"].as_u64().expect("it has one");
    assert!((begun + 21_600..=now() + 21_600).contains(&deadline), "{deadline}");
    world.push(&["--deadline", "soon", "-T", "file"], "/dav/").exits(2);
}

#[test]
fn a_rejected_upload_keeps_its_answer_for_hoop_status() {
    let world = World::new();
    let ran = world.push(&["--wait", "accepted", "--json", "-d", "x"], "/status/403").exits(5);
    let (json, id) = (ran.json(), ran.json()["id"].as_str().unwrap().to_owned());
    assert_eq!((&json["state"], &json["answer"]["status"]), (&"rejected".into(), &403.into()));
    let status = run(world.path(), &["status", &id[..8]]).exits(5);
    for words in ["rejected", "Its answer: 403 application/json", "{\"saved\":1}", "at the gateway", "received"] {
        assert!(status.out.contains(words), "{words}: {status}");
    }
    let json = run(world.path(), &["status", "--json", &id]).exits(5).json();
    assert_eq!((&json["answer"]["body"], &json["finished"]), (&"{\"saved\":1}\n".into(), &true.into()));
    assert!(!status.out.contains("app-secret"), "the application's cookie stays at the service");
}

#[test]
fn a_kept_receipt_proves_what_was_accepted_and_nothing_else() {
    let mut world = World::new();
    noise_file(world.path(), "a.jpg", 200_000);
    noise_file(world.path(), "b.jpg", 200_001);
    let form = ["-F", "act=bput", "-F", "f=@a.jpg"];
    world.push(&[&form[..], &["--receipt", "receipt.json"]].concat(), "/up").exits(0);
    let verify = |more: &[&str]| run(world.path(), &[&["receipt", "verify", "receipt.json"], more].concat());
    let genuine = verify(&["a.jpg"]).exits(0);
    assert!(genuine.out.contains("accepted by") && genuine.out.contains("matches what you gave"), "{genuine}");
    assert!(genuine.out.contains("  request        POST /up\n"), "{genuine}");
    let other = verify(&["b.jpg"]).exits(4);
    assert!(other.err.contains("another body"), "{other}");
    std::fs::write(world.path().join("body"), world.app.upload().body).unwrap();
    let json = verify(&["--json", "--body", "body"]).exits(0).json();
    assert_eq!((&json["state"], &json["body_checked"]), (&"accepted".into(), &true.into()));
    assert_eq!((&json["request"]["path"], &json["proven"]), (&"/up".into(), &true.into()));
    let kept = std::fs::read_to_string(world.path().join("receipt.json")).unwrap();
    std::fs::write(world.path().join("moved.json"), kept.replace("\"/up\"", "\"/votes\"")).unwrap();
    let moved = run(world.path(), &["receipt", "verify", "moved.json"]).exits(4);
    assert!(moved.err.contains("another request than POST /votes"), "{moved}");
    // What somebody wrote down while the keys were published.
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    let document = serde_json::json!({"hoop": 1, "signing_keys": kept["signing_keys"]});
    std::fs::write(world.path().join("keys.json"), document.to_string()).unwrap();
    // With another key in front, the old one is published still; without it, only what was kept knows it.
    let keys = world.path().join("kws");
    run(world.path(), &["keygen", "--rotate", keys.to_str().unwrap()]).exits(0);
    let restart = |world: &mut World| {
        let port = world.service.port();
        world.service.stop();
        let origin = format!("http://127.0.0.1:{port}");
        world.service = common::service_at(world.folder.path(), &world.app, port, &origin, &[]);
    };
    restart(&mut world);
    let verify = |more: &[&str]| run(world.path(), &[&["receipt", "verify", "receipt.json"], more].concat());
    verify(&["a.jpg"]).exits(0);
    let newest = std::fs::read_to_string(&keys).unwrap();
    let newest = newest.lines().find(|line| line.starts_with("hoop-kws-v1")).unwrap();
    std::fs::write(&keys, format!("{newest}\n")).unwrap();
    let path = world.path().to_owned();
    restart(&mut world);
    let verify = |more: &[&str]| run(&path, &[&["receipt", "verify", "receipt.json"], more].concat());
    let unknown = verify(&["a.jpg"]).exits(4);
    assert!(unknown.err.contains("is not known"), "{unknown}");
    verify(&["--offline", "--keys", "keys.json", "a.jpg"]).exits(0);
    let unproven = verify(&["--offline", "a.jpg"]).exits(11);
    assert!(unproven.out.contains("This proves nothing"), "{unproven}");
}

#[test]
fn keys_over_plain_http_prove_nothing() {
    let mut world = World::new();
    let port = world.service.port();
    world.service.stop();
    let origin = format!("http://photos.example:{port}");
    world.service = common::service_at(world.folder.path(), &world.app, port, &origin, &[]);
    let (here, url) = (format!("photos.example:{port}:127.0.0.1"), format!("{origin}/up"));
    let push = ["push", "--gateway", "none", "--resolve", &here, "--receipt", "receipt.json", "-d", "x", &url];
    run(world.path(), &push).exits(0);
    let verify = |more: &[&str]| run(world.path(), &[&["receipt", "verify", "receipt.json"], more].concat());
    let unproven = verify(&["--resolve", &here]).exits(11);
    assert!(unproven.out.contains("This proves nothing: the keys came over plain http"), "{unproven}");
    verify(&["--keys", "receipt.json"]).exits(0);
}

#[test]
fn an_accepted_upload_is_told_as_accepted_though_its_receipt_is_lost() {
    let world = World::new();
    let lost = ["--receipt", "nowhere/receipt.json", "-d", "x"];
    let ran = world.push(&lost, "/up").exits(0);
    assert!(ran.out.contains("The application has accepted it."), "{ran}");
    assert!(ran.err.contains("The receipt is not kept: cannot write nowhere/receipt.json"), "{ran}");
    let ran = world.push(&[&lost[..], &["--json"]].concat(), "/up").exits(0);
    assert_eq!(ran.json()["state"], "accepted", "one document: {ran}");
    assert!(ran.err.contains("hoop status") && ran.err.contains("--receipt"), "{ran}");
}

#[test]
fn a_receipt_that_is_there_is_replaced_whole_and_a_pipe_is_written() {
    let world = World::new();
    let pushed = world.push(&["--json", "--wait", "accepted", "-d", "x"], "/up").exits(0);
    let id = pushed.json()["id"].as_str().unwrap().to_owned();
    let [old, second] = ["receipt.json", "second.json"].map(|name| world.path().join(name));
    std::fs::write(&old, "the only one").unwrap();
    std::fs::hard_link(&old, &second).unwrap();
    run(world.path(), &["status", &id, "--receipt", "receipt.json"]).exits(0);
    run(world.path(), &["receipt", "verify", "receipt.json"]).exits(0);
    assert_eq!(std::fs::read_to_string(&second).unwrap(), "the only one", "it was not emptied first");
    let piped = run(world.path(), &["status", &id, "--receipt", "/dev/stdout"]).exits(0);
    assert!(piped.out.contains("\"signing_keys\"") && piped.out.contains("  state "), "{piped}");
}

#[test]
fn when_the_gateway_is_away_the_service_tells_the_status() {
    let mut world = World::new();
    let id = world.push(&["--wait", "received", "--json", "-d", "x"], "/f").exits(0).json()["id"].clone();
    let id = id.as_str().unwrap();
    assert_eq!(world.gateway.stop(), 0);
    let told = || run(world.path(), &["status", id]);
    let told = eventually("the application's answer", || Some(told()).filter(|told| told.out.contains("Its answer")));
    assert!(told.out.contains("accepted") && told.out.contains("Its answer: 201"), "{told}");
    assert_eq!(world.service.stop(), 0);
    let untold = run(world.path(), &["status", id]).exits(7);
    assert!(untold.out.contains("last known as accepted") && untold.err.contains("Connection refused"), "{untold}");
    let list = run(world.path(), &["status"]).exits(0);
    assert!(list.out.lines().nth(1).is_some_and(|line| line.starts_with(&id[..10]) && line.contains("accepted")));
}

#[test]
fn an_upload_larger_than_the_service_allows_is_refused_before_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (app, port) = (App::start(), free_port());
    let origin = format!("http://127.0.0.1:{port}");
    let _service = common::service_at(folder.path(), &app, port, &origin, &["--max-bytes", "100K"]);
    noise_file(folder.path(), "file", 200_000);
    let ran = run(folder.path(), &["push", "-T", "file", &format!("{origin}/f")]).exits(4);
    assert!(ran.err.contains("Error: the upload is larger than the service allows."), "{ran}");
    assert_eq!(app.uploads().len(), 0);
}

#[test]
fn a_full_service_is_not_told_as_one_that_nobody_can_reach() {
    let folder = tempfile::tempdir().unwrap();
    let (app, port) = (App::start(), free_port());
    let origin = format!("http://127.0.0.1:{port}");
    let _service = common::service_at(folder.path(), &app, port, &origin, &["--max-stored", "100K"]);
    noise_file(folder.path(), "file", 200_000);
    let arguments = ["push", "--gateway", "none", "--retry-max-time", "1s", "-T", "file", &format!("{origin}/f")];
    let ran = run(folder.path(), &arguments).exits(7);
    assert!(ran.err.contains("Error: the service takes no uploads now.") && ran.err.contains("spool-full"), "{ran}");
    assert!(ran.err.contains("hoop resume"), "{ran}");
}

#[test]
fn an_upload_whose_session_has_gone_is_held() {
    let world = World::new();
    let ran = world.push(&["--wait", "accepted", "-b", "session=old", "-d", "x"], "/status/401").exits(6);
    assert!(ran.out.contains("Sign in, then run: hoop release"), "{ran}");
}

#[test]
fn json_has_every_member_and_times_in_order() {
    let world = World::new();
    let ran = world.push(&["--wait", "accepted", "--json", "-d", "hello"], "/f").exits(0);
    assert_eq!(ran.out.lines().count(), 1, "{ran}");
    let json = ran.json();
    assert_eq!(json["id"].as_str().unwrap().len(), 32);
    assert_eq!((&json["state"], &json["via"], &json["bytes"]), (&"accepted".into(), &"gateway".into(), &5.into()));
    assert_eq!(json["gateway"], world.gateway.url.as_str());
    assert!(json["monitor"].as_str().unwrap().ends_with(&format!("/monitor?ID={}", json["id"].as_str().unwrap())));
    assert_eq!((&json["answer"]["status"], &json["timed_out"]), (&201.into(), &false.into()));
    let times = ["ticket_ms", "sending_ms", "stored_ms", "done_ms"].map(|name| json[name].as_u64().unwrap());
    assert!(times.is_sorted(), "{times:?}");
    let failed = run(world.path(), &["push", "--json", "-T", "missing", &world.url("/f")]).exits(3).json();
    assert_eq!(failed["exit"], 3);
    assert!(failed["error"].as_str().unwrap().starts_with("cannot read missing"));
}

#[test]
fn a_push_with_a_prefetched_ticket_works_while_the_service_is_away() {
    let mut world = World::new();
    let url = world.url("/f");
    let fetched = run(world.path(), &["tickets", "--count", "2", "-b", "s=1", &url]).exits(0);
    assert!(fetched.out.starts_with("2 tickets fetched; 2 are ready for POST "), "{fetched}");
    let port = world.service.port();
    assert_eq!(world.service.stop(), 0);
    let form = ["--wait", "accepted", "--timeout", "500ms", "-b", "s=1", "-d", "later"];
    let ran = world.push(&form, "/f").exits(8);
    assert!(ran.out.contains("The wait is over") && ran.out.contains("Follow it: http"), "{ran}");
    let without = world.push(&["-b", "other=1", "-d", "later"], "/f").exits(7);
    assert!(without.err.contains("hoop tickets"), "tickets are good for their own credentials alone: {without}");
    world.service = common::service_at(world.path(), &world.app, port, &world.service.url.clone(), &[]);
    let seen = world.app.upload();
    assert_eq!((seen.body.as_slice(), seen.field("cookie")), (&b"later"[..], Some("s=1")));
}

#[test]
fn a_service_that_asks_to_wait_for_a_ticket_is_waited_for() {
    let mut world = World::new();
    let (url, port, origin) = (world.url("/f"), world.service.port(), world.service.url.clone());
    assert_eq!(world.service.stop(), 0);
    world.service = common::service_at(world.path(), &world.app, port, &origin, &["--tickets-per-minute", "60"]);
    let fetched = run(world.path(), &["tickets", "--count", "64", "-b", "s=1", &url]).exits(0);
    assert!(fetched.out.starts_with("64 tickets fetched; 64 are ready"), "{fetched}");
    let told = "this address has had as many tickets as it gets in a minute (too-many-requests); waiting ";
    assert!(fetched.err.contains(told), "{fetched}");
    let pushed = world.push(&["--wait", "accepted", "-b", "other=1", "-d", "soon"], "/f").exits(0);
    assert!(pushed.err.contains(told), "{pushed}");
    assert_eq!(world.app.upload().body, b"soon");
}

#[test]
fn a_sealed_file_or_pipe_goes_to_the_gateway_by_curl() {
    let world = World::new();
    let bytes = noise_file(world.path(), "file", 200_000);
    let sealed = run(world.path(), &["seal", "-o", "z", "-T", "file", &world.url("/f")]).exits(0);
    let line = sealed.err.lines().find(|line| line.contains("curl")).unwrap().trim().to_owned();
    assert!(line.starts_with("curl --data-binary '@z' 'http://hoop.local:4667/offload?dest=http%3A%2F%2F"), "{sealed}");
    let curl = |line: &str| {
        let line = line.replace("http://hoop.local:4667", &world.gateway.url).replacen("curl", "curl -sS --fail", 1);
        let ran = std::process::Command::new("sh").args(["-c", &line]).current_dir(world.path()).output().unwrap();
        let receipt: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert!(has_it_all(&receipt["state"]), "{}", common::Ran::from(ran));
        receipt["id"].as_str().unwrap().to_owned()
    };
    let id = curl(&line);
    assert!(world.app.upload().body == bytes);
    let state = || run(world.path(), &["status", "--json", &id]).json()["state"].as_str().map(ToOwned::to_owned);
    eventually("the service's word", || state().filter(|state| state == "accepted"));
    let piped = line.replace("@z", "@-");
    let state = world.path().join("state");
    let piped = format!(
        "HOOP_STATE='{}' '{}' seal -T file '{}' | {piped}",
        state.display(),
        env!("CARGO_BIN_EXE_hoop"),
        world.url("/g")
    );
    curl(&piped);
    eventually("the second upload", || (world.app.uploads().len() == 2).then_some(()));
}

#[test]
fn the_standard_input_is_sent_with_its_exact_length() {
    let world = World::new();
    let bytes = noise_file(world.path(), "file", 150_000);
    let input = std::fs::File::open(world.path().join("file")).unwrap();
    // `cat` makes a pipe of it: its length is not known beforehand.
    let mut cat = std::process::Command::new("cat").stdin(input).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut command =
        common::hoop(world.path(), &["push", "--gateway", &world.gateway.url, "-d", "@-", &world.url("/f")]);
    let ran = common::Ran::from(command.stdin(cat.stdout.take().unwrap()).output().unwrap()).exits(0);
    cat.wait().unwrap();
    assert!(ran.out.starts_with("standard input: at the gateway"), "{ran}");
    let seen = world.app.upload();
    assert_eq!(seen.field("content-length"), Some("150000"));
    assert!(seen.body == bytes);
}

#[test]
fn a_file_that_changes_while_sent_ends_the_push_and_is_not_delivered() {
    let world = World::new();
    // Far more than socket buffers hold, so that the push is still under way.
    noise_file(world.path(), "file", 40_000_000);
    let breaker = Breaker::holding_after(2_000_000, &world.gateway.url);
    let url = world.url("/f");
    let child = common::hoop(world.path(), &["push", "--gateway", &breaker.url(), "-T", "file", &url])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    breaker.holds();
    let file = std::fs::File::options().append(true).open(world.path().join("file")).unwrap();
    file.set_len(40_000_001).unwrap();
    breaker.release();
    let ran = common::Ran::from(child.wait_with_output().unwrap()).exits(10);
    assert!(ran.err.contains("Error: file changed while it was being sent."), "{ran}");
    assert_eq!(world.app.uploads().len(), 0);
}

#[test]
fn no_key_token_or_cookie_is_printed_or_logged() {
    let world = World::new();
    let ran =
        world.push(&["-v", "--wait", "accepted", "-b", "session=topsecret", "-u", "a:hush-hush", "-d", "x"], "/f");
    let ran = ran.exits(0);
    let uploads = std::fs::read_dir(world.path().join("state/uploads")).unwrap();
    let record = std::fs::read_to_string(uploads.flatten().next().unwrap().path()).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let key = record["key"].as_str().unwrap();
    assert_eq!(key.len(), 43);
    let printed = [ran.out, ran.err, world.gateway.log(), world.service.log()].concat();
    assert!(printed.contains("stored"), "there is something to look through");
    for secret in [key, "topsecret", "hush-hush", "YTpodXNoLWh1c2g", "app-secret"] {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
}
