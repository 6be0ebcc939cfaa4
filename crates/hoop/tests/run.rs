//! `hoop introduce`, `hoop relay` and `hoop run` as somebody types them for the first time, all on loopback. Nothing here leaves the machine: what is not loopback goes to the
//! relay, which goes nowhere.
#![allow(missing_docs)]

mod flows;

use flows::{Running, hoop, line_with, relay, run, sign};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that connects to 10.9.1.1, says something and waits for the answer.
const ASKS: [&str; 3] = ["bash", "-c", "exec 3<>/dev/tcp/10.9.1.1/8000; echo hello >&3; read <&3"];

#[test]
fn whoever_is_refused_is_told_which_flag_the_relay_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay(folder.path());
    let arguments = [&["run", "--relay", "laptop.toml", "--"], &ASKS[..]].concat();
    let (_, _, error) = run(folder.path(), &arguments);
    let words = "hoop run: 10.9.1.1:8000: the relay does not go there (0x101): it must be run with --allow 10.9.1.1\n";
    assert!(error.contains(words), "{error}");
    std::fs::write(folder.path().join("devices.toml"), "").unwrap();
    let (_, _, error) = run(folder.path(), &arguments);
    assert!(
        error
            .contains("hoop run: the relay does not know this device, or not by this key: `hoop introduce` it again\n"),
        "{error}"
    );
}

#[test]
fn whoever_waits_is_told_what_for_and_how_to_give_up() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay(folder.path());
    let told = std::fs::read_to_string(folder.path().join("laptop.toml")).unwrap();
    std::fs::write(folder.path().join("laptop.toml"), told.replace("localhost:", "relay.example:")).unwrap();
    // It would wait as well until it is connected.
    let says = ["bash", "-c", "exec 3<>/dev/tcp/10.9.1.1/8000; echo hello >&3"];
    let arguments = [&["run", "--relay", "laptop.toml", "--early", "--"], &says[..]].concat();
    let mut waiting = Running(hoop(folder.path(), &arguments).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(waiting.0.stderr.take().unwrap());
    let line = line_with(&mut lines, "waiting");
    assert!(line.starts_with("hoop run: waiting for relay.example:"), "{line}");
    assert!(line.contains("its certificate is for another name"), "{line}");
    let line = line_with(&mut lines, "ended");
    assert_eq!(
        line,
        "hoop run: bash has ended, but 1 connection is still being delivered or in use by another program; interrupt to give up\n"
    );
    let pid = waiting.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(waiting.0.wait().unwrap().success(), "as bash ended");
}

#[test]
fn connecting_waits_for_the_relay_until_it_is_interrupted_or_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let relay = relay(folder.path());
    drop(relay);
    let connects = [&["run", "--relay", "laptop.toml", "--"], &ASKS[..]].concat();
    let mut waiting = Running(hoop(folder.path(), &connects).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(waiting.0.stderr.take().unwrap());
    line_with(&mut lines, "waiting for localhost");
    assert!(waiting.0.try_wait().unwrap().is_none());
    let pid = waiting.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(waiting.0.wait().unwrap().code(), Some(128 + 15));
    let bounded = [&["run", "--relay", "laptop.toml", "--give-up-after", "1s", "--"], &ASKS[..]].concat();
    let (code, _, error) = run(folder.path(), &bounded);
    assert_eq!(code, 1, "as bash ends: {error}");
    assert!(error.contains("Connection timed out"), "{error}");
    assert!(error.contains("hoop run: there was no relay for 1 s: connections are given up\n"), "{error}");
    let says = ["bash", "-c", "exec 3<>/dev/tcp/10.9.1.1/8000; echo hello >&3"];
    let early = ["run", "--relay", "laptop.toml", "--early", "--give-up-after", "1s", "--"];
    let (code, _, error) = run(folder.path(), &[&early[..], &says[..]].concat());
    assert_eq!(code, 7, "{error}");
    assert!(error.contains("hoop run: the relay could not be reached: 1 connection is given up\n"), "{error}");
}

/// `hoop run --status`, of what runs with this folder for temporary files: as [`run`].
fn status(folder: &Path) -> (i32, String, String) {
    let asked = hoop(folder, &["run", "--status"]).env("TMPDIR", folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (asked.status.code().unwrap_or(-1), text(asked.stdout), text(asked.stderr))
}

#[test]
fn the_status_says_what_is_waited_for_and_that_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    drop(relay(folder.path()));
    let connects = [&["run", "--relay", "laptop.toml", "--"], &ASKS[..]].concat();
    let mut waiting = hoop(folder.path(), &connects);
    let mut waiting = Running(waiting.env("TMPDIR", folder.path()).stderr(Stdio::piped()).spawn().unwrap());
    line_with(&mut BufReader::new(waiting.0.stderr.take().unwrap()), "waiting for localhost");
    let (code, told, error) = status(folder.path());
    assert_eq!((code, &error[..]), (0, ""), "{told}");
    let lines: Vec<_> = told.lines().collect();
    let title = format!("hoop run {}, bash: by localhost:", waiting.0.id());
    assert!(lines[0].starts_with(&title), "{told}");
    assert!(
        lines[0].contains(", not reached for ")
            && lines[0].ends_with(" s: nobody listens at that port (connection refused)"),
        "{told}"
    );
    assert!(lines[1].starts_with("  10.9.1.1:8000: connecting for ") && lines.len() == 2, "{told}");
    // Its folder stays behind.
    drop(waiting);
    let (code, told, error) = status(folder.path());
    assert_eq!((code, &told[..]), (7, ""));
    assert!(error.contains("none of your `hoop run` processes is running"), "{error}");
    let (code, _, _) = run(folder.path(), &["run", "--status", "--", "true"]);
    assert_eq!(code, 2, "it runs nothing");
}

#[test]
fn it_says_that_nothing_is_carried_of_a_program_that_loads_no_library() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay(folder.path());
    std::fs::write(folder.path().join("main.c"), "int main(void) { return 3; }").unwrap();
    let words = "did not load the library";
    for (linked, told) in [("-static", true), ("-pie", false)] {
        let cc = Command::new("cc").args([linked, "-o", "program", "main.c"]).current_dir(folder.path()).status();
        assert!(cc.unwrap().success());
        let (code, _, error) = run(folder.path(), &["run", "--relay", "laptop.toml", "--", "./program"]);
        assert_eq!((code, error.contains(words)), (3, told), "{linked}: {error}");
    }
}

/// Python that says how a connection to loopback ends, which no agent carries.
const CONNECTS_HERE: &str = "import socket, sys
try:
    socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)
    print('connected')
except OSError as error:
    print(error.strerror)";

#[test]
fn strictly_nothing_of_a_programs_tree_connects_past_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay(folder.path());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let arguments = |strict: bool| {
        let hoop = ["run", "--relay", "laptop.toml", if strict { "--strict" } else { "--give-up-after=9s" }, "--"];
        // Without the library: nothing but the kernel keeps it.
        let program =
            ["env", "-i", "PATH=/usr/bin:/bin:/usr/local/bin", "/usr/bin/python3", "-c", CONNECTS_HERE, &port];
        let all = [&hoop[..], &program[..]].concat();
        run(folder.path(), &all)
    };
    let (code, said, error) = arguments(false);
    assert_eq!((code, &said[..]), (0, "connected\n"), "{error}");
    let (code, said, error) = arguments(true);
    assert_eq!((code, &said[..]), (0, "Permission denied\n"), "{error}");
    // What is carried is.
    let asks = [&["run", "--relay", "laptop.toml", "--strict", "--"], &ASKS[..]].concat();
    let (_, _, error) = run(folder.path(), &asks);
    assert!(error.contains("the relay does not go there (0x101)"), "{error}");
}

#[test]
fn a_program_that_becomes_another_user_is_carried() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay(folder.path());
    let as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let all = [&["run", "--relay", "laptop.toml", "--"], &as_nobody[..], &ASKS[..]].concat();
    let (_, _, error) = run(folder.path(), &all);
    assert!(error.contains("10.9.1.1:8000: the relay does not go there (0x101)"), "{error}");
    // Who has no key is nobody's child.
    let without = [&["run", "--relay", "laptop.toml", "--"], &as_nobody[..], &["env", "-u", "HOOP_RUN_KEY"], &ASKS[..]];
    let (_, _, error) = run(folder.path(), &without.concat());
    assert!(!error.contains("0x101"), "{error}");
}

#[test]
fn a_folder_from_which_no_library_is_loaded_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay(folder.path());
    let script = r#"mount -t tmpfs -o noexec none "$0" && TMPDIR="$0" exec "$@""#;
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let mut run = Command::new("unshare");
    run.args(["--mount", "sh", "-c", script]).arg(folder.path().join("tmp")).arg(env!("CARGO_BIN_EXE_hoop"));
    run.args(["run", "--relay", "laptop.toml", "--", "true"]).current_dir(folder.path()).env_remove("HOOP_LOG");
    let ended = run.output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(3), "{error}");
    assert!(error.contains("is mounted noexec, so the library cannot be loaded from there; set TMPDIR"), "{error}");
}

#[test]
fn a_relay_without_its_file_of_devices_says_what_makes_it() {
    let folder = tempfile::tempdir().unwrap();
    sign(folder.path());
    let arguments = "relay --listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem --devices devices.toml";
    let (code, _, error) = run(folder.path(), &arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 3);
    assert!(
        error.contains("devices.toml")
            && error.contains("make it, with a first device: `hoop introduce NAME:PORT --devices FILE`"),
        "{error}"
    );
}

#[test]
fn what_is_misspelt_is_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, error) = run(folder.path(), &["run", "--relay", "none", "--interfce", "wlan0", "--", "true"]);
    assert_eq!(code, 2);
    assert!(error.contains("unknown option `--interfce`"), "{error}");
}

#[test]
fn a_failed_introduce_leaves_no_files_and_a_good_one_writes_private_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    sign(folder.path());
    let introduce = |server: &str, certificate: &str| {
        let arguments = ["introduce", server, "--devices", "devices.toml", "--cert", certificate, "-o", "laptop.toml"];
        run(folder.path(), &arguments)
    };
    let (code, _, error) = introduce("relay.example", "cert.pem");
    assert_eq!(code, 2);
    assert!(error.contains("`relay.example` is no NAME:PORT; for example relay.example:4669"), "{error}");
    let (code, _, error) = introduce("relay.example:4669", "key.pem");
    assert_eq!(code, 3);
    assert!(error.contains("holds a PRIVATE KEY"), "{error}");
    let (code, _, error) = introduce("relay.example:4669", "cert.pem");
    assert_eq!(code, 3);
    assert!(error.contains("its certificate is for another name (localhost)"), "{error}");
    assert!(!path("laptop.toml").exists() && !path("devices.toml").exists());
    let (code, told, error) = introduce("localhost:4669", "cert.pem");
    assert_eq!((code, &told[..]), (0, ""), "{error}");
    assert_eq!(std::fs::metadata(path("laptop.toml")).unwrap().mode() & 0o777, 0o600);
    let devices = std::fs::read(path("devices.toml")).unwrap();
    assert_eq!(introduce("localhost:4669", "cert.pem").0, 3, "a device's file is not written over");
    assert_eq!(std::fs::read(path("devices.toml")).unwrap(), devices);
    let (code, _, error) = run(folder.path(), &["run", "--relay", "devices.toml", "--", "true"]);
    assert_eq!(code, 3);
    assert!(error.contains("is a server's file of devices"), "{error}");
    let (code, _, error) =
        run(folder.path(), &["run", "--relay", "laptop.toml", "--interface", "nosuch0", "--", "true"]);
    assert_eq!(code, 2);
    assert!(error.contains("there is no network interface nosuch0"), "{error}");
}

#[test]
fn a_devices_file_is_shown_as_a_qr_code_and_that_it_holds_the_key_is_said() {
    let folder = tempfile::tempdir().unwrap();
    sign(folder.path());
    let introduce = |more: &[&str]| {
        let arguments = ["introduce", "localhost:4669", "--devices", "devices.toml", "--qr"];
        run(folder.path(), &[&arguments[..], more].concat())
    };
    let (code, shown, words) = introduce(&[]);
    assert_eq!(code, 0, "{words}");
    let lines: Vec<Vec<char>> = shown.lines().map(|line| line.chars().collect()).collect();
    assert!(lines.len() > 20 && lines.iter().all(|line| line.len() == lines[0].len()), "{shown}");
    assert!(lines[0].iter().all(|letter| *letter == '█') && lines[0].len().div_ceil(2) == lines.len(), "{shown}");
    assert_eq!(words, "This code holds the device's key: anyone who sees or photographs it can pose as the device.\n");
    // A relay's own certificate fits, and the file may be kept besides.
    let (code, _, words) = introduce(&["--cert", "cert.pem", "-o", "laptop.toml"]);
    assert_eq!((code, words.starts_with("This code")), (0, true), "{words}");
    assert!(folder.path().join("laptop.toml").exists());
    let much = std::fs::read_to_string(folder.path().join("cert.pem")).unwrap().repeat(9);
    std::fs::write(folder.path().join("much.pem"), much).unwrap();
    let (code, told, words) = introduce(&["--cert", "much.pem"]);
    assert_eq!((code, &words[..]), (0, "The device's file is too long for a QR code.\n"));
    assert!(told.contains("key = "), "{told}");
}

#[test]
fn the_file_of_devices_becomes_the_relays_users_and_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let introduce = |more: &[&str]| {
        let (code, _, error) =
            run(folder.path(), &[&["introduce", "localhost:4669", "--devices", "devices.toml"], more].concat());
        (code, error)
    };
    let file = |name: &str| std::fs::metadata(folder.path().join(name)).map(|is| (is.uid(), is.mode() & 0o777)).ok();
    let is = || file("devices.toml");
    let (code, error) = introduce(&["--user", "no-such-user"]);
    assert_eq!((code, is()), (2, None), "{error}");
    assert!(error.contains("--user no-such-user: there is no such user"), "{error}");
    if !rustix::process::geteuid().is_root() {
        return println!("not tested: only root gives files away");
    }
    assert_eq!(introduce(&["--user", "nobody"]).0, 0);
    let nobody = is();
    assert_eq!(nobody, Some((65_534, 0o600)));
    let lock = file("devices.toml.lock").map(|(uid, _)| uid);
    assert_eq!(lock, Some(65_534), "the owner may introduce the next");
    // Whoever forgets it next time takes it from nobody.
    assert_eq!((introduce(&[]).0, is()), (0, nobody));
}

/// Python that has the kernel refuse sockets of netlink, as Android does to applications, and then becomes what it was told.
const WITHOUT_NETLINK: &str = "import ctypes, os, struct, sys
socket = {'x86_64': 41, 'aarch64': 198}[os.uname().machine]
LOAD, EQUAL, RETURN, ALLOW, EACCES, NETLINK = 0x20, 0x15, 0x06, 0x7fff0000, 0x50000 | 13, 16
filter = [(LOAD, 0, 0, 0), (EQUAL, 0, 3, socket), (LOAD, 0, 0, 16), (EQUAL, 0, 1, NETLINK), (RETURN, 0, 0, EACCES), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in filter))
program = struct.pack('HxxxxxxP', len(filter), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])";

#[test]
fn where_the_kernel_tells_nothing_of_networks_programs_are_carried() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = relay(folder.path());
    let mut confined = Command::new("python3");
    confined.args(["-c", WITHOUT_NETLINK, env!("CARGO_BIN_EXE_hoop"), "run", "--relay", "laptop.toml", "--"]);
    let ended = confined.args(ASKS).current_dir(folder.path()).env("HOOP_LOG", "hoop_relay=debug").output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert!(error.contains("the kernel does not tell when networks change"), "{error}");
    assert!(error.contains("10.9.1.1:8000: the relay does not go there (0x101)"), "{error}");
}

/// The line of docs/run.md, with the name that it has there.
#[test]
fn the_certificate_that_the_page_has_openssl_make_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let page = include_str!("../../../docs/run.md");
    let line = page.lines().find_map(|line| line.strip_prefix("$ openssl ")).expect("a line of openssl");
    let made = Command::new("sh").args(["-c", &format!("openssl {line}")]).current_dir(folder.path()).output();
    assert!(made.unwrap().status.success());
    let introduce =
        "introduce relay.example:4669 --devices devices.toml --cert cert.pem --address 127.0.0.1 -o laptop.toml";
    assert_eq!(run(folder.path(), &introduce.split(' ').collect::<Vec<_>>()).0, 0);
    let arguments = "relay --listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem --devices devices.toml";
    let mut relay = hoop(folder.path(), &arguments.split(' ').collect::<Vec<_>>());
    let mut relay = Running(relay.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(relay.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let port = said.trim().strip_prefix("listening on 127.0.0.1:").unwrap().split(',').next().unwrap();
    let told = std::fs::read_to_string(folder.path().join("laptop.toml")).unwrap();
    std::fs::write(folder.path().join("laptop.toml"), told.replace(":4669", &format!(":{port}"))).unwrap();
    // It gets as far as the relay's answer.
    let (_, _, error) = run(folder.path(), &[&["run", "--relay", "laptop.toml", "--"], &ASKS[..]].concat());
    assert!(error.contains("the relay does not go there (0x101)"), "{error}");
}

#[test]
fn a_restarted_relay_reads_as_a_reset() {
    let folder = tempfile::tempdir().unwrap();
    let start = |listen: &str| {
        let arguments =
            ["relay", "--listen", listen, "--cert", "cert.pem", "--key", "key.pem", "--devices", "devices.toml"];
        let mut relay = hoop(folder.path(), &[&arguments[..], &["--allow", "127.0.0.1"]].concat());
        let mut relay = Running(relay.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(relay.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (relay, line.trim().strip_prefix("listening on ").unwrap().split(',').next().unwrap().to_owned())
    };
    sign(folder.path());
    std::fs::write(folder.path().join("devices.toml"), "").unwrap();
    let (first, address) = start("127.0.0.1:0");
    let port = address.rsplit(':').next().unwrap();
    let introduce =
        format!("introduce localhost:{port} --devices devices.toml --cert cert.pem --address 127.0.0.1 -o laptop.toml");
    assert_eq!(run(folder.path(), &introduce.split(' ').collect::<Vec<_>>()).0, 0);
    let introduction = hoop_relay::Introduction::read(&folder.path().join("laptop.toml")).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let web = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = hoop_relay::Link::start(&introduction, vec![hoop_relay::NetworkPath::any()]).unwrap();
        let socket = folder.path().join("agent");
        let agent = hoop_relay::preload::PreloadServer::bind(&socket, hoop_relay::FlowOptions::default()).unwrap();
        let agent = agent.tell_status("a test".to_owned()).unwrap();
        tokio::spawn(async move { agent.run(&link, std::future::pending(), |_| {}).await });
        let mut program = tokio::net::UnixStream::connect(&socket).await.unwrap();
        program.write_all(format!("{}\n", web.local_addr().unwrap()).as_bytes()).await.unwrap();
        let (mut server, _) = web.accept().await.unwrap();
        server.write_all(b"half").await.unwrap();
        program.read_exact(&mut [0; 4]).await.unwrap();
        let asking = socket.with_extension("state");
        let mut told = String::new();
        tokio::net::UnixStream::connect(asking).await.unwrap().read_to_string(&mut told).await.unwrap();
        let lines: Vec<_> = told.lines().collect();
        assert!(lines[0] == "a test" && lines[1].starts_with("  carrier any: "), "{told}");
        assert!(lines[1].contains(", up for ") && lines[1].contains(", heard 0 s ago"), "{told}");
        let connection = format!("  {}: for ", web.local_addr().unwrap());
        assert!(
            lines[2].starts_with(&connection) && lines[2].ends_with(", 0 bytes sent of which 0 wait, 4 received"),
            "{told}"
        );
        drop(first);
        let _second = start(&address);
        let read = tokio::time::timeout(std::time::Duration::from_secs(60), program.read(&mut [0; 4])).await;
        assert_eq!(read.expect("it ends").unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    });
}
