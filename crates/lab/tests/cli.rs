//! The command line: what it answers, and the codes it ends with.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

#[test]
fn wrong_usage_is_refused_and_the_argument_named() {
    for (arguments, code, words) in [
        (&["relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--up", "30 Mbps"][..], 2, "--up <RATE>"),
        (&["relay", "--listen", "nowhere", "--to", "127.0.0.1:1"], 2, "--listen <ADDRESS:PORT>"),
        (&["relay", "--listen", "192.0.2.1:1", "--to", "127.0.0.1:1"], 4, "--listen 192.0.2.1:1"),
        (&["relay", "--listen", "127.0.0.1:0"], 2, "--to <ADDRESS:PORT>"),
        (&["check", "--fast"], 2, "--fast"),
        (&["run", "lab.toml"], 2, "COMMAND"),
    ] {
        let output = hoop_lab(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(words), "{arguments:?}: {text}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    }
}

#[test]
fn run_ends_with_the_commands_code_or_with_125_if_it_never_started() {
    if let Err(why_not) = hoop_lab::enter() {
        assert!(std::env::var_os("HOOP_LAB_REQUIRED").is_none(), "{why_not}");
        return eprintln!("skipped: {why_not}");
    }
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.toml");
    let bad = folder.path().join("bad.toml");
    fs::write(&good, "hosts = [{ name = \"a\" }, { name = \"b\", names = [\"photos.example\"] }]\n").unwrap();
    fs::write(&bad, "hosts = [{ name = \"a\", forwrading = true }]\n").unwrap();
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    for (arguments, code, words) in [
        (&["run", good, "--", "true"][..], 0, ""),
        (&["run", good, "--", "sh", "-c", "exit 7"], 7, ""),
        (&["run", good, "--", "sh", "-c", "kill -TERM $$"], 128 + 15, ""),
        (&["run", good, "--host", "c", "--", "true"], 125, "--host: there is no `c`; there is a, b"),
        (&["run", good, "--", "/no/such/program"], 125, "the command could not be started"),
        (&["run", bad, "--", "true"], 125, "forwrading"),
        (&["run", "/no/such.toml", "--", "true"], 125, "/no/such.toml"),
    ] {
        let output = hoop_lab(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(words), "{arguments:?}: {text}");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    }
}

#[test]
fn relay_says_where_it_listens_and_relays() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = target.local_addr().unwrap().to_string();
    let mut relay = Command::new(env!("CARGO_BIN_EXE_hoop-lab"))
        .args([
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--up",
            "1.15Mbit",
            "--down",
            "12Mbit",
            "--delay",
            "1ms",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut byte = [0];
    while !said.ends_with('\n') {
        relay.stderr.as_mut().unwrap().read_exact(&mut byte).unwrap();
        said.push(byte[0].into());
    }
    let address = said.split_whitespace().nth(2).expect("hoop-lab: relaying ADDRESS to ADDRESS").to_owned();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"hello").unwrap();
    let mut received = [0; 5];
    target.accept().unwrap().0.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"hello");
    relay.kill().unwrap();
    relay.wait().unwrap();
}

fn hoop_lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hoop-lab")).args(arguments).output().unwrap()
}
