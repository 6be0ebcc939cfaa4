//! `hoop get` as somebody types it: what it saves, and how it ends. All on loopback.
#![allow(missing_docs)]

mod flows;

use flows::{Running, agent, relay_with, run, web};
use hoop_http::tls::server_config;
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use rustls::{ServerConnection, StreamOwned};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
const OTHER: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Answers a path: what it gets for the whole request's head.
fn answer(path: &str, head: &str) -> String {
    let whole = |status: &str, fields: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    match path {
        "/hello" | "/%2e%2e%2fhello" => match head.contains("Range: bytes=2-\r\n") {
            true => whole("206 Partial Content", "ETag: \"v1\"\r\nContent-Range: bytes 2-4/5\r\n", "llo"),
            false => whole("200 OK", "ETag: \"v1\"\r\n", "hello"),
        },
        "/digest" => {
            whole("200 OK", "Repr-Digest: sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:\r\n", "hello")
        }
        "/wrong" => whole("200 OK", "Repr-Digest: sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:\r\n", "hullo"),
        "/wrong-rest" if head.to_lowercase().contains("range: ") => whole(
            "206 Partial Content",
            "Content-Range: bytes 2-4/5\r\nRepr-Digest: sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:\r\n",
            "llx",
        ),
        "/changes" if head.to_lowercase().contains("if-range") => whole("200 OK", "ETag: \"v2\"\r\n", "other"),
        "/changes" => whole("206 Partial Content", "ETag: \"v1\"\r\nContent-Range: bytes 2-4/5\r\n", "llo")
            .trim_end_matches("lo")
            .to_owned(),
        "/echo" => whole(if head.to_lowercase().contains("hoop-deadline") { "500 Told" } else { "200 OK" }, "", ""),
        "/who" => {
            let told =
                head.lines().filter(|line| ["x-a", "cookie"].iter().any(|own| line.to_lowercase().starts_with(own)));
            whole("200 OK", "", &told.collect::<Vec<_>>().join(" "))
        }
        "/elsewhere" => {
            let port =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("host: 127.0.0.1:").map(str::to_owned));
            whole("302 Found", &format!("Location: http://localhost:{}/who\r\n", port.unwrap_or_default()), "")
        }
        "/moved" => whole("302 Found", "Location: /hello\r\n", ""),
        "/round" => whole("302 Found", "Location: /round\r\n", ""),
        "/away" => whole("302 Found", "Location: file:///etc/passwd\r\n", ""),
        "/never" => {
            std::thread::sleep(std::time::Duration::from_secs(60));
            String::new()
        }
        _ => whole("404 Not Found", "", "no"),
    }
}

/// A relay, an agent, and the flag that names it.
struct World {
    folder: tempfile::TempDir,
    at: String,
    web: SocketAddr,
    _running: [Running; 2],
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = relay_with(folder.path(), &["--allow", "127.0.0.1"]);
        let (agent, address) = agent(folder.path(), &[]);
        Self { folder, at: address.to_string(), web: web(answer), _running: [relay, agent] }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Downloads paths of the web server; what it ends with, and says.
    fn get(&self, paths: &[&str], flags: &[&str]) -> (i32, String) {
        let urls: Vec<String> = paths.iter().map(|path| format!("http://{}{path}", self.web)).collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let (code, _, told) = run(self.path(), &[&["get", "--agent", &self.at], flags, &urls].concat());
        (code, told)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap()
    }
}

#[test]
fn a_file_is_saved_by_its_name_and_never_over_another() {
    let world = World::new();
    let (code, told) = world.get(&["/hello", "/digest"], &[]);
    assert_eq!(
        (code, world.read("hello"), world.read("digest")),
        (0, "hello".to_owned(), "hello".to_owned()),
        "{told}"
    );
    assert!(told.contains("saved ./hello, 5 B"), "{told}");
    let (code, told) = world.get(&["/hello"], &[]);
    assert_eq!(code, 3);
    assert!(told.contains("hello is there already") && told.contains("-c to continue"), "{told}");
    fs::write(world.path().join("hello"), "other").unwrap();
    let (code, told) = world.get(&["/moved"], &["-o", "hello", "--sha256", HELLO]);
    assert_eq!((code, world.read("hello")), (0, "hello".to_owned()), "{told}");
    let (code, told) = world.get(&["/%2e%2e%2fhello"], &[]);
    assert_eq!((code, world.read("_hello")), (0, "hello".to_owned()), "{told}");
    assert_eq!(world.get(&["/moved", "/moved"], &[]).0, 2, "two of one name");
}

#[test]
fn fields_go_to_the_server_that_was_asked_and_to_no_other() {
    let world = World::new();
    fs::write(world.path().join("secrets"), "Cookie: session=alice\n").unwrap();
    let fields = ["-H", "X-A: 1", "-H", "@secrets"];
    let (code, told) = world.get(&["/who"], &fields);
    assert_eq!((code, world.read("who").to_lowercase()), (0, "x-a: 1 cookie: session=alice".to_owned()), "{told}");
    let (code, told) = world.get(&["/elsewhere"], &fields);
    assert_eq!((code, world.read("elsewhere")), (0, String::new()), "{told}");
    let (code, told) = world.get(&["/who"], &["-H", "Cookie: session=alice"]);
    assert!(code == 2 && told.contains("-H @FILE"), "{told}");
    fs::write(world.path().join("list"), "http://other.example/x\n").unwrap();
    let (code, told) = world.get(&["/hello"], &["-H", "@secrets", "-i", "list"]);
    assert!(code == 2 && told.contains("is for one server"), "{told}");
}

#[test]
fn what_another_program_began_is_continued_if_asked() {
    let world = World::new();
    fs::write(world.path().join("hello"), "he").unwrap();
    let (code, told) = world.get(&["/hello"], &["-c"]);
    assert_eq!((code, world.read("hello")), (0, "hello".to_owned()), "{told}");
}

#[test]
fn urls_are_read_from_a_file_and_a_failure_stops_no_other() {
    let world = World::new();
    let list = format!("# two of these\n\nhttp://{0}/hello\n  http://{0}/digest\nhttp://{0}/missing\n", world.web);
    fs::write(world.path().join("list"), list).unwrap();
    let (code, told) = world.get(&[], &["-i", "list"]);
    assert_eq!(
        (code, world.read("hello"), world.read("digest")),
        (4, "hello".to_owned(), "hello".to_owned()),
        "{told}"
    );
    assert!(told.contains("/missing.") && told.contains("the server answers 404 Not Found"), "{told}");
}

#[test]
fn what_is_not_what_it_should_be_is_removed() {
    let world = World::new();
    for (path, flags) in [("/wrong", &[][..]), ("/hello", &["--sha256", OTHER][..])] {
        let (code, told) = world.get(&[path], flags);
        assert_eq!(code, 13, "{told}");
        assert!(told.contains("differs; what came is removed"), "{told}");
    }
    let left = fs::read_dir(world.path()).unwrap().flatten().map(|file| file.file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.contains("wrong") || name.contains("hello")).count(), 0);
}

#[test]
fn a_deadline_ends_what_is_not_there_and_the_server_hears_nothing_of_it() {
    let world = World::new();
    let (code, told) = world.get(&["/never"], &["--deadline", "2s"]);
    assert_eq!(code, 8, "{told}");
    assert!(told.contains("the deadline is over"), "{told}");
    let (code, told) = world.get(&["/never"], &["--give-up-after", "1s"]);
    assert_eq!(code, 7, "{told}");
    assert!(told.contains("nothing came from") && told.contains("for 1 s"), "{told}");
    let ask = format!("curl -s -o /dev/null -w %{{http_code}} --proxy http://{} http://{}", world.at, world.web);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for (deadline, path, expected) in
        [(now + 1, "/never", "504"), (now + 60, "/echo", "200"), (u64::MAX, "/echo", "400")]
    {
        let script = format!("{ask}{path} -H 'Hoop-Deadline: {deadline}'");
        let answered = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&answered.stdout), expected, "{script}");
    }
}

#[test]
fn what_cannot_be_had_is_said_in_a_sentence() {
    let world = World::new();
    for (path, words) in
        [("/round", "there are more than 10 redirects"), ("/away", "it redirects to file:///etc/passwd")]
    {
        let (code, told) = world.get(&[path], &[]);
        assert_eq!(code, 4, "{told}");
        assert!(told.contains(words), "{told}");
    }
    for (url, code, words) in [
        ("ftp://a.example/file", 2, "only http:// and https:// are supported"),
        ("http://me:secret@a.example/file", 2, "other users could see it in the list of processes"),
        ("hello", 2, "hello is not a URL"),
        ("http://10.1.2.3/file", 7, "the relay does not go there"),
        ("http://name.invalid/file", 7, "the relay does not find this name"),
    ] {
        let (ended, _, told) = run(world.path(), &["get", "--agent", &world.at, url]);
        assert_eq!(ended, code, "{url}: {told}");
        assert!(told.contains(words) && !told.contains("secret"), "{url}: {told}");
    }
    let (code, _, told) = run(world.path(), &["get", "--agent", "127.0.0.1:1", "http://a.example/file"]);
    assert_eq!(code, 7);
    assert!(told.contains("no agent answers at 127.0.0.1:1") && told.contains("hoop agent"), "{told}");
}

fn head_of(stream: &mut impl Read) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    head
}

/// What listens where an agent would, and gives this for each request of another kind than CONNECT, which it refuses. None: only root may have it be another user's.
fn listener(user: Option<u32>, answer: &'static str) -> Option<SocketAddr> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // A socket belongs to whom the thread that has made or accepted it belongs to.
        let user = user.map(Uid::from_raw);
        if user.is_some_and(|user| set_thread_res_uid(user, user, user).is_err()) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let head = head_of(&mut stream);
            let refusal = "HTTP/1.1 502 No\r\nProxy-Status: hoop; error=dns_error\r\nContent-Length: 0\r\n\r\n";
            let answer = if head.starts_with(b"CONNECT ") { refusal } else { answer };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    told.recv().ok()
}

#[test]
fn another_user_who_listens_at_the_agents_place_forges_no_https() {
    let folder = tempfile::tempdir().unwrap();
    let forged = "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 6\r\nConnection: close\r\n\r\nforged";
    let get = |agent: SocketAddr, name: &str| {
        let url = format!("https://a.example/{name}");
        run(folder.path(), &["get", "--agent", &agent.to_string(), "--give-up-after", "5s", &url])
    };
    // One's own agent may have had the relay ask: the host is entrusted.
    let (code, _, told) = get(listener(None, forged).unwrap(), "own");
    assert_eq!(code, 0, "{told}");
    let Some(foreign) = listener(Some(65_534), forged) else {
        return println!("not tested: only root has a thread that is another user's");
    };
    let (code, _, told) = get(foreign, "foreign");
    assert!(code == 7 && told.contains("dns_error") && !folder.path().join("foreign").exists(), "{code}: {told}");
}

/// A web server by TLS, which answers in pieces until they end or nobody takes them. How many bytes it has written.
fn secure_web<I: Iterator<Item = String>>(
    folder: &Path,
    answer: impl Fn() -> I + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let config = Arc::new(server_config(&folder.join("cert.pem"), &folder.join("key.pem")).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, written) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = written.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
            head_of(&mut stream);
            for piece in answer() {
                if stream.write_all(piece.as_bytes()).is_err() {
                    break;
                }
                counted.fetch_add(piece.len(), Ordering::Relaxed);
            }
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (address, written)
}

const MANY: usize = 64 << 20;

/// Downloads by TLS what begins like this, and goes on with these pieces: what it ends with.
fn get_without_end(head: &'static str, piece: &'static str) -> (i32, String) {
    let world = World::new();
    let piece = piece.repeat((64 << 10) / piece.len());
    let (address, written) = secure_web(world.path(), move || {
        let pieces = std::iter::repeat_n(piece.clone(), MANY / piece.len());
        std::iter::once(head.to_owned()).chain(pieces)
    });
    let url = format!("https://localhost:{}/file", address.port());
    let flags = ["get", "--agent", &world.at, "--ca", "cert.pem", "--give-up-after", "1s", &url];
    let (code, _, told) = run(world.path(), &flags);
    let written = written.load(Ordering::Relaxed);
    assert!(written < MANY / 2, "{written} bytes were taken: {code}: {told}");
    (code, told)
}

#[test]
fn a_web_server_does_not_speak_as_the_agent() {
    let head = "HTTP/1.1 404 Not Found\r\nProxy-Status: hoop; error=dns_error\r\n\r\n";
    let (code, told) = get_without_end(head, "a");
    assert!(code == 4 && told.contains("the server answers 404"), "{code}: {told}");
}

#[test]
fn interim_answers_without_end_are_not_read() {
    let (code, told) = get_without_end("", "HTTP/1.1 103 Early Hints\r\n\r\n");
    assert!(code == 7 && told.contains("nothing came"), "{code}: {told}");
}

#[test]
fn no_more_of_a_refusal_is_read_than_a_sentence_takes() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = "HTTP/1.1 502 No\r\nProxy-Status: hoop; error=dns_error\r\n\r\n".to_owned() + &"a".repeat(MANY);
    let agent = listener(None, Box::leak(refusal.into_boxed_str())).unwrap();
    let (code, _, told) = run(folder.path(), &["get", "--agent", &agent.to_string(), "http://a.example/file"]);
    assert!(code == 7 && told.contains("Cause: dns_error"), "{code}: {}", &told[..told.len().min(200)]);
}

#[test]
fn with_c_a_file_stays_as_it_is_until_the_whole_was_checked() {
    let world = World::new();
    for (path, code, words) in
        [("/wrong-rest", 13, "the checksum"), ("/changes", 3, "the server does not continue the file that is there")]
    {
        let name = &path[1..];
        fs::write(world.path().join(name), "he").unwrap();
        let (ended, told) = world.get(&[path], &["-c"]);
        assert!(ended == code && told.contains(words), "{path}: {ended}: {told}");
        assert_eq!(world.read(name), "he", "{path}");
    }
}

#[test]
fn another_users_beginning_is_refused() {
    let world = World::new();
    let at = |name: &str| world.path().join(name);
    let source = format!("http://{}/hello", world.web);
    let note = format!(r#"{{"url":"{source}","source":"{source}","etag":"\"v1\"","length":5}}"#);
    for file in [".hello.part", ".hello.part.json"] {
        fs::write(at(".hello.part"), "XX").unwrap();
        fs::write(at(".hello.part.json"), &note).unwrap();
        if chown(at(file), Some(65_534), None).is_err() {
            return println!("not tested: only root gives files away");
        }
        let (code, told) = world.get(&["/hello"], &[]);
        assert!(code == 3 && told.contains("another user") && told.contains(file), "{code}: {told}");
        assert!(!at("hello").exists());
        assert_eq!(world.read(".hello.part"), "XX");
        fs::remove_file(at(file)).unwrap();
    }
}

#[test]
fn a_replaced_file_keeps_its_mode() {
    let world = World::new();
    let own = world.path().join("own");
    fs::write(&own, "mine").unwrap();
    fs::set_permissions(&own, Permissions::from_mode(0o751)).unwrap();
    symlink("own", world.path().join("link")).unwrap();
    let (code, told) = world.get(&["/hello"], &["-o", "link"]);
    assert_eq!((code, world.read("own")), (0, "hello".to_owned()), "{told}");
    let mode = || fs::metadata(&own).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o751);
    fs::set_permissions(&own, Permissions::from_mode(0o666)).unwrap();
    if chown(&own, Some(65_534), None).is_ok() {
        let (code, told) = world.get(&["/hello"], &["-o", "link"]);
        assert_eq!((code, mode() & 0o002), (0, 0), "another user's mode lets others write: {told}");
    }
}

#[test]
fn another_users_link_is_not_followed() {
    let world = World::new();
    let link = world.path().join("link");
    fs::write(world.path().join("own"), "mine").unwrap();
    symlink("own", &link).unwrap();
    if lchown(&link, Some(65_534), None).is_err() {
        return println!("not tested: only root gives links away");
    }
    let (code, told) = world.get(&["/hello"], &["-o", "link"]);
    assert!(code == 3 && told.contains("a link that belongs to another user"), "{code}: {told}");
    assert_eq!(world.read("own"), "mine");
}
