//! A lab on real namespaces and devices: what passes, what changes, and that nothing stays behind.
//!
//! Where the machine allows no lab these tests say so and pass; `HOOP_LAB_REQUIRED=1` makes them fail instead.
#![cfg(target_os = "linux")]

use hoop_lab::{Change, Direction, Host, Lab, Link, LinkConfig, Loss, Probability, Topology};
use hoop_units::{Bitrate, Duration};
use nix::net::if_::InterfaceFlags;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

#[test]
fn datagrams_and_streams_pass_a_forwarding_gateway() {
    let Some(lab) = demo() else { return };

    let echo = lab.in_host("service", || UdpSocket::bind("0.0.0.0:7")).unwrap();
    let ping = lab.in_host("device", || UdpSocket::bind("0.0.0.0:0")).unwrap();
    ping.send_to(b"ping", (lab.address("service"), 7)).unwrap();
    let mut buffer = [0; 16];
    let (length, from) = echo.recv_from(&mut buffer).unwrap();
    assert_eq!(from.ip(), lab.address("device"), "no address is translated on the way");
    echo.send_to(&buffer[..length], from).unwrap();
    assert_eq!(ping.recv(&mut buffer).unwrap(), 4);

    let listener = lab.in_host("service", || TcpListener::bind("0.0.0.0:80")).unwrap();
    let mut client = lab.in_host("device", || TcpStream::connect((lab.address("service"), 80))).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sent: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let received = thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == sent, "what arrives is what was sent");
    let counters = lab.counters("dsl");
    assert!(counters.up.passed_bytes > 100_000 && counters.up.queue_bytes_peak > 0, "{counters:?}");
}

#[test]
fn names_resolve_for_programs_and_for_closures() {
    let Some(lab) = demo() else { return };
    let output = lab.command("device", "getent").args(["hosts", "photos.example"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&lab.address("service").to_string()), "{text}");

    // The gateway is known to each by the end that faces it.
    for (host, link) in [("device", "lan"), ("service", "dsl")] {
        let found =
            lab.in_host(host, || std::net::ToSocketAddrs::to_socket_addrs("gateway:80").unwrap().next().unwrap());
        assert_eq!(found.ip(), lab.address_on("gateway", link));
    }
    let text = fs::read_to_string("/etc/hosts").unwrap_or_default();
    assert!(!text.contains("photos.example"), "the machine's own file is untouched");
}

#[test]
fn a_program_starts_in_the_present_folder_and_sees_only_its_host() {
    let Some(lab) = demo() else { return };
    let output = lab.command("gateway", "sh").args(["-c", "pwd; cat /proc/net/dev"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().next().map(Path::new), std::env::current_dir().ok().as_deref());
    assert_eq!(devices(&text), ["lo", "lan", "dsl"]);
}

#[test]
fn multicast_passes_a_link_on_an_interface_that_is_not_point_to_point() {
    let Some(lab) = demo() else { return };
    let group = Ipv4Addr::new(224, 0, 0, 251);
    let listener = lab
        .in_host("gateway", || {
            let socket = UdpSocket::bind("0.0.0.0:5353")?;
            socket.join_multicast_v4(&group, &lab.address_on("gateway", "lan"))?;
            Ok::<_, std::io::Error>(socket)
        })
        .unwrap();
    let sender = lab.in_host("device", || UdpSocket::bind("0.0.0.0:0")).unwrap();
    sender.send_to(b"who is hoop.local?", (group, 5353)).unwrap();
    let (_, from) = listener.recv_from(&mut [0; 64]).unwrap();
    assert_eq!(from.ip(), lab.address("device"));

    // Libraries for multicast DNS leave point-to-point interfaces out.
    let interfaces = lab.in_host("device", || nix::ifaddrs::getifaddrs().unwrap().collect::<Vec<_>>());
    let lan = interfaces.iter().find(|interface| interface.interface_name == "lan").unwrap();
    assert!(lan.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_MULTICAST));
    assert!(!lan.flags.contains(InterfaceFlags::IFF_POINTOPOINT));
}

#[test]
fn a_link_can_be_cut_and_joined_and_made_lossy_while_it_runs() {
    let Some(lab) = demo() else { return };
    let receiver = lab.in_host("gateway", || UdpSocket::bind("0.0.0.0:9")).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let sender = lab.in_host("device", || UdpSocket::bind("0.0.0.0:0")).unwrap();
    let target = (lab.address("gateway"), 9);
    // Sends one datagram, waits until the link has dealt with it, and says whether it arrived.
    let passes = || {
        let before = lab.counters("lan").up;
        sender.send_to(b"x", target).unwrap();
        wait_until(|| {
            let now = lab.counters("lan").up;
            now.passed_packets + now.dropped_packets() > before.passed_packets + before.dropped_packets()
        });
        if lab.counters("lan").up.passed_packets == before.passed_packets {
            return false;
        }
        wait_until(|| receiver.recv(&mut [0; 8]).is_ok());
        true
    };
    assert!(passes());
    lab.set_link("lan", Direction::Up, Change::new().connected(false));
    assert!(!passes());
    assert_eq!(lab.counters("lan").up.dropped_unconnected, 1);
    lab.set_link("lan", Direction::Both, Change::new().connected(true).rate(Bitrate::mbps(1)));
    assert!(passes());
    lab.set_link("lan", Direction::Up, Change::new().loss(Loss::Independent(Probability::ONE)));
    assert!(!passes());
    assert_eq!(lab.counters("lan").up.dropped_by_loss, 1);
    assert_eq!(lab.counters("lan").down.dropped_packets(), 0, "the other direction is its own");
}

#[test]
fn a_socket_bound_to_an_uplink_uses_it_though_another_is_shorter() {
    if !enter() {
        return;
    }
    let topology = Topology::new()
        .host(Host::new("device"))
        .host(Host::new("tower").forwarding())
        .host(Host::new("core").forwarding())
        .host(Host::new("service"))
        .link(Link::new("wifi", "device", "service"))
        .link(Link::new("cell", "device", "tower"))
        .link(Link::new("backhaul", "tower", "core"))
        .link(Link::new("exchange", "core", "service"));
    let lab = Lab::build(&topology).unwrap();
    let service = lab.in_host("service", || UdpSocket::bind("0.0.0.0:9")).unwrap();
    let target = (lab.address_on("service", "wifi"), 9);
    for (uplink, expected) in [(None, "wifi"), (Some("wifi"), "wifi"), (Some("cell"), "cell")] {
        let socket = lab.in_host("device", || UdpSocket::bind("0.0.0.0:0")).unwrap();
        if let Some(uplink) = uplink {
            setsockopt(&socket, sockopt::BindToDevice, &uplink.into()).unwrap();
        }
        let before = lab.counters(expected).up.entered_packets;
        socket.send_to(b"hello", target).unwrap();
        let (_, from) = service.recv_from(&mut [0; 8]).unwrap();
        assert_eq!(from.ip(), lab.address_on("device", expected));
        assert_eq!(lab.counters(expected).up.entered_packets, before + 1);
        // A bound socket hears only what comes in by its interface: so must the answer.
        service.send_to(b"hello yourself", from).unwrap();
        assert_eq!(socket.recv(&mut [0; 32]).unwrap(), 14);
    }
}

#[test]
fn a_dropped_lab_leaves_no_process_no_namespace_and_no_device() {
    let Some(lab) = demo() else { return };
    // A shell that starts another program, which the lab did not start itself.
    let mut child = shell_with_grandchild(lab.command("device", "sh"));
    let grandchild = first_line(&mut child);
    let namespace = namespace_of(&grandchild).expect("it runs");
    assert_ne!(Some(&namespace), namespace_of("self").as_ref());
    let pinned = File::open(format!("/proc/{grandchild}/ns/net")).unwrap();
    assert_eq!(devices_in(&pinned), ["lo", "lan"]);

    drop(lab);
    assert!(!child.wait().unwrap().success());
    assert_eq!(processes_in(&namespace), Vec::<String>::new());
    assert_eq!(devices_in(&pinned), ["lo"]);
    drop(pinned);
    assert!(!open_files().contains(&namespace), "nobody holds the namespace any more");
}

#[test]
fn a_lab_killed_by_sigkill_leaves_nothing_behind() {
    if !enter() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.toml");
    fs::write(&file, TOPOLOGY).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_hoop-lab"));
    run.arg("run").arg(&file).args(["--host", "b", "--", "sh"]);
    let mut lab = shell_with_grandchild(run);
    let grandchild = first_line(&mut lab);
    let namespace = namespace_of(&grandchild).expect("it runs");
    assert_ne!(namespace_of("self"), Some(namespace.clone()));

    lab.kill().unwrap();
    lab.wait().unwrap();
    wait_until(|| namespace_of(&grandchild).is_none());
    wait_until(|| processes_in(&namespace).is_empty());
}

/// The topology of the demo; `None`, and a word about it, where no lab can be.
fn demo() -> Option<Lab> {
    if !enter() {
        return None;
    }
    let dsl = LinkConfig::new().delay(Duration::from_millis(10));
    let topology = Topology::new()
        .host(Host::new("device"))
        .host(Host::new("gateway").forwarding())
        .host(Host::new("service").named("photos.example"))
        .link(
            Link::new("lan", "device", "gateway")
                .both(LinkConfig::new().rate(Bitrate::mbps(30)).delay(Duration::from_millis(1))),
        )
        .link(
            Link::new("dsl", "gateway", "service")
                .up(dsl.clone().rate(Bitrate::kbps(1_150)))
                .down(dsl.rate(Bitrate::mbps(12))),
        );
    Some(Lab::build(&topology).unwrap())
}

/// Whether there can be a lab.
fn enter() -> bool {
    let result = hoop_lab::enter();
    if let Err(why_not) = &result {
        assert!(std::env::var_os("HOOP_LAB_REQUIRED").is_none(), "{why_not}");
        eprintln!("skipped: {why_not}");
    }
    result.is_ok()
}

const TOPOLOGY: &str = r#"
hosts = [{ name = "a" }, { name = "b" }]
links = [{ name = "wire", between = ["a", "b"], both = { delay = "1 ms" } }]
"#;

/// Starts `sh`, which starts `sleep` in the background, prints its process id and waits.
fn shell_with_grandchild(mut shell: Command) -> Child {
    shell.args(["-c", "sleep 1000 >/dev/null & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap()
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The network namespace of a process; `None` when it has ended.
fn namespace_of(process: &str) -> Option<String> {
    match fs::read_link(format!("/proc/{process}/ns/net")) {
        Ok(link) => Some(link.to_string_lossy().into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("process {process}: {error}"),
    }
}

fn processes_in(namespace: &str) -> Vec<String> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|name| {
            fs::read_link(format!("/proc/{name}/ns/net")).is_ok_and(|link| link.to_string_lossy() == namespace)
        })
        .collect()
}

/// The devices in a network namespace.
fn devices_in(namespace: &File) -> Vec<String> {
    let text = thread::scope(|scope| {
        let inside = scope.spawn(|| {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            fs::read_to_string("/proc/thread-self/net/dev").unwrap()
        });
        inside.join().unwrap()
    });
    devices(&text)
}

/// The names in the text of `/proc/net/dev`.
fn devices(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// What this process's descriptors point to.
fn open_files() -> Vec<String> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    descriptors.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned())).collect()
}

/// Waits for what must come; the limit is there so that a failure ends, not to time anything.
fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came");
        thread::sleep(Duration::from_millis(2));
    }
}
