//! The programs that people use, each as it is, with a real server of its kind: through an outage it ends with 0 and has all; where its server resets, where a name's first address is
//! dead, and where the relay is restarted it ends under `hoop run` as it does without. The same by `hoop agent`, if it can be told of a proxy.
//!
//! Between programs and servers stands a gate ([`GATE`]), which stops each transfer in its middle until the mishap is there: no case depends on how fast the machine is.

use crate::flows::ssh_server;
use hoop_lab::{Change, Direction};
use hoop_testbed::{Program, Roaming, program_beside, sha256};
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long there is no network.
const OUTAGE: Duration = Duration::from_secs(4);

/// Generous, since machines are busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is transferred, and where the gate stops it.
const LEN: usize = 400_000;
const HALF: usize = 150_000;

/// What knows no proxy: node's `fetch` does from version 24 on.
const KNOWS_NO_PROXY: [&str; 2] = ["psql", "node"];

/// For programs that run another one as their proxy: its arguments are a host and a port.
const CONNECT: &str = "#!/bin/sh\nexec \"$HOOP\" agent connect \"$1\" \"$2\"\n";

/// Whom servers that are to have no rights of root's run as.
const NOBODY: u32 = 65_534;

/// The web server as programs name it: in none of the relay's own networks, so that nobody puts it before a dead address (RFC 6724 §6, rule 9).
const WEB: &str = "192.0.2.80";

/// Behind the relay: a machine that refuses, and one that is not there, as a router says.
const REFUSES: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const NOT_THERE: [&str; 2] = ["192.0.2.3", "2001:db8::3"];

/// Where the first gate listens.
const GATES: u16 = 9_000;

const HTTP: u16 = 80;
const SSH: u16 = 22;
const GIT: u16 = 9_418;
const RSYNC: u16 = 873;
const POSTGRES: u16 = 5_432;

/// Arguments: a folder, and then NAME:LISTEN:TARGET:HALF. Passes connections on. Once so many bytes have come from the target it says so, and waits for the file `NAME.go`, which says
/// whether it goes on or resets.
const GATE: &str = r#"
import os, select, socket, struct, sys, threading, time
folder = sys.argv[1]
def serve(client, name, target, half, passed):
    server = socket.create_connection(('127.0.0.1', target))
    ways = {client: server, server: client}
    def close(is_reset):
        for one in client, server:
            if is_reset: one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            one.close()
    try:
        while ways:
            for one in select.select(list(ways), [], [])[0]:
                data, other = one.recv(1 << 14), client if one is server else server
                if not data:
                    other.shutdown(socket.SHUT_WR)
                    del ways[one]
                    continue
                if one is server:
                    before, passed[0] = passed[0], passed[0] + len(data)
                    if before < half <= passed[0]:
                        # In one write: another thread's line must not come in between.
                        sys.stdout.write(f'halfway {name}\n')
                        while not os.path.exists(f'{folder}/{name}.go'): time.sleep(0.02)
                        if open(f'{folder}/{name}.go').read() == 'reset': return close(True)
                other.sendall(data)
    except OSError: pass
    close(False)
def listen(listener, name, target, half):
    passed = [0]
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, name, int(target), int(half), passed), daemon=True).start()
for gate in sys.argv[2:]:
    name, port, target, half = gate.split(':')
    listener = socket.create_server(('', int(port)))
    threading.Thread(target=listen, args=(listener, name, target, half), daemon=True).start()
print('the gates are there')
time.sleep(3600)
"#;

const FETCH_JAVA: &str = r#"
import java.net.*;
import java.net.http.*;
import java.nio.file.*;

public class Fetch {
    public static void main(String[] said) throws Exception {
        URI from = URI.create(said[1]);
        Path into = Path.of(said[2]);
        if (said[0].equals("blocking")) {
            try (var in = from.toURL().openStream()) { Files.copy(in, into); }
        } else {
            HttpClient.newHttpClient().send(HttpRequest.newBuilder(from).build(), HttpResponse.BodyHandlers.ofFile(into));
        }
    }
}
"#;

/// A program: what the shell runs, with `$DIR`, `$OPEN` (a folder for all users), `$HOST`, `$PORT`, `$SSH_CONFIG` and `$OUT`, and the port of its server.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    needs: &'static str,
    port: u16,
    script: &'static str,
}

const CASES: [Case; 16] = [
    Case {
        name: "curl",
        needs: "curl",
        port: HTTP,
        script: r#"exec curl --silent --show-error --fail --output "$OUT" "http://$HOST:$PORT/file""#,
    },
    Case {
        name: "wget",
        needs: "wget",
        port: HTTP,
        script: r#"exec wget --quiet --tries 1 --output-document "$OUT" "http://$HOST:$PORT/file""#,
    },
    Case {
        name: "git",
        needs: "git",
        port: GIT,
        script: r#"git clone --quiet "git://$HOST:$PORT/project" "$OUT.clone" && exec mv "$OUT.clone/file" "$OUT""#,
    },
    Case {
        name: "ssh",
        needs: "dropbear",
        port: SSH,
        script: r#"exec ssh -F "$SSH_CONFIG" -i "$DIR/ssh-key" -p "$PORT" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@$HOST "cat '$DIR/www/file'" > "$OUT""#,
    },
    Case { name: "rsync", needs: "rsync", port: RSYNC, script: r#"exec rsync "rsync://$HOST:$PORT/www/file" "$OUT""# },
    Case {
        name: "psql",
        needs: "psql",
        port: POSTGRES,
        script: r#"exec psql --no-psqlrc --quiet -h $HOST -p "$PORT" -U postgres -c 'copy (select md5(i::text) from generate_series(1, 12000) i) to stdout' postgres > "$OUT""#,
    },
    Case {
        name: "apt-get",
        needs: "apt-get",
        port: HTTP,
        script: r#"mkdir -p "$OPEN/$NAME/lists/partial" "$OPEN/$NAME/cache" && echo "deb [trusted=yes] http://$HOST:$PORT/repository ./" > "$OPEN/$NAME/sources.list" &&
apt-get update -q -oDir::State="$OPEN/$NAME" -oDir::Cache="$OPEN/$NAME/cache" -oDir::Etc::sourcelist="$OPEN/$NAME/sources.list" -oDir::Etc::sourceparts=- \
-oAcquire::AllowInsecureRepositories=true -oAcquire::Languages=none -oAcquire::GzipIndexes=false -oAcquire::Retries=0 -oAcquire::http::Timeout=60 -oAPT::Update::Error-Mode=any \
-oAPT::Update::Post-Invoke= -oAPT::Update::Post-Invoke-Success= && exec cp "$OPEN/$NAME/lists/"*_Packages "$OUT""#,
    },
    Case {
        name: "requests",
        needs: VENV,
        port: HTTP,
        script: r#"exec "$VENV" -c 'import requests, sys
answer = requests.get(sys.argv[1])
answer.raise_for_status()
open(sys.argv[2], "wb").write(answer.content)' "http://$HOST:$PORT/file" "$OUT""#,
    },
    Case {
        name: "node",
        needs: "node",
        port: HTTP,
        script: r#"exec node -e 'const [from, into] = process.argv.slice(1);
fetch(from).then(async answer => require("fs").writeFileSync(into, Buffer.from(await answer.arrayBuffer())))' "http://$HOST:$PORT/file" "$OUT""#,
    },
    Case {
        name: "java",
        needs: "javac",
        port: HTTP,
        script: r#"exec java -XX:TieredStopAtLevel=1 -cp "$DIR" Fetch blocking "http://$HOST:$PORT/file" "$OUT""#,
    },
    Case {
        name: "java-http-client",
        needs: "javac",
        port: HTTP,
        script: r#"exec java -XX:TieredStopAtLevel=1 -cp "$DIR" Fetch client "http://$HOST:$PORT/file" "$OUT""#,
    },
    // From here on those that [`FOR_THE_AGENT`] names.
    Case {
        name: "curl-socks",
        needs: "curl",
        port: HTTP,
        script: r#"exec curl --silent --show-error --fail ${SOCKS:+--socks5-hostname "$SOCKS"} --output "$OUT" "http://$HOST:$PORT/file""#,
    },
    Case {
        name: "git-http",
        needs: "git",
        port: HTTP,
        script: r#"git clone --quiet "http://$HOST:$PORT/project.git" "$OUT.clone" && exec mv "$OUT.clone/file" "$OUT""#,
    },
    Case {
        name: "rsync-ssh",
        needs: "dropbear",
        port: SSH,
        script: r#"exec rsync -e "ssh -F '$SSH_CONFIG' -i '$DIR/ssh-key' -p $PORT -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null" "root@$HOST:$DIR/www/file" "$OUT""#,
    },
    Case {
        name: "pip",
        needs: VENV,
        port: HTTP,
        script: r#"mkdir "$OUT.pip" && "$VENV" -m pip --no-input --no-cache-dir --disable-pip-version-check download --quiet --retries 0 --timeout 60 --no-deps --trusted-host "$HOST" \
--index-url "http://$HOST:$PORT/simple" --dest "$OUT.pip" nothing && exec mv "$OUT.pip/nothing-1-py3-none-any.whl" "$OUT""#,
    },
    Case {
        name: "npm",
        needs: "npm",
        port: HTTP,
        script: r#"mkdir "$OUT.npm" && cd "$OUT.npm" && npm pack --silent --cache "$OUT.cache" --fetch-retries 0 --replace-registry-host always --registry "http://$HOST:$PORT/npm/" nothing &&
exec mv nothing-1.0.0.tgz "$OUT""#,
    },
];

/// Programs that differ from others in how they use a proxy alone: they run by the agent, and once as they are.
const FOR_THE_AGENT: [&str; 5] = ["curl-socks", "git-http", "rsync-ssh", "pip", "npm"];

/// Packages for pip and npm, in a folder that is the first argument; the second is a file of noise.
const PACKAGES: &str = r#"
import io, json, os, sys, tarfile, zipfile
www, noise = sys.argv[1], open(sys.argv[2], 'rb').read()
os.makedirs(f'{www}/simple/nothing'), os.makedirs(f'{www}/npm/files')
wheel = 'nothing-1-py3-none-any.whl'
with zipfile.ZipFile(f'{www}/simple/nothing/{wheel}', 'w') as file:
    file.writestr('nothing.py', b'#' + noise.hex().encode()[:1 << 19])
    file.writestr('nothing-1.dist-info/METADATA', 'Metadata-Version: 2.1\nName: nothing\nVersion: 1\n')
    file.writestr('nothing-1.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    file.writestr('nothing-1.dist-info/RECORD', 'nothing.py,,\nnothing-1.dist-info/METADATA,,\nnothing-1.dist-info/WHEEL,,\nnothing-1.dist-info/RECORD,,\n')
open(f'{www}/simple/nothing/index.html', 'w').write(f'<!doctype html><a href="{wheel}">{wheel}</a>')
with tarfile.open(f'{www}/npm/files/nothing-1.0.0.tgz', 'w:gz') as file:
    for name, content in ('package/package.json', b'{"name": "nothing", "version": "1.0.0"}'), ('package/noise', noise):
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        file.addfile(entry, io.BytesIO(content))
version = {'name': 'nothing', 'version': '1.0.0', 'dist': {'tarball': 'http://web.example/npm/files/nothing-1.0.0.tgz'}}
json.dump({'name': 'nothing', 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': version}}, open(f'{www}/npm/nothing', 'w'))
"#;

const VENV: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/venv/bin/python");

/// Whether a program is there: most say their version, some by another word.
fn is_there(program: &str) -> bool {
    ["--version", "-V"]
        .iter()
        .any(|word| Command::new(program).arg(word).output().is_ok_and(|told| told.status.success()))
}

/// Debian has the server's programs where nobody looks for them.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions.filter_map(Result::ok).map(|entry| entry.path().join("bin")).find(|bin| bin.join("postgres").exists())
}

/// How a program ended, and the SHA-256 of what it has, if it has anything.
#[derive(PartialEq, Eq, Debug)]
struct Ended {
    code: i32,
    has: Option<String>,
}

/// A program that runs.
struct Running {
    case: Case,
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Running {
    /// Waits until it has ended.
    fn end(mut self) -> (Case, Ended, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > end => {
                    let _ = self.child.kill();
                    panic!("{} does not end: {}", self.case.name, fs::read_to_string(&self.log).unwrap());
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let log = fs::read_to_string(&self.log).unwrap();
        (self.case, Ended { code: status.code().unwrap_or(-1), has: sha256(&self.out).ok() }, log)
    }
}

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Under `hoop run`, on the phone.
    Carried,
    /// By `hoop agent`, on the phone: as it is there, with a proxy.
    ByAgent,
    /// As it is, on the relay's machine.
    AsItIs,
}

struct World {
    _servers: Vec<Program>,
    roaming: Roaming,
    cases: Vec<Case>,
    /// What programs and servers that are no longer root's work in.
    open: TempDir,
    runs: std::cell::Cell<u32>,
    _agent: Program,
}

impl World {
    /// The phone has Wi-Fi; a server of each kind is beside the web server, dead addresses are behind the relay.
    fn build() -> Self {
        let roaming = Roaming::build(LEN).expect("a lab: run as root, or where user namespaces are allowed");
        roaming.enter_wifi().unwrap();
        let open = tempfile::tempdir().unwrap();
        fs::set_permissions(open.path(), Permissions::from_mode(0o755)).unwrap();
        // As which apt-get fetches, and is not everywhere.
        let others = if is_there("apt-get") { &["--serve-user", "_apt"][..] } else { &[] };
        let agent = roaming.start_agent(others).unwrap();
        let cases = CASES.to_vec();
        let mut world = Self { _servers: Vec::new(), roaming, cases, open, runs: 0.into(), _agent: agent };
        let has_others = has_other_users();
        world.cases.retain(|case| {
            let needs_others = matches!(case.name, "psql" | "apt-get");
            let is_whole = case.name != "psql" || postgres_programs().is_some();
            let is_there = is_there(case.needs) && is_whole && (has_others || !needs_others);
            if !is_there {
                println!(
                    "not tested: {}, for which `{}` is missing: tools/setup installs it, as root",
                    case.name, case.needs
                );
            }
            is_there
        });
        world.make_files();
        world._servers = world.start_servers();
        world.make_dead_addresses();
        world
    }

    fn has(&self, needs: &str) -> bool {
        self.cases.iter().any(|case| case.needs == needs)
    }

    fn make_files(&self) {
        let path = |name: &str| self.roaming.path(name);
        // Nothing that packs well, and nothing that is like itself.
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        fs::write(path("connect"), CONNECT).unwrap();
        fs::set_permissions(path("connect"), Permissions::from_mode(0o755)).unwrap();
        fs::write(path("ssh-config"), format!("ProxyCommand {} %h %p\n", path("connect").display())).unwrap();
        fs::write(path("www/file"), noise.take(LEN).collect::<Vec<_>>()).unwrap();
        let mut packages = String::new();
        for number in 0.. {
            if packages.len() > LEN {
                break;
            }
            write!(packages, "Package: hoop-nothing-{number}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: nothing\n").unwrap();
            writeln!(packages, "Filename: ./nothing-{number}.deb\nSize: 1\nSHA256: {number:064x}\n").unwrap();
        }
        fs::create_dir(path("www/repository")).unwrap();
        fs::write(path("www/repository/Packages"), packages).unwrap();
        done(Command::new("python3").args(["-c", PACKAGES]).arg(path("www")).arg(path("www/file")));
        if self.has("git") {
            let git = "cd \"$0\" && git init --quiet project && cp www/file project/file && git -C project add file && git -C project -c user.name=A -c user.email=a@b.example commit --quiet -m all && git clone --quiet --bare project www/project.git && git -C www/project.git update-server-info";
            done(Command::new("sh").args(["-c", git]).arg(path("")));
        }
        if self.has("javac") {
            fs::write(path("Fetch.java"), FETCH_JAVA).unwrap();
            done(Command::new("javac").arg(path("Fetch.java")));
        }
    }

    fn start_servers(&self) -> Vec<Program> {
        let path = |name: &str| self.roaming.path(name);
        let mut servers = Vec::new();
        if self.has("dropbear") {
            servers.push(ssh_server(&self.roaming).0);
        }
        if self.has("git") {
            let mut git = self.roaming.lab.command("web", "git");
            git.args(["daemon", "--verbose", "--export-all"]).arg(format!("--base-path={}", path("").display()));
            // The folder may be another's.
            git.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
            servers.push(Program::start("git daemon", git, "Ready to rumble").unwrap());
        }
        if self.has("rsync") {
            let config = format!("use chroot = no\nuid = 0\ngid = 0\n[www]\npath = {}\n", path("www").display());
            fs::write(path("rsyncd.conf"), config).unwrap();
            let mut rsync = self.roaming.lab.command("web", "rsync");
            rsync.args(["--daemon", "--no-detach", "--log-file=/dev/stderr", "--config"]).arg(path("rsyncd.conf"));
            servers.push(Program::start("rsync", rsync, "starting, listening").unwrap());
        }
        if self.has("psql") {
            servers.push(self.start_postgres());
        }
        servers
    }

    /// It is not to be run by root.
    fn start_postgres(&self) -> Program {
        let (bin, data) = (postgres_programs().expect("it was looked for"), self.open.path().join("postgres"));
        fs::create_dir(&data).unwrap();
        chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
        let as_nobody = |mut command: Command, program: &str| {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(bin.join(program));
            command.arg("-D").arg(&data).env("LC_ALL", "C.UTF-8").current_dir("/");
            command
        };
        let mut made = as_nobody(Command::new("setpriv"), "initdb");
        done(made.args(["--auth=trust", "--username=postgres", "--no-sync", "--no-instructions"]));
        let mut server = as_nobody(self.roaming.lab.command("web", "setpriv"), "postgres");
        server.args(["-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]);
        Program::start("postgres", server, "ready to accept connections").unwrap()
    }

    fn make_dead_addresses(&self) {
        for host in ["phone", "net", "relay", "web"] {
            let on = "for off in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 0 > $off || exit 1; done";
            done(self.roaming.lab.command(host, "sh").args(["-c", on]));
        }
        let net = self.roaming.lab.address_on("net", "core");
        let ip = |host: &str, arguments: &str| self.roaming.ip(host, arguments).unwrap();
        // Programs look for IPv6 addresses where they have one.
        ip("phone", "-6 address add 2001:db8:3::1/64 dev wifi nodad");
        ip("relay", "-6 address add 2001:db8:2::2/64 dev core nodad");
        ip("net", "-6 address add 2001:db8:2::1/64 dev core nodad");
        ip("net", &format!("address add {}/32 dev lo", REFUSES[0]));
        ip("net", &format!("-6 address add {}/128 dev lo nodad", REFUSES[1]));
        for dead in [REFUSES, NOT_THERE] {
            ip("relay", &format!("route add {} via {net}", dead[0]));
            ip("relay", &format!("-6 route add {} via 2001:db8:2::1", dead[1]));
        }
        // All programs ask at once, and each is to be told.
        let tells = "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit && echo 0 > /proc/sys/net/ipv6/icmp/ratelimit";
        done(self.roaming.lab.command("net", "sh").args(["-c", tells]));
        ip("net", &format!("route add unreachable {}", NOT_THERE[0]));
        ip("net", &format!("-6 route add unreachable {}", NOT_THERE[1]));
        ip("web", &format!("address add {WEB}/32 dev lo"));
        ip("relay", &format!("route add {WEB} via {}", self.roaming.lab.address("web")));
    }

    /// Starts all programs, with a name that has these addresses.
    fn begin(&self, how: How, addresses: &[&str]) -> Batch<'_> {
        let run = self.runs.replace(self.runs.get() + 1);
        let folder = self.roaming.path(&format!("run-{run}"));
        fs::create_dir(&folder).unwrap();
        let hosts = addresses.iter().map(|address| format!("{address} web.example\n")).collect::<String>();
        fs::write(folder.join("hosts"), hosts).unwrap();
        let mut gate = self.roaming.lab.command("web", "python3");
        gate.args(["-u", "-c", GATE]).arg(&folder);
        for (case, port) in self.cases.iter().zip(GATES..) {
            gate.arg(format!("{}:{port}:{}:{HALF}", case.name, case.port));
        }
        let gate = Program::start("the gate", gate, "the gates are there").unwrap();
        let start = |(case, port): (&Case, u16)| self.start(how, *case, port, &folder);
        let knows = |case: &Case| match how {
            How::ByAgent => !KNOWS_NO_PROXY.contains(&case.name),
            How::AsItIs if addresses == [WEB] => true,
            How::AsItIs | How::Carried => !FOR_THE_AGENT.contains(&case.name),
        };
        let running = self.cases.iter().zip(GATES..).filter(|(case, _)| knows(case)).map(start).collect();
        let told = match how {
            How::Carried => "carried",
            How::ByAgent => "by the agent",
            How::AsItIs => "as they are",
        };
        let told = format!("{told}, {addresses:?}");
        Batch { world: self, gate, running, folder, told, begun: Instant::now() }
    }

    fn start(&self, how: How, case: Case, port: u16, folder: &Path) -> Running {
        let mut run = match how {
            How::Carried => self.roaming.run("unshare"),
            How::ByAgent => self.roaming.lab.command("phone", "unshare"),
            How::AsItIs => self.roaming.lab.command("relay", "unshare"),
        };
        let ssh_config = if how == How::ByAgent { self.roaming.path("ssh-config") } else { "none".into() };
        // The relay looks up names, and knows none of a test's.
        run.env("HOST", if how == How::ByAgent { WEB } else { "web.example" }).env("SSH_CONFIG", ssh_config);
        if how == How::ByAgent {
            let [host, port] = ["127.0.0.1", "4673"];
            let proxy = format!("http://{host}:{port}");
            run.env("HOOP", program_beside("hoop")).env("GIT_PROXY_COMMAND", self.roaming.path("connect"));
            run.env("SOCKS", format!("{host}:{port}"))
                .env("http_proxy", &proxy)
                .env("https_proxy", proxy)
                .env("RSYNC_PROXY", format!("{host}:{port}"));
            run.env("JAVA_TOOL_OPTIONS", format!("-Dhttp.proxyHost={host} -Dhttp.proxyPort={port}"));
        }
        let script = r#"mount --bind "$0" /etc/hosts && exec sh -c "$1""#;
        run.args(["--mount", "sh", "-c", script]).arg(folder.join("hosts")).arg(case.script);
        let (out, log) = (folder.join(case.name).with_extension("out"), folder.join(case.name).with_extension("log"));
        let name = format!("{}-{}", folder.file_name().unwrap().to_string_lossy(), case.name);
        run.env("DIR", self.roaming.path("")).env("OPEN", self.open.path()).env("NAME", name);
        run.env("PORT", port.to_string()).env("OUT", &out).env("VENV", VENV).env_remove("HOOP_LOG");
        let file = File::create(&log).unwrap();
        run.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Running { case, child: run.spawn().unwrap(), out, log }
    }

    /// How programs end with nothing in their way.
    fn whole(&self) -> Vec<(Case, Ended, String)> {
        let whole = self.begin(How::AsItIs, &[WEB]).go("on").end();
        for (case, ended, log) in &whole {
            assert!(ended.code == 0 && ended.has.is_some(), "{}: {ended:?}: {log}", case.name);
        }
        whole
    }
}

/// All programs, under way.
struct Batch<'a> {
    world: &'a World,
    gate: Program,
    running: Vec<Running>,
    folder: PathBuf,
    told: String,
    begun: Instant,
}

impl Batch<'_> {
    /// Waits until each is in its middle.
    fn halfway(self) -> Self {
        for Running { case, log, .. } in &self.running {
            let says = format!("halfway {}", case.name);
            let halfway = self.gate.wait_for_matching(PATIENCE, |line| line == says);
            let told = || format!("{}\nthe gate: {}", fs::read_to_string(log).unwrap(), self.gate.text());
            assert!(halfway.is_some(), "{} does not come to its middle: {}", case.name, told());
        }
        self
    }

    /// Lets each go on, or resets it.
    fn go(self, act: &str) -> Self {
        for case in &self.world.cases {
            // It appears whole.
            let go = self.folder.join(case.name).with_extension("new");
            fs::write(&go, act).unwrap();
            fs::rename(&go, go.with_extension("go")).unwrap();
        }
        self
    }

    /// Waits until each has ended.
    fn end(self) -> Vec<(Case, Ended, String)> {
        let ended: Vec<_> = self.running.into_iter().map(Running::end).collect();
        let codes: Vec<_> = ended.iter().map(|(case, ended, _)| format!("{} {}", case.name, ended.code)).collect();
        println!("{}: {} in {:.1} s", self.told, codes.join(", "), self.begun.elapsed().as_secs_f64());
        ended
    }
}

/// Whether there are other users than this one: in a user namespace there may be none.
pub(crate) fn has_other_users() -> bool {
    let others = Command::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"]).status();
    others.is_ok_and(|status| status.success())
}

fn done(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn through_an_outage_each_program_gets_all_and_ends_with_0() {
    let world = World::build();
    let whole = world.whole();
    let network = |is_up| world.roaming.lab.set_link("wifi", Direction::Both, Change::new().connected(is_up));
    for how in [How::Carried, How::ByAgent] {
        let carried = world.begin(how, &[WEB]).halfway();
        network(false);
        let carried = carried.go("on");
        std::thread::sleep(OUTAGE);
        network(true);
        for (case, carried, log) in carried.end() {
            let (_, whole, _) = whole.iter().find(|(other, ..)| other.name == case.name).expect("it is one of all");
            assert_eq!(carried, *whole, "{}: {log}", case.name);
        }
    }
}

#[test]
fn where_its_server_resets_each_program_ends_as_without() {
    let world = World::build();
    let [as_it_is, carried] =
        [How::AsItIs, How::Carried].map(|how| world.begin(how, &[WEB]).halfway().go("reset").end());
    for ((case, carried, log), (_, as_it_is, _)) in carried.iter().zip(&as_it_is) {
        assert_eq!(carried.code, as_it_is.code, "{}: {log}", case.name);
        assert_ne!(carried.code, 0, "{}: it has half of it: {log}", case.name);
    }
    for (case, ended, log) in world.begin(How::ByAgent, &[WEB]).halfway().go("reset").end() {
        let (_, as_it_is, _) = as_it_is.iter().find(|(other, ..)| other.name == case.name).expect("it is one of all");
        // Theirs say where they heard of the reset.
        let differs = matches!(case.name, "npm" | "rsync-ssh");
        let is_alike = ended.code == as_it_is.code || differs && ended.code != 0;
        assert!(is_alike, "{}, by the agent: {} and {}: {log}", case.name, ended.code, as_it_is.code);
    }
}

#[test]
fn where_the_first_address_is_dead_each_program_ends_as_without() {
    let world = World::build();
    let whole = world.whole();
    let [refuses, refuses6] = REFUSES;
    let [not_there, not_there6] = NOT_THERE;
    let first = [refuses, refuses6, not_there, not_there6].map(|dead| vec![dead, WEB]);
    for addresses in first.into_iter().chain([vec![refuses], vec![not_there6]]) {
        let [as_it_is, carried] = [How::AsItIs, How::Carried].map(|how| world.begin(how, &addresses).go("on").end());
        for (((case, carried, log), (_, as_it_is, _)), (_, whole, _)) in carried.iter().zip(&as_it_is).zip(&whole) {
            assert_eq!(carried.code, as_it_is.code, "{}, {addresses:?}: {log}", case.name);
            assert!(carried.code != 0 || carried == whole, "{}, {addresses:?}: it has not all: {log}", case.name);
        }
    }
}

#[test]
fn where_the_relay_is_restarted_no_program_takes_a_part_for_all() {
    let world = World::build();
    let whole = world.whole();
    for how in [How::Carried, How::ByAgent] {
        let carried = world.begin(how, &[WEB]).halfway();
        world.roaming.restart_relay().unwrap();
        for (case, ended, log) in carried.go("on").end() {
            // Some try again, as apt-get does, and have all if the relay is there by then.
            let (_, whole, _) = whole.iter().find(|(other, ..)| other.name == case.name).expect("it is one of all");
            assert!(ended.code != 0 || ended == *whole, "{}: it has not all: {log}", case.name);
        }
    }
}
