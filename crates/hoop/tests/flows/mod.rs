//! A relay as a process, a device that it knows, and what is run beside them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

pub fn hoop(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hoop"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).env_remove("HOOP_LOG").env_remove("HOOP_RELAY");
    // Where the agent of whoever runs the tests may be.
    command.env_remove("XDG_RUNTIME_DIR");
    command
}

/// A run to its end: exit code, standard output and standard error.
pub fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = hoop(folder, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// A process that is killed with this.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes a certificate and its key.
pub fn sign(folder: &Path) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), signed.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), signed.signing_key.serialize_pem()).unwrap();
}

/// A relay, and a device that may come: `laptop.toml`.
pub fn relay(folder: &Path) -> Running {
    relay_with(folder, &[])
}

/// The same, with more flags for the relay.
pub fn relay_with(folder: &Path, flags: &[&str]) -> Running {
    start_relay(folder, flags, Stdio::inherit())
}

/// The same, and what it logs.
pub fn relay_and_log(folder: &Path, flags: &[&str]) -> (Running, BufReader<ChildStderr>) {
    let mut relay = start_relay(folder, flags, Stdio::piped());
    let log = relay.0.stderr.take().unwrap();
    (relay, BufReader::new(log))
}

fn start_relay(folder: &Path, flags: &[&str], log: Stdio) -> Running {
    sign(folder);
    std::fs::write(folder.join("devices.toml"), "").unwrap();
    let arguments = "relay --listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem --devices devices.toml";
    let mut relay = hoop(folder, &[&arguments.split(' ').collect::<Vec<_>>(), flags].concat());
    let mut relay = Running(relay.stdout(Stdio::piped()).stderr(log).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(relay.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().strip_prefix("listening on 127.0.0.1:").unwrap().split(',').next().unwrap();
    let (code, told, error) =
        run(folder, &["introduce", &format!("localhost:{port}"), "--devices", "devices.toml", "--cert", "cert.pem"]);
    assert_eq!(code, 0, "{error}");
    std::fs::write(folder.join("laptop.toml"), format!("addresses = [\"127.0.0.1\"]\n{told}")).unwrap();
    relay
}

/// The first line that contains this.
pub fn line_with(lines: &mut BufReader<ChildStderr>, words: &str) -> String {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "`{words}` is not said:\n{all}");
        if line.contains(words) {
            return line;
        }
        all += &line;
    }
}

/// An agent of that device, and where it listens.
pub fn agent(folder: &Path, flags: &[&str]) -> (Running, SocketAddr) {
    start_agent(hoop(folder, &[&["agent", "--relay", "laptop.toml", "--listen", "127.0.0.1:0"], flags].concat()))
}

/// The same, as a command that is ready.
pub fn start_agent(mut agent: Command) -> (Running, SocketAddr) {
    let mut agent = Running(agent.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(agent.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap().parse().unwrap();
    (agent, address)
}

/// A web server: it is given the path and the head of each request, and gives the whole answer.
pub fn web(answer: impl Fn(&str, &str) -> String + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head);
                let path = head.split(' ').nth(1).unwrap_or_default();
                let _ = stream.write_all(answer(path, &head).as_bytes());
            });
        }
    });
    address
}
