//! Names with several addresses under `hoop run`: where the first of them is dead, programs go on to the next as they do without. Real curl, wget and Python, a real relay and web server,
//! simulated links.

use hoop_lab::{Change, Direction};
use hoop_testbed::Roaming;
use std::process::{Command, Output};
use std::time::Duration;

/// Where the relay reaches a machine that refuses, one that never answers, and none.
const REFUSES: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const NEVER_ANSWERS: [&str; 2] = ["192.0.2.2", "2001:db8::2"];
const NOT_THERE: [&str; 2] = ["192.0.2.3", "2001:db8::3"];

/// The web server's IPv6 address.
const WEB: &str = "2001:db8:1::2";

struct World(Roaming);

impl World {
    /// The phone has Wi-Fi; dead addresses of both families are behind the relay.
    fn build() -> Self {
        let roaming = Roaming::build(1_000).expect("a lab: run as root, or where user namespaces are allowed");
        let world = Self(roaming);
        world.0.enter_wifi().unwrap();
        for host in ["phone", "net", "relay", "web"] {
            let on = "for off in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 0 > $off || exit 1; done";
            assert!(world.0.lab.command(host, "sh").args(["-c", on]).status().unwrap().success());
        }
        let net = world.0.lab.address_on("net", "core");
        // Programs look for IPv6 addresses where they have one.
        world.ip("phone", "-6 address add 2001:db8:3::1/64 dev wifi nodad");
        world.ip("relay", "-6 address add 2001:db8:2::2/64 dev core nodad");
        world.ip("net", "-6 address add 2001:db8:2::1/64 dev core nodad");
        world.ip("relay", "-6 address add 2001:db8:1::1/64 dev rack nodad");
        world.ip("web", &format!("-6 address add {WEB}/64 dev rack nodad"));
        world.ip("net", &format!("address add {}/32 dev lo", REFUSES[0]));
        world.ip("net", &format!("-6 address add {}/128 dev lo nodad", REFUSES[1]));
        for dead in [REFUSES, NEVER_ANSWERS] {
            world.ip("relay", &format!("route add {} via {net}", dead[0]));
            world.ip("relay", &format!("-6 route add {} via 2001:db8:2::1", dead[1]));
        }
        world.ip("net", &format!("route add blackhole {}", NEVER_ANSWERS[0]));
        world.ip("net", &format!("-6 route add blackhole {}", NEVER_ANSWERS[1]));
        world.ip("relay", &format!("route add unreachable {}", NOT_THERE[0]));
        world.ip("relay", &format!("-6 route add unreachable {}", NOT_THERE[1]));
        world
    }

    fn ip(&self, host: &str, arguments: &str) {
        self.0.ip(host, arguments).unwrap();
    }

    fn web(&self) -> String {
        self.0.lab.address("web").to_string()
    }

    /// Runs a program, with a file of hosts that names these addresses `web.example`, in this order: as it is, where the relay is, or under `hoop run` on the phone.
    fn run(&self, is_carried: bool, addresses: &[&str], program: &str) -> Output {
        let hosts = addresses.iter().map(|address| format!("{address} web.example\n")).collect::<String>();
        std::fs::write(self.0.path("hosts"), hosts).unwrap();
        let script = r#"mount --bind "$0" /etc/hosts && exec sh -c "$1""#;
        let mut run: Command = match is_carried {
            true => self.0.run("unshare"),
            false => self.0.lab.command("relay", "unshare"),
        };
        run.args(["--mount", "sh", "-c", script]).arg(self.0.path("hosts")).arg(program);
        run.output().unwrap()
    }
}

const CURL: &str =
    "exec curl --silent --show-error --fail --connect-timeout 6 http://web.example/file --output /dev/null";
const WGET: &str = "exec wget --quiet --tries 1 --connect-timeout 2 http://web.example/file -O /dev/null";
const PYTHON: &str = "exec python3 -c 'import socket
with socket.create_connection((\"web.example\", 80), 2) as web:
    web.sendall(b\"GET /file HTTP/1.0\\r\\n\\r\\n\")
    assert b\" 200 OK\" in web.recv(100)'";
/// Without a timeout: what connects blocks.
const BLOCKING: &str =
    "exec python3 -c 'import urllib.request; urllib.request.urlopen(\"http://web.example/file\").read()'";

#[test]
fn programs_go_on_to_a_names_next_address_as_without() {
    let world = World::build();
    let web = world.web();
    for program in [CURL, WGET, PYTHON, BLOCKING] {
        let mut cases = Vec::new();
        for dead in [REFUSES, NOT_THERE, NEVER_ANSWERS] {
            // Nobody waits for the two minutes that the kernel has, nor for the relay's 20 s.
            if program == BLOCKING && dead == NEVER_ANSWERS {
                continue;
            }
            cases.extend([vec![dead[0], &web], vec![dead[1], &web], vec![dead[0]], vec![dead[1]]]);
        }
        for addresses in cases {
            let (carried, as_it_is) = (world.run(true, &addresses, program), world.run(false, &addresses, program));
            let told = String::from_utf8_lossy(&carried.stderr);
            assert_eq!(carried.status.code(), as_it_is.status.code(), "{program}, {addresses:?}: {told}");
            assert_eq!(carried.status.success(), addresses.len() == 2, "{program}, {addresses:?}: {told}");
        }
    }
}

#[test]
fn connecting_takes_no_longer_than_without() {
    const TIMES: &str = "import socket, sys, time
for again in range(3):
    begun = time.monotonic()
    web = socket.create_connection((sys.argv[1], 80))
    made = time.monotonic()
    web.sendall(b'GET /file HTTP/1.0\\r\\n\\r\\n')
    web.recv(1)
    print(made - begun, time.monotonic() - begun)";
    let world = World::build();
    world.0.lab.set_link("wifi", Direction::Both, Change::new().delay(hoop_units::Duration::from_millis(45)));
    let times = |mut run: Command, to: &str| {
        let told = run.args(["-c", TIMES, to]).output().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let told = String::from_utf8(told.stdout).unwrap();
        println!("{told}");
        let last = told.lines().last().unwrap().split(' ').map(|secs| secs.parse().unwrap()).collect::<Vec<f64>>();
        (Duration::from_secs_f64(last[0]), Duration::from_secs_f64(last[1]))
    };
    let own = world.0.lab.address_on("relay", "core").to_string();
    let as_it_is = times(world.0.lab.command("phone", "python3"), &own);
    let carried = times(world.0.run("python3"), &world.web());
    // The web server is 2 ms behind the relay, and machines are busy.
    let more = Duration::from_millis(50);
    assert!(carried.0 < as_it_is.0 + more, "{carried:?} and {as_it_is:?} without");
    assert!(carried.1 < as_it_is.1 + more, "{carried:?} and {as_it_is:?} without");
}
