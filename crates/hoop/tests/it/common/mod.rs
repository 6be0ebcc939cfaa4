//! Real processes of `hoop`, a small web application, and a proxy that can break connections, all on loopback.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longer than anything here takes; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until the answer is there, at most [`PATIENCE`].
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A request as the application saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub line: String,
    pub head: String,
    pub body: Vec<u8>,
}

impl Seen {
    /// A header's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|own| own.eq_ignore_ascii_case(name));
        self.head.lines().find(named).and_then(|line| line.split_once(": ")).map(|(_, value)| value)
    }
}

/// A web application that knows nothing of Hoop. `/status/NNN` answers so; `/hoop/…` and `/.well-known/…` are not there.
pub struct App {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl App {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let log = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = log.clone();
                std::thread::spawn(move || serve(stream, &log));
            }
        });
        Self { address, seen }
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The uploads that it has taken so far.
    pub fn uploads(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Its one upload, once it is there.
    pub fn upload(&self) -> Seen {
        eventually("the application's upload", || self.uploads().pop())
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Seen>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let line = head.lines().next().unwrap().to_owned();
        let mut seen = Seen { line: line.clone(), head, body: Vec::new() };
        let len: usize = seen.field("content-length").map_or(0, |len| len.parse().unwrap());
        seen.body.resize(len, 0);
        if reader.read_exact(&mut seen.body).is_err() {
            return;
        }
        let target = line.split(' ').nth(1).unwrap();
        let hoop = target.starts_with("/hoop/") || target.starts_with("/.well-known/");
        let status = match target.strip_prefix("/status/").map(|rest| &rest[..3]) {
            _ if hoop => "404",
            Some(status) => status,
            None => "201",
        };
        if !hoop {
            log.lock().unwrap().push(seen);
        }
        let body = format!("{{\"saved\":{len}}}\n");
        let answer = format!(
            "HTTP/1.1 {status} Whatever\r\nContent-Type: application/json\r\nSet-Cookie: s=app-secret\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// `hoop`, with a state folder of its own and no gateway unless one is named. It begins with the widest umask there is: what it writes is private of itself.
pub fn hoop(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_hoop")]);
    command.args(arguments).current_dir(folder).env("HOOP_STATE", folder.join("state")).env("HOOP_GATEWAY", "none");
    command.stdin(Stdio::null());
    command
}

/// What a run of `hoop` came to.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The JSON object on the standard output.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The same run, which must have ended with `code`.
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {}\n--- out\n{}--- err\n{}", self.code, self.out, self.err)
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `hoop` to its end.
pub fn run(folder: &Path, arguments: &[&str]) -> Ran {
    hoop(folder, arguments).output().unwrap().into()
}

/// Posts a body as `curl --data-binary` does; returns the answer.
pub fn post(url: &str, body: &[u8]) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (authority, target) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    write!(
        stream,
        "POST /{target} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Runs curl, for a minute at most.
pub fn curl(arguments: &[&str]) -> Ran {
    Command::new("curl").args(["--silent", "--max-time", "60"]).args(arguments).output().unwrap().into()
}

/// A server process, killed when dropped.
pub struct Server {
    child: Child,
    pub url: String,
    log: PathBuf,
}

impl Server {
    /// Begins a role, and waits until it says where it listens.
    pub fn start(folder: &Path, name: &str, arguments: &[&str]) -> Self {
        Self::start_with(folder, name, arguments, &[])
    }

    /// The same, with more in its environment.
    pub fn start_with(folder: &Path, name: &str, arguments: &[&str], environment: &[(&str, &Path)]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let mut command = hoop(folder, arguments);
        command.env("HOOP_LOG", "trace,mio=off").envs(environment.iter().copied()).stdout(Stdio::piped());
        let mut child = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").map(|url| url.trim_end_matches(", UDP and TCP").to_owned());
        let url = url.unwrap_or_else(|| panic!("{name} said `{line}`: {}", std::fs::read_to_string(&log).unwrap()));
        Self { child, url, log }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Everything that it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has logged this: lines are written by a thread of their own.
    pub fn has_logged(&self, words: &str) {
        eventually(words, || self.log().contains(words).then_some(()));
    }

    /// Asks it to stop (SIGTERM) and returns its exit code.
    pub fn stop(&mut self) -> i32 {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = eventually("the server's end", || self.child.try_wait().unwrap());
        status.code().unwrap_or(-1)
    }
}

impl Drop for Server {
    /// As by `kill -9`.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody listens on: it was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A gateway on any port, which may deliver on loopback.
pub fn gateway(folder: &Path, more: &[&str]) -> Server {
    let fixed = ["gateway", "--listen", "127.0.0.1:0", "--spool", "spool", "--no-mdns", "--allow-dest", "127.0.0.1"];
    Server::start(folder, "gateway", &[&fixed[..], more].concat())
}

/// The same at that port.
pub fn gateway_at(folder: &Path, port: u16) -> Server {
    let listen = format!("127.0.0.1:{port}");
    let fixed = ["gateway", "--listen", &listen, "--spool", "spool", "--no-mdns", "--allow-dest", "127.0.0.1"];
    Server::start(folder, "gateway", &fixed)
}

/// A service in front of `app`, whose origin is its own address.
pub fn service(folder: &Path, app: &App) -> Server {
    let port = free_port();
    service_at(folder, app, port, &format!("http://127.0.0.1:{port}"), &[])
}

/// The same, at that port, with that origin and more flags.
pub fn service_at(folder: &Path, app: &App, port: u16, origin: &str, more: &[&str]) -> Server {
    service_with(folder, &app.origin(), port, origin, more)
}

/// A service at that port in front of the application at that origin.
pub fn service_before(folder: &Path, upstream: &str, port: u16) -> Server {
    service_with(folder, upstream, port, &format!("http://127.0.0.1:{port}"), &[])
}

fn service_with(folder: &Path, upstream: &str, port: u16, origin: &str, more: &[&str]) -> Server {
    if !folder.join("kws").exists() {
        run(folder, &["keygen", "-o", "kws"]).exits(0);
    }
    let listen = format!("127.0.0.1:{port}");
    let fixed = ["service", "--keys", "kws", "--state-dir", "service", "--listen", &listen, "--upstream", upstream];
    Server::start(folder, "service", &[&fixed[..], &["--origin", origin], more].concat())
}

/// A TCP proxy. Its first connections each break after so many bytes towards the target; later ones pass, until it is shut. Or all of them stand
/// still once so many bytes went, so that what a test does next is done in the middle of an upload, however slow the test is.
pub struct Breaker {
    pub address: SocketAddr,
    gate: Arc<Gate>,
}

/// What the connections of a [`Breaker`] share.
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    passed: u64,
    /// How many bytes may pass in all before the rest waits.
    most: u64,
    shut: bool,
}

impl Gate {
    /// Waits until a part of `len` bytes may pass, and returns its length; `None` if nothing passes any more.
    fn admit(&self, len: usize) -> Option<usize> {
        let mut state = self.state.lock().unwrap();
        loop {
            if state.shut {
                return None;
            }
            let len = (len as u64).min(state.most - state.passed);
            if len > 0 {
                state.passed += len;
                return Some(usize::try_from(len).unwrap());
            }
            state = self.changed.wait(state).unwrap();
        }
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Breaker {
    /// In front of the server at `url`; its first connections break after that many bytes each.
    pub fn before(url: &str, limits: &[u64]) -> Self {
        Self::new(url, limits, u64::MAX)
    }

    /// In front of the server at `url`; what comes after so many bytes in all waits until the proxy is [released](Self::release) or
    /// [shut](Self::shut).
    pub fn holding_after(bytes: u64, url: &str) -> Self {
        Self::new(url, &[], bytes)
    }

    fn new(url: &str, limits: &[u64], most: u64) -> Self {
        let target: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = GateState { passed: 0, most, shut: false };
        let gate = Arc::new(Gate { state: Mutex::new(state), changed: Condvar::new() });
        let theirs = gate.clone();
        let mut limits: VecDeque<u64> = limits.iter().copied().collect();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if theirs.state.lock().unwrap().shut {
                    continue;
                }
                let limit = limits.pop_front().unwrap_or(u64::MAX);
                let gate = theirs.clone();
                std::thread::spawn(move || relay(&client, target, limit, &gate));
            }
        });
        Self { address, gate }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes that went towards the target.
    pub fn passed(&self) -> u64 {
        self.gate.state.lock().unwrap().passed
    }

    /// Waits until it holds back what comes: the bytes that may pass did.
    pub fn holds(&self) {
        eventually("as many bytes as may pass", || {
            let state = self.gate.state.lock().unwrap();
            (state.passed == state.most).then_some(())
        });
    }

    /// Holds nothing back any more.
    pub fn release(&self) {
        self.gate.change(|state| state.most = u64::MAX);
    }

    /// Lets nobody through any more: what it held back is lost, and connections break at their next byte.
    pub fn shut(&self) {
        self.gate.change(|state| state.shut = true);
    }
}

fn relay(client: &TcpStream, target: SocketAddr, limit: u64, gate: &Gate) {
    let Ok(server) = TcpStream::connect(target) else { return };
    let (mut up_from, mut up_to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut down_from, mut down_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let down = std::thread::spawn(move || {
        let _ = std::io::copy(&mut down_from, &mut down_to);
        let _ = down_to.shutdown(std::net::Shutdown::Write);
    });
    let (mut left, mut piece) = (limit, [0; 16 * 1024]);
    'passing: while let Ok(len @ 1..) = up_from.read(&mut piece) {
        let mut rest = &piece[..len.min(usize::try_from(left).unwrap_or(usize::MAX))];
        left -= rest.len() as u64;
        while !rest.is_empty() {
            let Some(len) = gate.admit(rest.len()) else {
                let _ = client.shutdown(std::net::Shutdown::Both);
                break 'passing;
            };
            if up_to.write_all(&rest[..len]).is_err() {
                break 'passing;
            }
            rest = &rest[len..];
        }
        if left == 0 {
            let _ = client.shutdown(std::net::Shutdown::Both);
            break;
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Write);
    let _ = down.join();
}

/// A server that reads a head and gives every request the same answer.
pub fn always(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") {
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                let _ = stream.write_all(answer.as_bytes());
                // The rest is taken and thrown away, so that the answer is not lost in a reset.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            });
        }
    });
    address
}

/// Bytes that repeat nowhere soon, the same for the same seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A file of such bytes.
pub fn noise_file(folder: &Path, name: &str, len: usize) -> Vec<u8> {
    let bytes = noise(len, len as u64);
    std::fs::write(folder.join(name), &bytes).unwrap();
    bytes
}

/// Whether `needle` stands in `haystack`.
pub fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || haystack.windows(needle.len()).any(|window| window == needle)
}

/// Whether a gateway that says this of an upload has all of it: it may have gone on to deliver it before it is asked.
pub fn has_it_all(state: &serde_json::Value) -> bool {
    ["stored", "delivering", "received", "accepted"].map(Into::into).contains(state)
}
