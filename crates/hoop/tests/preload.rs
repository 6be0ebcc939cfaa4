//! What is loaded into programs (`preload/preload.c`), and nothing else of Hoop: a program in C, an agent that echoes, and a network without links.
#![allow(missing_docs)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library that `hoop run` carries within itself.
const LIBRARY: &str = concat!(env!("OUT_DIR"), "/preload.so");

/// The program of all these tests, built once.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload-program");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/preload/program.c");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Wextra", "-pthread", "-include", "stdbool.h", "-o"]);
        let built = cc.arg(&out).arg(source).status();
        assert!(built.unwrap().success());
        out
    })
}

/// What ends the agent: the last in its queue.
const END: &str = "end\n";

/// Takes connections until the end, and sends back what comes. Returns where each wanted to go.
fn echo(listener: &UnixListener) -> Vec<String> {
    let mut asked = Vec::new();
    for connection in listener.incoming().map_while(Result::ok) {
        let mut back = connection.try_clone().unwrap();
        let (mut reader, mut line) = (BufReader::new(connection), String::new());
        reader.read_line(&mut line).unwrap();
        if line == END {
            return asked;
        }
        asked.push(line);
        std::thread::spawn(move || {
            let mut some = [0; 64];
            while let Ok(read @ 1..) = reader.read(&mut some) {
                if back.write_all(&some[..read]).is_err() {
                    return;
                }
            }
        });
    }
    unreachable!("a listener goes on")
}

/// Runs one way of the program to its end, without a network, and returns where it was carried to.
fn run(way: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent");
    let listener = UnixListener::bind(&path).unwrap();
    let agent = std::thread::spawn(move || echo(&listener));
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg("env").arg(format!("LD_PRELOAD={LIBRARY}"));
    command.arg(format!("HOOP_RUN_SOCKET={}", path.display())).arg(program()).arg(way);
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{way}: {} {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    UnixStream::connect(&path).unwrap().write_all(END.as_bytes()).unwrap();
    agent.join().unwrap()
}

/// Where the program goes, as the agent is told.
const SOMEWHERE: &str = "10.9.1.1:80\n";

#[test]
fn link_local_addresses_of_both_families_are_left_alone() {
    assert_eq!(run("link-local"), [""; 0]);
}

#[test]
fn a_connection_that_is_opened_by_sending_is_carried() {
    assert_eq!(run("sendto"), [SOMEWHERE]);
    assert_eq!(run("sendmsg"), [SOMEWHERE; 2]);
    assert_eq!(run("fastopen-connect"), [SOMEWHERE]);
}

#[test]
fn children_of_a_program_with_threads_connect_and_do_not_hang() {
    assert!(run("fork").len() >= 300);
}

#[test]
fn a_signals_handler_may_connect_while_its_program_does() {
    assert!(run("signals").len() >= 3000);
}

#[test]
fn a_copied_or_inherited_descriptor_knows_its_peer() {
    assert_eq!(run("dup"), [SOMEWHERE]);
}

#[test]
fn timeouts_and_kind_of_a_socket_outlive_its_connecting() {
    assert_eq!(run("options"), [SOMEWHERE]);
}
