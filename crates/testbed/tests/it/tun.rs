//! Programs that know no proxy, and another machine of the LAN, by `hoop agent --tun`: a static program of Go downloads through an outage and into another network, and all that is to stay direct does.
//!
//! Beyond the relay is a machine that tells whoever connects where he came from: the relay's address, if the agent has carried him, or his own.

use hoop_lab::{Host, Link};
use hoop_testbed::{Program, Roaming, sha256};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is downloaded: some 3 s of the link.
const LEN: usize = 3_000_000;

/// The network goes once so much has come.
const FIRST: u64 = 700_000;

/// How long there is none.
const OUTAGE: Duration = Duration::from_secs(2);

/// Generous, since machines are busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long a connection may take that is not to be made at all.
const SOON: Duration = Duration::from_secs(2);

/// The web server, and the machine that tells: in no private network, and reached by the relay alone, or by all.
const WEB: &str = "192.0.2.80";
const TELLS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TELLS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const TELLS_AT: u16 = 7;
const DNS: u16 = 53;

/// A program that knows no proxy, loads no library and calls the kernel itself. Arguments: an address, and a file.
const GET: &str = r#"
package main

import (
	"io"
	"net/http"
	"os"
)

func main() {
	http.DefaultTransport.(*http.Transport).Proxy = nil
	answer, err := http.Get(os.Args[1])
	if err != nil {
		panic(err)
	}
	into, err := os.Create(os.Args[2])
	if err != nil {
		panic(err)
	}
	if _, err = io.Copy(into, answer.Body); err != nil {
		panic(err)
	}
}
"#;

/// A phone, and a guest in its own LAN.
struct World(Roaming);

impl World {
    fn build() -> Self {
        let roaming = Roaming::build_with(LEN, |topology| {
            topology.host(Host::new("guest")).link(Link::new("lan", "phone", "guest"))
        });
        let world = Self(roaming.expect("a lab: run as root, or where user namespaces are allowed"));
        world.ip("web", &format!("address add {WEB}/32 dev lo"));
        world.ip("relay", &format!("route add {WEB} via {}", world.0.lab.address("web")));
        for host in ["phone", "net", "relay", "guest"] {
            world.shell(host, "for off in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 0 > $off || exit 1; done");
        }
        // The telling machine, on the way between phone and relay: all may go there.
        world.ip("net", &format!("address add {TELLS}/32 dev lo"));
        world.ip("net", &format!("-6 address add {TELLS_V6}/128 dev lo nodad"));
        world.ip("net", "-6 address add 2001:db8:2::1/64 dev core nodad");
        world.ip("relay", "-6 address add 2001:db8:2::2/64 dev core nodad");
        world.ip("relay", &format!("route add {TELLS} via {}", world.at("net", "core")));
        world.ip("relay", &format!("-6 route add {TELLS_V6} via 2001:db8:2::1"));
        world.ip("relay", &format!("route add {} via {}", world.at("guest", "lan"), world.at("net", "core")));
        world.ip("guest", &format!("route replace default via {}", world.at("phone", "lan")));
        world.shell("phone", "echo 1 > /proc/sys/net/ipv4/ip_forward");
        // As most systems are.
        world.shell("phone", "for filter in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 > $filter || exit 1; done");
        world.ip("phone", "-6 address add 2001:db8:5::1/64 dev lan nodad");
        world.ip("guest", "-6 address add 2001:db8:5::2/64 dev lan nodad");
        world.ip("guest", "-6 route add default via 2001:db8:5::1");
        for (host, port) in [("net", TELLS_AT), ("net", DNS), ("guest", TELLS_AT), ("phone", TELLS_AT)] {
            world.tell(host, port);
        }
        world
    }

    fn at(&self, host: &str, link: &str) -> IpAddr {
        self.0.lab.address_on(host, link).into()
    }

    fn ip(&self, host: &str, arguments: &str) {
        self.0.ip(host, arguments).unwrap();
    }

    fn shell(&self, host: &str, script: &str) -> String {
        let done = self.0.lab.command(host, "sh").args(["-c", script]).output().unwrap();
        assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Tells whoever connects to the port where he came from, and by UDP as well.
    fn tell(&self, host: &str, port: u16) {
        let (listener, udp) = self.0.lab.in_host(host, || {
            let at = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
            (TcpListener::bind(at).unwrap(), UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
        });
        std::thread::spawn(move || {
            for one in listener.incoming().map_while(Result::ok) {
                let peer = one.peer_addr().map(|peer| peer.ip().to_canonical().to_string());
                let _ = peer.and_then(|peer| (&one).write_all(peer.as_bytes()));
            }
        });
        std::thread::spawn(move || {
            while let Ok((_, peer)) = udp.recv_from(&mut [0; 64]) {
                let _ = udp.send_to(peer.ip().to_string().as_bytes(), peer);
            }
        });
    }

    /// Where a connection from this host seems to come from.
    fn seen(&self, from: &str, to: impl Into<IpAddr>, port: u16) -> io::Result<String> {
        let to = SocketAddr::new(to.into(), port);
        self.0.lab.in_host(from, || {
            let mut one = TcpStream::connect_timeout(&to, SOON)?;
            one.set_read_timeout(Some(PATIENCE))?;
            let mut told = String::new();
            one.read_to_string(&mut told).map(|_| told)
        })
    }

    /// A connection from this host that is there already: its ends.
    fn held(&self, from: &str) -> [TcpStream; 2] {
        let listener = self.0.lab.in_host("net", || TcpListener::bind((TELLS, 0)).unwrap());
        let at = listener.local_addr().unwrap();
        [self.0.lab.in_host(from, || TcpStream::connect(at).unwrap()), listener.accept().unwrap().0]
    }

    /// The same, of UDP.
    fn seen_by_udp(&self, from: &str) -> String {
        self.0.lab.in_host(from, || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(b"?", (TELLS, DNS)).unwrap();
            let mut told = [0; 64];
            let (len, _) = socket.recv_from(&mut told).unwrap();
            String::from_utf8_lossy(&told[..len]).into_owned()
        })
    }

    /// Where the telling machine sees the relay, which is where it sees what is carried.
    fn relay(&self) -> String {
        self.at("relay", "core").to_string()
    }

    fn status(&self) -> String {
        let mut status = self.0.lab.command("phone", hoop_testbed::program_beside("hoop"));
        let told = status.args(["agent", "status"]).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        String::from_utf8(told.stdout).unwrap()
    }

    /// The phone has Wi-Fi, and by it a way to everywhere that it has a way to at all.
    fn enter_wifi(&self) {
        self.0.enter_wifi().unwrap();
        self.route_by("wifi");
    }

    fn route_by(&self, link: &str) {
        self.ip("phone", &format!("route replace default via {}", self.at("net", link)));
        self.ip("net", &format!("route replace {} via {}", self.at("guest", "lan"), self.at("phone", link)));
    }

    /// It goes, for a while there is nothing, and then there is another network with another address.
    fn roam(&self) {
        self.0.leave_wifi().unwrap();
        sleep(OUTAGE);
        self.0.reach_cell().unwrap();
        self.route_by("cell");
    }

    /// A download by a program that is run on this host, as it is.
    fn download(&self, host: &str, program: &[&str], into: &Path) -> Download {
        let mut command = self.0.lab.command(host, program[0]);
        command.args(&program[1..]).arg(into).stderr(Stdio::piped());
        Download { child: command.spawn().unwrap(), into: into.to_owned() }
    }

    /// Waits until it has ended, with all.
    fn assert_whole(&self, download: Download) {
        let ended = download.child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(sha256(&download.into).unwrap(), sha256(&self.0.path("www/file")).unwrap(), "as it was sent");
    }

    /// The agent's rules of routing and its redirection, as far as they are there.
    fn left(&self) -> String {
        let shown =
            "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset; ip link";
        let shown = self.shell("phone", shown);
        let is_ours = |line: &&str| ["4673", "4674", "104", "hoop"].iter().any(|ours| line.contains(ours));
        shown.lines().filter(is_ours).collect::<Vec<_>>().join("\n")
    }
}

/// By which `setpriv` runs a program as another user.
const OTHER: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

fn has_others() -> bool {
    Command::new("setpriv").args(OTHER).arg("true").status().is_ok_and(|status| status.success())
}

/// A program that downloads.
struct Download {
    child: Child,
    into: PathBuf,
}

impl Download {
    /// Waits until so much has come.
    fn grown(&mut self, to: u64) {
        until("it comes", || {
            assert!(self.child.try_wait().unwrap().is_none() || has(&self.into) >= to, "it has ended");
            has(&self.into) >= to
        });
    }
}

/// Tells a program to stop, and waits until it has.
fn stop(mut program: Program) {
    assert!(Command::new("kill").args(["-TERM", &program.pid().to_string()]).status().unwrap().success());
    assert!(program.wait().unwrap().success(), "{}", program.text());
}

/// Both ways of a connection pass a word on.
fn assert_goes_on(mut ends: [TcpStream; 2]) {
    for _ in 0..2 {
        ends[0].write_all(b"word").unwrap();
        ends[1].set_read_timeout(Some(PATIENCE)).unwrap();
        ends[1].read_exact(&mut [0; 4]).unwrap();
        ends.reverse();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(20));
    }
}

fn has(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |file| file.len())
}

#[test]
fn a_static_program_that_knows_no_proxy_downloads_through_an_outage() {
    let world = World::build();
    let (get, into) = (world.0.path("get"), world.0.path("by-tun"));
    fs::write(world.0.path("get.go"), GET).unwrap();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&get).arg(world.0.path("get.go")).env("CGO_ENABLED", "0").env("GOCACHE", cache);
    let has_go = go.current_dir(world.0.path("")).status().is_ok_and(|made| made.success());
    assert!(has_go, "`go` is missing, or makes nothing: tools/setup installs it, as root");
    assert!(!fs::read(&get).unwrap().windows(8).any(|name| name == b"ld-linux"), "it is static");

    // There is no network at all.
    world.0.ip("phone", "link set wifi down").unwrap();
    world.0.ip("phone", "link set cell down").unwrap();
    let (phone, relay) = (world.at("phone", "cell").to_string(), world.relay());
    let mut agent = world.0.start_agent(&["--tun"]).unwrap();
    let url = format!("http://{WEB}/file");
    let mut download = world.download("phone", &[get.to_str().unwrap(), &url], &into);
    until("it is connected without a network", || world.status().contains(&format!("{WEB}:80, from hoop0: for ")));
    world.enter_wifi();
    download.grown(FIRST);

    assert!(has(&into) < LEN as u64, "it is cut in the middle");
    world.roam();
    world.assert_whole(download);

    // What is carried, and what is not.
    assert_eq!(world.seen("phone", TELLS, TELLS_AT).unwrap(), relay);
    assert_eq!(world.seen("phone", TELLS_V6, TELLS_AT).unwrap(), "2001:db8:2::2");
    let refused = world.seen("phone", TELLS, TELLS_AT + 1).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionReset, "it was connected already");
    assert_eq!(world.seen_by_udp("phone"), phone, "UDP is left alone");
    assert_eq!(world.seen("phone", TELLS, DNS).unwrap(), phone, "so is DNS by TCP");
    assert_eq!(world.seen("phone", world.at("guest", "lan"), TELLS_AT).unwrap(), world.at("phone", "lan").to_string());
    assert!(world.seen("net", world.at("phone", "cell"), TELLS_AT).is_ok(), "who comes in is answered as before");
    if has_others() {
        let asks = format!("exec 3<>/dev/tcp/{TELLS}/{TELLS_AT}; cat <&3");
        let told = world.0.lab.command("phone", "setpriv").args(OTHER).args(["bash", "-c", &asks]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&told.stdout), phone, "another user's program goes by itself");
    } else {
        println!("not tested: only root can run a program as another user");
    }
    let status = world.status();
    assert!(status.starts_with("hoop agent at 127.0.0.1:4673 and TUN hoop0: by relay.example:4669\n"), "{status}");

    // Somebody takes all rules of nftables away, as the reload of a firewall does.
    world.shell("phone", "nft flush ruleset");
    until("programs are taken in again", || world.seen("phone", TELLS, TELLS_AT).is_ok_and(|seen| seen == relay));
    let second = world.0.start_agent(&["--tun", "--listen", "127.0.0.1:4680"]).unwrap_err().to_string();
    assert!(second.contains("another `hoop agent --tun` has the interface hoop0"), "{second}");
    assert_eq!(world.seen("phone", TELLS, TELLS_AT).unwrap(), relay);

    agent.kill();
    assert!(world.left().contains("hoop_agent"), "it could not take them out");
    assert_eq!(world.seen("phone", TELLS, TELLS_AT).unwrap(), phone, "without it, everything is as before");
    let agent = world.0.start_agent(&["--tun"]).unwrap();
    assert_eq!(world.seen("phone", TELLS, TELLS_AT).unwrap(), relay, "the next one replaces what is left");
    stop(agent);
    assert_eq!(world.left(), "", "nothing is left");
    assert_eq!(world.seen("phone", TELLS, TELLS_AT).unwrap(), phone);
}

#[test]
fn another_machine_of_the_lan_goes_through_the_agent_by_tun_lan() {
    let world = World::build();
    world.ip("phone", "link set cell down");
    world.enter_wifi();
    let (guest, relay) = (world.at("guest", "lan").to_string(), world.relay());
    assert_eq!(world.seen("guest", TELLS, TELLS_AT).unwrap(), guest);
    let held = ["phone", "guest"].map(|host| world.held(host));
    let mut agent = world.0.start_agent(&["--tun", "--tun-lan", "lan"]).unwrap();
    held.into_iter().for_each(assert_goes_on);
    let (url, into) = (format!("http://{WEB}/file"), world.0.path("by-lan"));
    let curl = ["curl", "--silent", "--show-error", "--fail", &url, "--output"];
    let mut download = world.download("guest", &curl, &into);
    download.grown(FIRST);
    let status = world.status();
    assert!(status.contains(&format!("{WEB}:80, from {guest}: for ")), "{status}");
    assert!(has(&into) < LEN as u64, "it is cut in the middle");
    world.roam();
    world.assert_whole(download);
    assert_eq!(world.seen("guest", TELLS, TELLS_AT).unwrap(), relay);
    assert_eq!(world.seen("guest", TELLS_V6, TELLS_AT).unwrap(), "2001:db8:2::2");
    assert_eq!(world.seen_by_udp("guest"), guest, "UDP is left alone");
    assert_eq!(world.seen("guest", TELLS, DNS).unwrap(), guest, "so is DNS by TCP");
    assert_eq!(world.seen("guest", world.at("phone", "lan"), TELLS_AT).unwrap(), guest, "the device itself");
    let status = world.status();
    assert!(status.starts_with("hoop agent at 127.0.0.1:4673 and TUN hoop0, LAN lan: by "), "{status}");
    agent.kill();
    assert_eq!(world.seen("guest", TELLS, TELLS_AT).unwrap(), guest, "without it, everything is as before");
    let agent = world.0.start_agent(&["--tun", "--tun-lan", "lan"]).unwrap();
    assert_eq!(world.seen("guest", TELLS, TELLS_AT).unwrap(), relay);
    stop(agent);
    assert_eq!(world.left(), "", "nothing is left");
    assert_eq!(world.seen("guest", TELLS, TELLS_AT).unwrap(), guest);
}

/// Its name is looked up, UDP is shut, and it has no private address: so its carriers go where programs go, by TCP, and are told from them by their mark.
#[test]
fn the_relay_is_reached_past_the_tun_by_the_agent_and_by_programs() {
    const RELAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
    let world = World::build();
    world.ip("phone", "link set cell down");
    world.enter_wifi();
    world.ip("relay", &format!("address add {RELAY}/32 dev lo"));
    world.ip("net", &format!("route add {RELAY} via {}", world.at("relay", "core")));
    world.ip("net", "rule add ipproto udp blackhole");
    world.tell("relay", TELLS_AT);
    let introduction = fs::read_to_string(world.0.path("relay.toml")).unwrap();
    let by_name: String =
        introduction.lines().filter(|line| !line.starts_with("addresses")).map(|line| format!("{line}\n")).collect();
    fs::write(world.0.path("by-name.toml"), by_name).unwrap();
    fs::write(world.0.path("hosts"), format!("{RELAY} relay.example\n")).unwrap();
    let mut agent = world.0.lab.command("phone", "unshare");
    // By a user of its own, if there can be one, and with one capability.
    let user = if has_others() { "--reuid=65534 --regid=65534 --clear-groups --no-new-privs" } else { "" };
    let rights = "--bounding-set=-all,+net_admin --inh-caps=-all,+net_admin --ambient-caps=-all,+net_admin";
    let script = format!(
        "mount --bind \"$1\" /etc/hosts && mkdir \"$4\" && mount -t tmpfs -o mode=755 none \"$4\" && cd \"$4\" && touch hoop tun &&
        mount --bind \"$2\" hoop && cp \"$3\" relay.toml && chmod 644 relay.toml && (mknod -m 666 tun2 c 10 200 && mv tun2 tun || mount --bind /dev/net/tun tun) &&
        mount --rbind \"$4\" /dev/net && cd /dev/net && exec setpriv {user} {rights} ./hoop agent --tun --tun-lan lan --relay relay.toml"
    );
    agent.args(["--mount", "sh", "-c", &script, "sh"]).arg(world.0.path("hosts"));
    agent.arg(hoop_testbed::program_beside("hoop")).arg(world.0.path("by-name.toml")).arg(world.0.path("rights"));
    let _agent = Program::start("hoop agent", agent, "listening on").unwrap();
    for host in ["phone", "guest"] {
        assert_eq!(world.seen(host, TELLS, TELLS_AT).unwrap(), world.relay());
    }
    assert!(world.status().contains("carrier any: WebSocket"), "{}", world.status());
    // Meanwhile it is known where it is.
    let [phone, guest] = [("phone", "wifi"), ("guest", "lan")].map(|(host, link)| world.at(host, link).to_string());
    assert_eq!(world.seen("phone", RELAY, TELLS_AT).unwrap(), phone);
    assert_eq!(world.seen("guest", RELAY, TELLS_AT).unwrap(), guest);
}

#[test]
fn without_what_it_takes_a_tun_is_refused_and_nothing_is_left() {
    let world = World::build();
    let hoop = hoop_testbed::program_beside("hoop");
    for (flags, hides, code, words) in [
        (&["--tun", "--tun-lan", "lan9"][..], "true", 2, "there is no network interface lan9"),
        (&["--tun-lan", "lan"], "true", 2, "--tun"),
        (&["--tun"], "mount -t tmpfs none /usr/sbin", 1, "`nft` is missing: install the package nftables"),
        (&["--tun"], "mount -t tmpfs none /dev/net", 1, "there is no /dev/net/tun"),
    ] {
        let mut agent = world.0.lab.command("phone", "unshare");
        agent.args(["--mount", "sh", "-c", &format!("{hides} && exec \"$@\""), "sh"]).arg(&hoop).arg("agent");
        let ended = agent.arg("--relay").arg(world.0.path("relay.toml")).args(flags).output().unwrap();
        let error = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(code) && error.contains(words), "{flags:?}: {}: {error}", ended.status);
        assert_eq!(world.left(), "");
    }
}
