//! Uploads of programs that know nothing of Hoop, which `hoop agent --patient` leaves with the gateway: curl, and a program that asks a proxy for `https://`. Real processes on loopback.

use crate::common::{App, Server, curl, eventually, free_port, gateway, noise_file, run, service, service_at};
use crate::flows::{Running, agent, hoop, relay, start_agent};
use std::fs::read_dir;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

struct World {
    folder: tempfile::TempDir,
    app: App,
    _relay: Running,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = relay(folder.path());
        Self { folder, app: App::start(), _relay: relay }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// An agent for whom uploads to this URL are patient.
    fn agent(&self, url: &str, gateway: &str, more: &[&str]) -> (Running, SocketAddr) {
        agent(self.path(), &[&["--patient", url, "--gateway", gateway, "--state", "state"], more].concat())
    }

    /// The bodies that the agent keeps.
    fn kept(&self) -> usize {
        read_dir(self.path().join("state/patient")).unwrap().count()
    }
}

/// Posts a file through the agent, and returns the answer's status and body.
fn post(agent: SocketAddr, file: &Path, url: &str, more: &[&str]) -> (u16, String) {
    let (proxy, data) = (format!("http://{agent}"), format!("@{}", file.display()));
    let fixed = ["--proxy", &proxy, "--noproxy", "", "--write-out", "\n%{http_code}", "--data-binary", &data];
    let ran = curl(&[&fixed[..], more, &[url]].concat()).exits(0);
    let (body, status) = ran.out.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

#[test]
fn a_post_to_a_patient_url_is_sealed_and_left_with_the_gateway() {
    let world = World::new();
    let (service, gateway) = (service(world.path(), &world.app), gateway(world.path(), &[]));
    let (_agent, agent) = world.agent(&format!("{}/up", service.url), &gateway.url, &[]);
    let bytes = noise_file(world.path(), "file", 3_000_000);
    let more = ["-H", "Cookie: session=abc", "-H", "Content-Type: image/jpeg", "-u", "alice:secret"];
    let (status, receipt) =
        post(agent, &world.path().join("file"), &format!("{}/up/holiday.jpg?j", service.url), &more);
    let receipt: serde_json::Value = serde_json::from_str(&receipt).unwrap();
    assert_eq!((status, receipt["via"].as_str(), receipt["bytes"].as_u64()), (202, Some("gateway"), Some(3_000_000)));
    assert!(receipt["gateway"].as_str().unwrap().starts_with(&gateway.url), "{receipt}");
    let seen = world.app.upload();
    assert_eq!(seen.line, "POST /up/holiday.jpg?j HTTP/1.1");
    assert!(seen.body == bytes, "byte for byte");
    assert_eq!(seen.field("content-type"), Some("image/jpeg"));
    assert_eq!(seen.field("cookie"), Some("session=abc"), "captured with the ticket");
    assert_eq!(seen.field("authorization"), Some("Basic YWxpY2U6c2VjcmV0"));
    assert_eq!(world.kept(), 0, "the gateway has it");
    let id = receipt["id"].as_str().unwrap();
    eventually("the proof", || {
        let status = run(world.path(), &["status", "--json", id]);
        (status.code == 0 && status.json()["state"] == "accepted").then_some(())
    });
    let listed = run(world.path(), &["status"]).exits(0);
    assert!(listed.out.contains("holiday.jpg") && listed.out.contains(&id[..10]), "{listed}");
    // Another URL, and another method, go by the relay, which does not go there.
    let (status, _) = post(agent, &world.path().join("file"), &format!("{}/upper", service.url), &[]);
    assert_eq!(status, 403);
    let (status, _) = post(agent, &world.path().join("file"), &format!("{}/up", service.url), &["-X", "DELETE"]);
    assert_eq!(status, 403);
    assert_eq!(world.app.uploads().len(), 1);
}

/// The device seals it, so the relay need not be trusted with the host.
#[test]
fn an_https_request_is_sealed_though_its_host_is_not_entrusted() {
    let world = World::new();
    let (port, gateway) = (free_port(), gateway(world.path(), &["--ca", "cert.pem", "--allow-dest", "::1"]));
    let origin = format!("https://localhost:{port}");
    let _service: Server =
        service_at(world.path(), &world.app, port, &origin, &["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    let (_agent, agent) = world.agent(&origin, &gateway.url, &["--ca", "cert.pem"]);
    let asks = |method: &str| {
        let mut program = TcpStream::connect(agent).unwrap();
        write!(
            program,
            "{method} {origin}/up HTTP/1.1\r\nHost: localhost:{port}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        program.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = asks("PUT");
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    let seen = world.app.upload();
    assert_eq!((&seen.line[..], &seen.body[..]), ("PUT /up HTTP/1.1", &b"hello"[..]));
    let answer = asks("DELETE");
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
}

#[test]
fn what_nobody_has_is_an_error_and_nothing_of_it_stays() {
    let world = World::new();
    noise_file(world.path(), "file", 100_000);
    let file = world.path().join("file");
    // The application itself takes no sealed uploads.
    let url = format!("{}/up", world.app.origin());
    let (first, address) = world.agent(&url, "none", &[]);
    let (status, why) = post(address, &file, &url, &[]);
    assert_eq!(status, 501);
    assert!(why.contains("was not handed over: the service does not take sealed uploads"), "{why}");
    assert_eq!((world.app.uploads().len(), world.kept()), (0, 0));
    drop(first);
    // What an agent left that was killed goes with the next.
    std::fs::create_dir(world.path().join("state/patient/0123456789abcdef")).unwrap();
    std::fs::write(world.path().join("state/patient/0123456789abcdef/file"), "left").unwrap();
    let (_agent, address) = world.agent(&url, "none", &[]);
    assert_eq!(world.kept(), 0);
    // A program that leaves before its body is whole leaves nothing.
    let mut program = TcpStream::connect(address).unwrap();
    write!(program, "POST {url} HTTP/1.1\r\nHost: {}\r\nContent-Length: 10\r\n\r\nhello", world.app.address).unwrap();
    eventually("its body", || (world.kept() == 1).then_some(()));
    drop(program);
    eventually("its end", || (world.kept() == 0).then_some(()));
}

/// Below the folder for patient uploads, and for what the device knows, nothing gets on as long as there is a file `STALL`.
const STALLING_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void wait_for_disk(const char *path) {
    const char *stall = getenv("STALL");
    while (stall && strstr(path, "/state/") && access(stall, F_OK) == 0) usleep(10000);
}

int mkdir(const char *path, mode_t mode) {
    int (*real)(const char *, mode_t) = dlsym(RTLD_NEXT, "mkdir");
    wait_for_disk(path);
    return real(path, mode);
}

int open64(const char *path, int flags, ...) {
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (flags & O_CREAT) wait_for_disk(path);
    return real(path, flags, mode);
}
"#;

#[test]
fn a_disk_that_stalls_stops_nothing_but_the_patient_uploads() {
    let world = World::new();
    let (service, gateway) = (service(world.path(), &world.app), gateway(world.path(), &[]));
    let (source, shim) = (world.path().join("shim.c"), world.path().join("shim.so"));
    std::fs::write(&source, STALLING_DISK).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).status().unwrap();
    assert!(built.success());
    let (url, stall) = (format!("{}/up", service.url), world.path().join("stall"));
    let state = world.path().join("state/");
    let arguments =
        ["agent", "--relay", "laptop.toml", "--listen", "127.0.0.1:0", "--patient", &url, "--gateway", &gateway.url];
    let mut agent = hoop(world.path(), &arguments);
    agent.arg("--state").arg(&state).env("LD_PRELOAD", shim).env("STALL", &stall);
    let (_agent, agent) = start_agent(agent);
    noise_file(world.path(), "file", 1_000);
    let file = world.path().join("file");
    assert_eq!(post(agent, &file, &url, &[]).0, 202);
    // More than the agent has threads: some stall in the middle, others before they begin.
    for stalls_later in [false, true] {
        let posts: Vec<_> = (0..32)
            .map(|_| {
                let mut program = TcpStream::connect(agent).unwrap();
                let now = if stalls_later { "x" } else { "" };
                write!(
                    program,
                    "POST {url} HTTP/1.1\r\nHost: up\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{now}"
                )
                .unwrap();
                program
            })
            .collect();
        if stalls_later {
            eventually("their folders", || (world.kept() == posts.len()).then_some(()));
        }
        std::fs::write(&stall, "").unwrap();
        for mut program in &posts {
            program.write_all(if stalls_later { b"y" } else { b"xy" }).unwrap();
        }
        for _ in 0..100 {
            run(world.path(), &["agent", "status", "--agent", &agent.to_string()]).exits(0);
        }
        std::fs::remove_file(&stall).unwrap();
        for mut program in posts {
            let mut answer = String::new();
            program.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
        }
    }
    assert_eq!(world.kept(), 0);
    eventually("all of them", || (world.app.uploads().len() == 65).then_some(()));
}

/// Programs that have left wait for nothing, so that only a bound holds them.
#[test]
fn a_service_that_does_not_answer_has_its_share_and_keeps_no_other_waiting() {
    const BEYOND: usize = 10;
    let world = World::new();
    let (service, gateway) = (service(world.path(), &world.app), gateway(world.path(), &[]));
    noise_file(world.path(), "file", 1_000);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("http://{}/up", silent.local_addr().unwrap());
    let more = ["--patient", &format!("{}/up", service.url)];
    let (_agent, agent) = world.agent(&dead, &gateway.url, &more);
    let programs: Vec<_> = (0..64 + BEYOND)
        .map(|_| {
            let mut program = TcpStream::connect(agent).unwrap();
            write!(program, "POST {dead} HTTP/1.1\r\nHost: dead\r\nContent-Length: 1\r\n\r\nx").unwrap();
            program
        })
        .collect();
    // Those beyond the share are refused at once; all others wait.
    let mut refused = 0;
    eventually("the refusals", || {
        let answers = programs.iter().filter(|program| {
            let mut first = [0; 12];
            program.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            program.peek(&mut first).is_ok_and(|read| read == 12 && &first == b"HTTP/1.1 503")
        });
        refused = answers.count();
        (refused == BEYOND && world.kept() == 64).then_some(())
    });
    let told = run(world.path(), &["agent", "status", "--agent", &agent.to_string()]).exits(0);
    let (waiting, sending) = ("1 bytes, behind others to this service\n", "1 bytes, looking for its way");
    let count = |words: &str| told.out.matches(words).count();
    assert_eq!((count(&format!("  upload to {dead}: for ")), count(waiting), count(sending)), (64, 56, 8), "{told}");
    let json = run(world.path(), &["agent", "status", "--json", "--agent", &agent.to_string()]).exits(0).json();
    assert_eq!((&json["patient"][63]["stage"], &json["patient"][63]["bytes"]), (&"waiting".into(), &1.into()));
    drop(programs);
    let (status, receipt) = post(agent, &world.path().join("file"), &format!("{}/up", service.url), &[]);
    assert_eq!(status, 202, "{receipt}");
    assert_eq!(world.kept(), 64, "they go on although their programs have left");
}
