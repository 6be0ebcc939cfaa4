//! `hoop agent` as somebody types it for the first time, with curl and wget behind it; all on loopback.
#![allow(missing_docs)]

mod flows;

use flows::{Running, agent, hoop, line_with, relay_and_log, relay_with, run};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A web server that answers each request with its path.
fn web() -> SocketAddr {
    flows::web(|path, _| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{path}", path.len())
    })
}

/// A program in a shell that has taken what `hoop agent env` prints. What it prints itself.
fn in_shell(folder: &Path, agent: SocketAddr, program: &str) -> String {
    let (code, environment, error) = run(folder, &["agent", "env", "--agent", &agent.to_string()]);
    assert_eq!(code, 0, "{error}");
    // What is on loopback would go straight.
    let script = format!("{environment}\nunset no_proxy NO_PROXY\n{program}");
    let output = Command::new("sh").args(["-ec", &script]).current_dir(folder).output().unwrap();
    let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program}: {}: {error}", output.status);
    told.into_owned()
}

#[test]
fn programs_of_a_shell_with_its_environment_go_through_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay_with(folder.path(), &["--allow", "127.0.0.1"]);
    let ((_agent, address), web) = (agent(folder.path(), &[]), web());
    for program in [
        "curl -fsS -v http://WEB/path 2>curl.txt && grep -qi \"via: 1.1 hoop\" curl.txt",
        "curl -fsS --proxytunnel http://WEB/path",
        "curl -fsS --proxy $all_proxy http://WEB/path",
        "wget -qO- http://WEB/path",
    ] {
        let told = in_shell(folder.path(), address, &program.replace("WEB", &web.to_string()));
        assert_eq!(told, "/path", "{program}");
    }
}

#[test]
fn a_connection_is_that_of_the_standard_input_and_output() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay_with(folder.path(), &["--allow", "127.0.0.1"]);
    let ((_agent, address), web) = (agent(folder.path(), &[]), web());
    let at = address.to_string();
    let connect = |host: &str, port: u16| {
        let mut connect = hoop(folder.path(), &["agent", "connect", "--agent", &at, host, &port.to_string()]);
        let mut connect = connect.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _ = connect.stdin.take().unwrap().write_all(b"GET /path HTTP/1.1\r\n\r\n");
        let ended = connect.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ended.status.code(), text(ended.stdout), text(ended.stderr))
    };
    let (code, told, error) = connect("127.0.0.1", web.port());
    assert!(code == Some(0) && told.ends_with("\r\n\r\n/path"), "{told}: {error}");
    for (host, port, code, words) in [
        ("10.0.0.1", 80, 7, "no connection to 10.0.0.1:80.\n  Cause: the relay does not go there"),
        ("::1", 80, 7, "no connection to [::1]:80."),
        ("a b", 80, 2, "a b is no host"),
    ] {
        let (ended, _, error) = connect(host, port);
        assert!(ended == Some(code) && error.contains(words), "{host}: {ended:?}: {error}");
    }
}

#[test]
fn what_comes_of_a_connection_can_be_read_while_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay_with(folder.path(), &["--allow", "127.0.0.1"]);
    let (_agent, agent) = agent(folder.path(), &[]);
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut one, _) = echo.accept().unwrap();
        let mut bytes = [0; 64];
        while let Ok(len @ 1..) = one.read(&mut bytes) {
            one.write_all(&bytes[..len]).unwrap();
        }
    });
    let (at, port) = (agent.to_string(), port.to_string());
    let mut connect = hoop(folder.path(), &["agent", "connect", "--agent", &at, "127.0.0.1", &port]);
    let mut connect = connect.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut says, mut hears) = (connect.stdin.take().unwrap(), connect.stdout.take().unwrap());
    for word in [b"one", b"two"] {
        says.write_all(word).unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        // A reader whose pipe is locked cannot even be killed.
        let reading = std::thread::spawn(move || {
            let mut bytes = [0; 3];
            let read = hears.read_exact(&mut bytes);
            let _ = told.send(read.map(|()| bytes));
            hears
        });
        let came = heard.recv_timeout(Duration::from_secs(20)).expect("it comes while the connection is open");
        assert_eq!(came.unwrap(), *word);
        hears = reading.join().unwrap();
    }
    drop(says);
    assert!(connect.wait().unwrap().success());
}

/// A command of a session whose own folder is this.
fn in_session(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = hoop(folder, arguments);
    command.env("XDG_RUNTIME_DIR", folder);
    command
}

/// An agent of a session, and what it says.
fn agent_of_session(folder: &Path) -> (Running, BufReader<std::process::ChildStderr>) {
    let mut agent = in_session(folder, &["agent", "--relay", "laptop.toml", "--listen", "127.0.0.1:0"]);
    let mut agent = Running(agent.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(agent.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    let lines = BufReader::new(agent.0.stderr.take().unwrap());
    (agent, lines)
}

#[test]
fn without_a_relay_a_run_is_carried_by_the_agent_and_ends_as_its_program() {
    const ASKS: [&str; 3] = ["bash", "-c", "exec 3<>/dev/tcp/10.9.1.1/8000; exit 9"];
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay_with(folder.path(), &[]);
    let asks = |flags: &[&str]| {
        let done = in_session(folder.path(), &[&["run"], flags, &["--"], &ASKS[..]].concat()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, error) = asks(&[]);
    assert_eq!(code, Some(2));
    assert!(error.contains("--relay names no file, and no `hoop agent` of yours is running"), "{error}");
    // The second finds what the first left, which was killed.
    for _ in 0..2 {
        let (agent, mut lines) = agent_of_session(folder.path());
        let (code, error) = asks(&[]);
        assert!(code == Some(9) && error.contains("Network is unreachable"), "{code:?}: {error}");
        line_with(&mut lines, "10.9.1.1:8000: the relay does not go there");
        drop(agent);
        assert_eq!(asks(&[]).0, Some(2), "it is gone");
    }
    // Where the folder cannot be used, others are served all the same.
    let mut without = in_session(folder.path(), &["agent", "--relay", "laptop.toml", "--listen", "127.0.0.1:0"]);
    without.env("XDG_RUNTIME_DIR", folder.path().join("nothing")).stderr(Stdio::piped());
    let mut without = Running(without.stdout(Stdio::null()).spawn().unwrap());
    line_with(&mut BufReader::new(without.0.stderr.take().unwrap()), "`hoop run` is not served: cannot listen at");
    assert!(without.0.try_wait().unwrap().is_none());
    let (agent, mut lines) = agent_of_session(folder.path());
    let (_other, mut others) = agent_of_session(folder.path());
    line_with(&mut others, "another agent serves `hoop run`");
    asks(&[]);
    line_with(&mut lines, "10.9.1.1:8000");
    drop(agent);
    for flags in [&["--interface", "lo"][..], &["--give-up-after", "9s"]] {
        let (code, error) = asks(flags);
        assert!(code == Some(2) && error.contains("--relay"), "{error}");
    }
}

#[test]
fn programs_of_another_user_are_refused_unless_they_are_named() {
    let as_nobody = |folder: &Path, agent: SocketAddr, url: &str| {
        let mut curl = Command::new("setpriv");
        curl.args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl", "-sS", "--proxy"]);
        curl.arg(format!("http://{agent}")).arg(url).current_dir(folder).output().unwrap()
    };
    let allowed = Command::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return println!("not tested: only root can run a program as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay_with(folder.path(), &["--allow", "127.0.0.1"]);
    let url = format!("http://{}/path", web());
    for (flags, served) in [(&[][..], false), (&["--serve-user", "nobody"], true)] {
        let (_agent, address) = agent(folder.path(), flags);
        let ended = as_nobody(Path::new("/"), address, &url);
        assert_eq!(ended.status.success(), served, "{flags:?}: {}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(ended.stdout == b"/path", served);
    }
    let (code, _, error) = run(folder.path(), &["agent", "--relay", "laptop.toml", "--serve-user", "no-such-user"]);
    assert!(code == 2 && error.contains("there is no such user"), "{error}");
}

#[test]
fn without_rights_there_is_no_tun_and_one_sentence_says_why() {
    let folder = tempfile::tempdir().unwrap();
    drop(relay_with(folder.path(), &[]));
    let agent = hoop(folder.path(), &["agent", "--relay", "laptop.toml", "--listen", "127.0.0.1:0", "--tun"]);
    // Root's rights are those of its capabilities; whoever is not root has none already.
    let mut without = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        without.args(["--bounding-set=-all", "--inh-caps=-all"]);
    }
    without.arg(agent.get_program()).args(agent.get_args()).current_dir(folder.path());
    let ended = without.output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{error}");
    let sentence = "Error: cannot take in connections by a TUN interface.\n  Cause: it takes root, or CAP_NET_ADMIN.\n";
    assert_eq!(error, sentence);
}

#[test]
fn the_status_says_what_is_carried_as_lines_and_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let relay = relay_with(folder.path(), &["--allow", "127.0.0.1"]);
    let (agent, address) = agent(folder.path(), &[]);
    let at = ["--agent", &address.to_string()];
    let status = |more: &[&str]| run(folder.path(), &[&["agent", "status"], &at[..], more].concat());
    let (code, told, error) = status(&[]);
    assert_eq!((code, &error[..]), (0, ""));
    assert!(told.starts_with(&format!("hoop agent at {address}: by localhost:")), "{told}");
    assert!(told.ends_with(", nothing to carry\n"), "{told}");
    // And below the uploads, for the session whose agent it is.
    let (_agent, _) = agent_of_session(folder.path());
    let mut everything = in_session(folder.path(), &["status"]);
    let everything = everything.env("TMPDIR", folder.path()).env("XDG_STATE_HOME", folder.path()).output().unwrap();
    let told = String::from_utf8(everything.stdout).unwrap();
    let (uploads, agents) = told.split_once("\n\n").unwrap_or_else(|| panic!("{told}"));
    assert_eq!(uploads, "No uploads yet.");
    assert!(agents.starts_with("hoop agent at 127.0.0.1:") && agents.ends_with(", nothing to carry\n"), "{agents}");
    drop(relay);
    let url = "http://192.0.2.1/";
    let curl =
        Command::new("curl").args(["-sS", "--proxy", &format!("http://{address}"), url]).stdout(Stdio::null()).spawn();
    let _curl = Running(curl.unwrap());
    let lines = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (_, told, _) = status(&[]);
        told.contains("192.0.2.1:80: for ").then_some(told)
    });
    let lines = lines.expect("the request is listed");
    assert!(lines.contains(", not reached for "), "{lines}");
    let (code, json, _) = status(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json["connections"][0]["destination"].as_str()), (0, Some("192.0.2.1:80")));
    drop(agent);
    let (code, told, error) = status(&[]);
    assert_eq!((code, &told[..]), (7, ""));
    assert!(error.contains(&format!("no agent answers at {address}")), "{error}");
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    drop(relay_with(folder.path(), &[]));
    for (arguments, code, words) in [
        (&["agent"][..], 2, "--relay"),
        (&["agent", "--relay", "laptop.toml", "--listen", "0.0.0.0:4673"], 2, "for this machine alone"),
        (&["agent", "--relay", "devices.toml"], 3, "is not a file that `hoop introduce` made"),
        (&["agent", "--relay", "laptop.toml", "--listen", "127.0.0.1:0", "--interface", "none0"], 2, "none0"),
        (&["agent", "--relay", "laptop.toml", "--give-up-after", "soon"], 2, "soon"),
    ] {
        let (ended, _, error) = run(folder.path(), arguments);
        assert!(ended == code && error.contains(words), "{arguments:?}: {ended}: {error}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let (code, _, error) = run(folder.path(), &["agent", "--relay", "laptop.toml", "--listen", &listen]);
    assert!(code == 1 && error.contains(&format!("cannot listen on {listen}")), "{code}: {error}");
}

/// The first line about access, as JSON.
fn access(log: &mut BufReader<std::process::ChildStderr>) -> serde_json::Value {
    let line = line_with(log, "\"target\":\"access\"");
    serde_json::from_str::<serde_json::Value>(&line).unwrap()["fields"].take()
}

#[test]
fn a_relay_that_is_told_so_logs_who_went_where_and_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--allow", "127.0.0.1", "--access-log", "--log-json"];
    let (_relay, mut log) = relay_and_log(folder.path(), &flags);
    let ((_agent, address), web) = (agent(folder.path(), &[]), web());
    let introduced: toml::Table = std::fs::read_to_string(folder.path().join("laptop.toml")).unwrap().parse().unwrap();
    let device = introduced["host"].as_str().unwrap();
    let curl = |arguments: &str| {
        in_shell(folder.path(), address, &format!("curl -sS {}", arguments.replace("WEB", &web.to_string())))
    };
    curl("http://WEB/path?token=secret");
    let line = access(&mut log);
    assert_eq!((line["kind"].as_str(), line["device"].as_str()), (Some("exchange"), Some(device)));
    let to = format!("http://{web}/path");
    assert_eq!((line["method"].as_str(), line["to"].as_str()), (Some("GET"), Some(&to[..])), "without its query");
    assert_eq!((line["status"].as_u64(), line["end"].as_str()), (Some(200), Some("whole")));
    let (received, sent) = (line["received"].as_u64().unwrap(), line["sent"].as_u64().unwrap());
    assert!(received > 0 && sent > "/path?token=secret".len() as u64, "{line}");
    curl("--data body http://WEB/path");
    let line = access(&mut log);
    assert_eq!((line["kind"].as_str(), line["method"].as_str()), (Some("upload"), Some("POST")));
    assert_eq!((line["status"].as_u64(), line["end"].as_str()), (Some(200), Some("whole")));
    curl("--proxytunnel http://WEB/path");
    let line = access(&mut log);
    assert_eq!((line["kind"].as_str(), line["to"].as_str()), (Some("connection"), Some(&web.to_string()[..])));
    assert!(line["method"].is_null() && line["status"].is_null(), "{line}");
    assert_eq!((line["sent"].as_u64() > Some(0), line["end"].as_str()), (true, Some("whole")));
    curl("http://10.0.0.1/");
    let line = access(&mut log);
    assert_eq!((line["to"].as_str(), line["end"].as_str()), (Some("http://10.0.0.1/"), Some("0x101")));
    assert!(line["status"].is_null(), "{line}");
    // A device may have thousands refused in a second.
    curl("--output /dev/null http://10.0.0.1/[1-130]");
    curl("http://WEB/path");
    let (mut refused, mut more) = (1, 0);
    loop {
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        refused += usize::from(line.contains("http://10.0.0.1/"));
        more += usize::from(line.contains("more of a device's flows end at once"));
        if line.contains(&to) {
            break;
        }
    }
    assert_eq!((refused, more), (120, 1));
}

#[test]
fn what_a_relay_carries_when_it_is_stopped_is_logged_as_ended_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let (relay, mut log) = relay_and_log(folder.path(), &["--allow", "127.0.0.1", "--access-log", "--log-json"]);
    let (_agent, address) = agent(folder.path(), &[]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    let mut program = std::net::TcpStream::connect(address).unwrap();
    program.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).unwrap();
    let _accepted = silent.accept().unwrap();
    let stopped = Command::new("kill").args(["-TERM", &relay.0.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let line = access(&mut log);
    assert_eq!((line["to"].as_str(), line["end"].as_str()), (Some(&to.to_string()[..]), Some("relay")));
}

#[test]
fn a_relay_writes_down_nothing_of_where_devices_go_unless_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let (relay, mut log) = relay_and_log(folder.path(), &["--allow", "127.0.0.1", "--log-json"]);
    let ((_agent, address), web) = (agent(folder.path(), &[]), web());
    in_shell(folder.path(), address, &format!("curl -sS http://{web}/path"));
    let stopped = Command::new("kill").args(["-TERM", &relay.0.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let mut all = String::new();
    log.read_to_string(&mut all).unwrap();
    assert!(!all.contains("/path") && !all.contains(&web.to_string()), "{all}");
}

/// A destination takes the end of a connection for the end of what is sent: an upload by FTP, or to a log.
#[test]
fn a_part_of_an_upload_never_ends_as_all_of_it_whichever_end_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for (stops_relay, signal) in [(true, "KILL"), (true, "TERM"), (false, "TERM")] {
        let relay = relay_with(folder.path(), &["--allow", "127.0.0.1"]);
        let (agent, address) = agent(folder.path(), &[]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let mut programs = Vec::new();
        for _ in 0..5 {
            let mut program = TcpStream::connect(address).unwrap();
            write!(program, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
            program.write_all(&[7; 50_000]).unwrap();
            let (mut destination, _) = listener.accept().unwrap();
            destination.read_exact(&mut [0; 1_000]).unwrap();
            programs.push((program, destination));
        }
        let stopped = if stops_relay { relay.0.id() } else { agent.0.id() };
        let kill = Command::new("kill").args([format!("-{signal}"), stopped.to_string()]).status().unwrap();
        assert!(kill.success());
        for (_program, mut destination) in programs {
            destination.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let read = destination.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
            assert_eq!(read, Err(ErrorKind::ConnectionReset), "{stops_relay}, {signal}");
        }
    }
}
