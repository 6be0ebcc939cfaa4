//! Names that programs leave to the relay, on a phone that has no name server: `hoop run --remote-dns`. Real curl, wget, Python and Perl, a real relay and web server, simulated links.

use hoop_testbed::{Program, Roaming, program_beside};
use std::process::{Command, Output};
use std::time::Duration;

/// Generous, since machines are busy.
const PATIENCE: Duration = Duration::from_secs(60);

struct World(Roaming);

impl World {
    /// The relay knows `web.example`; the phone knows nobody who could tell it.
    fn build() -> Self {
        let world = Self(Roaming::build(1_000).expect("a lab: run as root, or where user namespaces are allowed"));
        world.0.ip("phone", "link set cell down").unwrap();
        for (host, file, text) in [
            ("relay", "hosts", format!("{} web.example\n", world.0.lab.address("web"))),
            ("phone", "resolv.conf", String::new()),
        ] {
            std::fs::write(world.0.path(file), text).unwrap();
            let mut mount = world.0.lab.command(host, "mount");
            mount.arg("--bind").arg(world.0.path(file)).arg(format!("/etc/{file}"));
            assert!(mount.status().unwrap().success());
        }
        world
    }

    fn by_agent(&self, script: &str) -> Command {
        let mut run = self.0.lab.command("phone", program_beside("hoop"));
        run.args(["run", "--remote-dns", "--", "sh", "-c", script]);
        run.env("XDG_RUNTIME_DIR", self.0.path("")).env_remove("HOOP_RELAY");
        run
    }

    fn by_itself(&self, script: &str) -> Command {
        let mut run = self.by_agent(script);
        run.env("HOOP_RELAY", self.0.path("relay.toml"));
        run
    }
}

fn text(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))
}

const CURL: &str = "exec curl --silent --show-error --fail http://web.example/file --output /dev/null";
const WGET: &str = "exec wget --quiet --tries 1 http://WEB.example/file -O /dev/null";
const PYTHON: &str =
    "exec python3 -c 'import urllib.request; urllib.request.urlopen(\"http://web.example/file\").read()'";
/// By `gethostbyname`.
const PERL: &str = "exec perl -e 'use IO::Socket::INET;
my $web = IO::Socket::INET->new(\"web.example:80\") or die \"$@\";
print $web \"GET /file HTTP/1.0\\r\\n\\r\\n\";
<$web> =~ / 200 / or die'";

#[test]
fn programs_reach_names_that_only_the_relay_can_look_up() {
    let world = World::build();
    world.0.enter_wifi().unwrap();
    let _agent = world.0.start_agent(&[]).unwrap();
    for program in [CURL, WGET, PYTHON, PERL] {
        for mut run in [world.by_agent(program), world.by_itself(program)] {
            let ran = run.output().unwrap();
            assert!(ran.status.success(), "{program}: {}", text(&ran));
        }
        let mut here = world.0.run("sh");
        let ran = here.args(["-c", program]).output().unwrap();
        assert!(!ran.status.success(), "the phone can look nothing up: {program}: {}", text(&ran));
    }
    let ran = world.by_agent(&CURL.replace("web", "none")).output().unwrap();
    assert_eq!(ran.status.code(), Some(7), "it could not connect: {}", text(&ran));
    // What stands for names is for whoever asked, and others' addresses are the relay's to judge.
    let ran = world.by_agent(&CURL.replace("web.example", "198.18.200.1")).output().unwrap();
    assert_eq!(ran.status.code(), Some(7), "{}", text(&ran));
}

#[test]
fn a_name_is_left_to_the_relay_before_there_is_a_network() {
    let world = World::build();
    // The name has its address before anybody can be asked.
    let looked_up = "getent ahosts web.example && echo it is looked up";
    let mut run = world.by_itself(&format!("{looked_up}; {CURL} --write-out 'curl is done %{{http_code}}\n'"));
    run.env("HOOP_LOG", "hoop_relay=debug");
    world.0.leave_wifi().unwrap();
    let mut run = Program::start("hoop run", run, "it is looked up").unwrap();
    world.0.enter_wifi().unwrap();
    let done = run.wait_for("curl is done", PATIENCE);
    assert!(done.is_some_and(|(_, line)| line.ends_with("200")), "{}", run.text());
    assert!(run.wait().unwrap().success(), "{}", run.text());
}
