//! SIGHUP: a server takes over what its files say by now, and drops nothing for it.

use crate::common::{App, Server, curl, eventually, free_port, gateway, noise_file, run, service_at};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn hang_up(server: &Server) {
    assert!(Command::new("kill").args(["-HUP", &server.pid().to_string()]).status().unwrap().success());
}

/// Has the server read its files again, and waits until it says how that went.
fn reload(server: &Server, says: &str) {
    let before = server.log().matches(says).count();
    hang_up(server);
    eventually(says, || (server.log().matches(says).count() > before).then_some(()));
}

const DONE: &str = "the configuration was read again";
const NOTHING: &str = "nothing was changed, since the new configuration cannot be used";

/// A connection whose request waits for the rest of its body.
fn begun(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!("POST /f HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 10\r\n\r\nhalf ", server.port());
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Sends the rest, and returns the status line.
fn ended(mut stream: TcpStream) -> String {
    stream.write_all(b"whole").unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn push(folder: &Path, gateway: &Server, service: &Server) {
    let form = format!("{}/f", service.url);
    run(folder, &["push", "--gateway", &gateway.url, "-F", "f=@photo", "--wait", "accepted", &form]).exits(0);
}

#[test]
fn a_service_takes_new_keys_permits_and_routes_and_drops_nothing() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    let app = App::start();
    fs::write(folder.join("service.toml"), "max-bytes = \"1G\"\nroutes = \"routes.toml\"\n").unwrap();
    fs::write(folder.join("routes.toml"), "").unwrap();
    let port = free_port();
    let origin = format!("http://127.0.0.1:{port}");
    let service = service_at(folder, &app, port, &origin, &["--config", "service.toml"]);
    let gateway = gateway(folder, &[]);
    noise_file(folder, "photo", 300_000);
    push(folder, &gateway, &service);
    let told = || curl(&[&format!("{}/.well-known/hoop", service.url)]).json();
    let old = told();

    let waiting = begun(&service);
    run(folder, &["keygen", "--rotate", "kws"]).exits(0);
    fs::write(folder.join("service.toml"), "max-bytes = \"2G\"\npermits = \"required\"\nreplays = 9\n").unwrap();
    reload(&service, DONE);
    let new = told();
    assert_ne!(old["signing_keys"], new["signing_keys"]);
    assert_eq!((&new["permits"], new["max_bytes"].as_u64()), (&"required".into(), Some(2 << 30)));
    // What needs a restart is named.
    service.has_logged("replays");
    assert_eq!(ended(waiting), "HTTP/1.1 201");
    push(folder, &gateway, &service);
    assert_eq!(app.uploads().len(), 3, "two uploads, and what waited");

    // Whatever cannot be used changes nothing; nor does a file that an editor has emptied to write it anew.
    let unusable = [
        ("service.toml", "max-bites = 1\n"),
        ("service.toml", "replays = 0\n"),
        ("service.toml", ""),
        ("kws", "no key\n"),
        ("kws", ""),
    ];
    for (file, text) in unusable {
        let good = fs::read(folder.join(file)).unwrap();
        fs::write(folder.join(file), text).unwrap();
        reload(&service, NOTHING);
        assert_eq!(told(), new, "{file}: {text}");
        fs::write(folder.join(file), good).unwrap();
    }
    reload(&service, DONE);
    service.has_logged("audit: ");
    service.has_logged("act=\"reload\" outcome=\"refused\"");
}

#[test]
fn a_file_that_is_written_while_it_is_read_again_is_taken_whole() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    let app = App::start();
    let (config, routes) = (folder.join("service.toml"), folder.join("routes.toml"));
    let rule = |path: &str| format!("[[route]]\npath = \"{path}\"\nmax_bytes = 1000\n");
    fs::write(&config, "routes = \"routes.toml\"\n").unwrap();
    fs::write(&routes, rule("/old")).unwrap();
    let port = free_port();
    let service = service_at(folder, &app, port, &format!("http://127.0.0.1:{port}"), &["--config", "service.toml"]);
    // An empty file of routes would let everything through, by the generic rules.
    fs::write(&routes, "").unwrap();
    reload(&service, NOTHING);
    service.has_logged("cannot accept routes.toml");
    // What is whole in itself so far is a mistake at its end.
    let writing = routes.clone();
    let writer = std::thread::spawn(move || {
        let mut file = fs::File::create(&writing).unwrap();
        for line in ["# a route\n", "[[route]]\n", "path = \"/new\"\n", "no such member = 1\n"] {
            file.write_all(line.as_bytes()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    while fs::read_to_string(&routes).unwrap().is_empty() {
        std::thread::yield_now();
    }
    reload(&service, NOTHING);
    writer.join().unwrap();
    service.has_logged("routes.toml has an error");
}

#[test]
fn a_service_shows_a_renewed_certificate() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    let make = |name: &str| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.join(format!("{name}.pem")), made.cert.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    };
    let take = |name: &str| {
        fs::copy(folder.join(format!("{name}.pem")), folder.join("cert.pem")).unwrap();
        fs::copy(folder.join(format!("{name}.key")), folder.join("key.pem")).unwrap();
    };
    make("first");
    make("second");
    take("first");
    let app = App::start();
    let port = free_port();
    let origin = format!("https://localhost:{port}");
    let service = service_at(folder, &app, port, &origin, &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let url = format!("{origin}/.well-known/hoop");
    let trusts = |name: &str| {
        let authority = folder.join(format!("{name}.pem"));
        curl(&["--cacert", authority.to_str().unwrap(), &url]).code == 0
    };
    assert!(trusts("first") && !trusts("second"));
    fs::write(folder.join("cert.pem"), "").unwrap();
    reload(&service, NOTHING);
    assert!(trusts("first"));
    take("second");
    reload(&service, DONE);
    assert!(trusts("second") && !trusts("first"));
}

#[test]
fn a_gateway_takes_new_destinations_and_names() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    fs::write(folder.join("gateway.toml"), "").unwrap();
    let gateway = gateway(folder, &["--config", "gateway.toml"]);
    let code = |dest: &str, host: &str| {
        let url = format!("{}/offload?dest={dest}", gateway.url);
        let host = format!("Host: {host}");
        curl(&["-H", "Accept: application/json", "-H", &host, "--data-binary", "x", &url]).json()["code"].clone()
    };
    let dest = "http://10.1.2.3:8080/hoop/post";
    assert_eq!(code(dest, "hoop.local"), "dest-invalid");
    assert_eq!(code(dest, "box.example"), "host-forbidden");
    fs::write(folder.join("gateway.toml"), "allow-dest = [\"10.1.2.3:8080\"]\nhost = [\"box.example\"]\n").unwrap();
    reload(&gateway, DONE);
    let taken = code(dest, "box.example");
    assert!(taken != "dest-invalid" && taken != "host-forbidden", "{taken}");
    fs::write(folder.join("gateway.toml"), "ca = [\"missing.pem\"]\n").unwrap();
    reload(&gateway, NOTHING);
    assert_eq!(code(dest, "box.example"), taken);
    fs::write(folder.join("gateway.toml"), "transfers = 7\n").unwrap();
    reload(&gateway, DONE);
    assert_eq!(code(dest, "hoop.local"), "dest-invalid");
    // What needs a restart is named.
    gateway.has_logged("transfers");
}

#[test]
fn a_relay_says_which_of_its_files_it_has_not_taken() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    let made = rcgen::generate_simple_self_signed(["relay.example".to_owned()]).unwrap();
    fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    run(folder, &["introduce", "relay.example:4669", "--devices", "devices.toml", "-o", "told.toml"]).exits(0);
    let files = ["--cert", "cert.pem", "--key", "key.pem", "--devices", "devices.toml"];
    let relay = Server::start(folder, "relay", &[&["relay", "--listen", "127.0.0.1:0"], &files[..]].concat());
    let (done, refused) = ("outcome=\"done\"", "outcome=\"refused\"");
    reload(&relay, done);
    for (file, text, says) in
        [("devices.toml", "[devices", "the devices' file is not taken"), ("cert.pem", "", "changed and is not taken")]
    {
        let (good, known) = (fs::read(folder.join(file)).unwrap(), relay.log().matches(done).count());
        fs::write(folder.join(file), text).unwrap();
        reload(&relay, refused);
        relay.has_logged(says);
        assert_eq!(relay.log().matches(done).count(), known, "{}", relay.log());
        fs::write(folder.join(file), good).unwrap();
        reload(&relay, done);
    }
}

#[test]
fn a_file_of_authorities_is_read_whole() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    let pem = || rcgen::generate_simple_self_signed(["service.example".to_owned()]).unwrap().cert.pem();
    fs::write(folder.join("gateway.toml"), "ca = [\"ca.pem\"]\n").unwrap();
    fs::write(folder.join("ca.pem"), pem()).unwrap();
    let gateway = gateway(folder, &["--config", "gateway.toml"]);
    reload(&gateway, DONE);
    // The second half makes it none: whoever reads the first alone takes it.
    let (path, half) = (folder.join("ca.pem"), pem());
    fs::write(&path, &half).unwrap();
    let writer = std::thread::spawn(move || {
        for part in ["-----BEGIN CERTIFICATE-----\n", "no base64!\n", "-----END CERTIFICATE-----\n"] {
            std::thread::sleep(Duration::from_millis(100));
            fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(part.as_bytes()).unwrap();
        }
    });
    reload(&gateway, NOTHING);
    writer.join().unwrap();
}

/// Whether the process has these bytes anywhere in the memory that it may write to. None if nobody may look, which only root may.
fn remembers(pid: u32, wanted: &[u8]) -> Option<bool> {
    use std::os::unix::fs::FileExt as _;
    let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let writable = maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw")));
    let mut found = false;
    for line in writable {
        let ends: Vec<_> = line.split([' ', '-']).take(2).map(|end| u64::from_str_radix(end, 16).unwrap()).collect();
        let mut bytes = vec![0; usize::try_from(ends[1] - ends[0]).unwrap()];
        // What was given back meanwhile is not there.
        let len = memory.read_at(&mut bytes, ends[0]).unwrap_or(0);
        found |= crate::common::holds(&bytes[..len], wanted);
    }
    Some(found)
}

#[test]
fn the_text_of_a_key_file_does_not_stay_in_memory() {
    let world = tempfile::tempdir().unwrap();
    let folder = world.path();
    let app = App::start();
    let port = free_port();
    let service = service_at(folder, &app, port, &format!("http://127.0.0.1:{port}"), &[]);
    let gateway = gateway(folder, &[]);
    noise_file(folder, "photo", 300_000);
    push(folder, &gateway, &service);
    let line = fs::read_to_string(folder.join("kws")).unwrap();
    let key = line.split_whitespace().nth(2).unwrap();
    let holds = |wanted: &[u8]| remembers(service.pid(), wanted);
    if holds(b"hoop").is_none() {
        eprintln!("nobody but root may look into the memory of a service: not checked");
        return;
    }
    assert_eq!(holds(app.origin().as_bytes()), Some(true), "what is not wiped is found");
    assert_eq!(holds(key.as_bytes()), Some(false));
    reload(&service, DONE);
    assert_eq!(holds(key.as_bytes()), Some(false));
}
