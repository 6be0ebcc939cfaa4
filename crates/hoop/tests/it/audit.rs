//! What operators do is in the log, a line an act (target `audit`).

use crate::common::{curl, free_port, gateway};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

#[test]
fn each_press_of_the_owners_buttons_is_a_line_in_the_log() {
    let world = tempfile::tempdir().unwrap();
    let port = free_port();
    let admin = format!("127.0.0.1:{port}");
    let gateway = gateway(world.path(), &["--admin", &admin]);
    let press = |button: &str, more: &[&str]| {
        let url = format!("http://{admin}{button}");
        let posted = curl(&[&["-X", "POST", "-o", "/dev/null", "-w", "%{http_code}"], more, &[&url]].concat());
        posted.out
    };
    let id = "id=00112233445566778899aabbccddeeff";
    assert_eq!(press("/pause", &[]), "303");
    assert_eq!(press("/resume", &[]), "303");
    assert_eq!(press("/drop", &["-d", id]), "404");
    assert_eq!(press("/drop", &["-d", "device=192.0.2.7"]), "303");
    assert_eq!(press("/pause", &["-H", "Origin: https://evil.example"]), "403");
    gateway.has_logged("origin-forbidden");
    let log = gateway.log();
    let acts: Vec<_> = log.lines().filter(|line| line.contains(" audit: ")).collect();
    let known = [
        "act=\"pause\" who=\"owner's page\" what=\"all deliveries\" uploads=0 outcome=\"done\"",
        "act=\"resume\" who=\"owner's page\" what=\"all deliveries\" uploads=0 outcome=\"done\"",
        "act=\"drop\" who=\"owner's page\" what=\"upload 00112233445566778899aabbccddeeff\" uploads=0 outcome=\"upload-unknown\"",
        "act=\"drop\" who=\"owner's page\" what=\"device 192.0.2.7\" uploads=0 outcome=\"done\"",
        "act=\"pause\" who=\"owner's page\" what=\"\" uploads=0 outcome=\"origin-forbidden\"",
    ];
    assert_eq!(acts.len(), known.len(), "{acts:#?}");
    for (line, known) in acts.iter().zip(known) {
        assert!(line.contains(known), "{line}\nis not\n{known}");
    }
}

#[test]
fn refused_heads_are_no_more_lines_than_a_minute_has() {
    let world = tempfile::tempdir().unwrap();
    let gateway = gateway(world.path(), &[]);
    for _ in 0..150 {
        let mut stream = TcpStream::connect(("127.0.0.1", gateway.port())).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    gateway.has_logged("more heads are refused than are written down in this minute");
    let log = gateway.log();
    let lines = log.matches("a request's head is refused").count();
    // A minute may have ended meanwhile.
    assert!((60..=120).contains(&lines), "{lines}");
}
