//! A phone with two networks, and a relay of its owner's: [`Roaming`].

use crate::{Certificates, Program, program_beside};
use hoop_lab::{Host, Lab, Link, LinkConfig, Topology};
use hoop_units::{Bitrate, Duration};
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Networks that the relay goes to though nobody is there, but whom a test puts there (RFC 5737, RFC 3849).
const NOWHERE: [&str; 2] = ["192.0.2.0/24", "2001:db8::/32"];

/// A phone that runs programs by `hoop run`, the relay that it was introduced to, and a web server behind that one.
///
/// ```text
///         wifi: 8 Mbit/s, 10 ms
///  phone ═══════════════════════ net ── relay ── web
///         cell: 8 Mbit/s, 25 ms
/// ```
///
/// From the phone there is no way to the web server but by flows; the relay's machine has a web server of its own, of the same file, for whoever goes there as he is.
pub struct Roaming {
    /// Where it is: hosts `phone`, `net`, `relay`, `web`.
    pub lab: Lab,
    folder: TempDir,
    relay: Mutex<Option<Program>>,
    _programs: Vec<Program>,
}

impl Roaming {
    /// Builds it, with a file of so many bytes to download.
    ///
    /// # Errors
    /// If namespaces are not allowed, or a program does not start.
    pub fn build(len: usize) -> io::Result<Self> {
        Self::build_with(len, |topology| topology)
    }

    /// Builds it with more hosts and links.
    ///
    /// # Errors
    /// As [`Roaming::build`].
    pub fn build_with(len: usize, more: impl FnOnce(Topology) -> Topology) -> io::Result<Self> {
        let link = |mbps: u64, ms: u64| LinkConfig::new().rate(Bitrate::mbps(mbps)).delay(Duration::from_millis(ms));
        let topology = Topology::new()
            .host(Host::new("phone"))
            .host(Host::new("net").forwarding())
            .host(Host::new("relay"))
            .host(Host::new("web"))
            .link(Link::new("wifi", "phone", "net").both(link(8, 10)))
            .link(Link::new("cell", "phone", "net").both(link(8, 25)))
            .link(Link::new("core", "net", "relay").both(link(200, 5)))
            .link(Link::new("rack", "relay", "web").both(link(200, 1)));
        let lab = Lab::build(&more(topology)).map_err(io::Error::other)?;
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        let certificates = Certificates::make(folder.path(), &["relay.example"])?;
        std::fs::create_dir(path("www"))?;
        let file: Vec<u8> = (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(path("www/file"), file)?;
        let mut introduce = Command::new(program_beside("hoop"));
        introduce.args(["introduce", "relay.example:4669", "--address", &lab.address_on("relay", "core").to_string()]);
        introduce.arg("--devices").arg(path("devices.toml")).arg("--cert").arg(&certificates.authority);
        let introduced = introduce.output()?;
        if !introduced.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&introduced.stderr).into_owned()));
        }
        std::fs::write(path("relay.toml"), introduced.stdout)?;
        let mut programs = Vec::new();
        for host in ["web", "relay"] {
            let mut web = lab.command(host, "python3");
            web.args(["-u", "-m", "http.server", "80", "--directory"]).arg(path("www"));
            programs.push(Program::start("a web server", web, "Serving HTTP").map_err(io::Error::other)?);
        }
        let world = Self { lab, folder, relay: Mutex::default(), _programs: programs };
        world.restart_relay()?;
        // What is not for the relay has no other way to the web.
        world.ip("web", &format!("route replace default via {}", world.lab.address_on("relay", "rack")))?;
        Ok(world)
    }

    fn start_relay(&self, more: &[&str]) -> io::Result<Program> {
        let mut relay = self.lab.command("relay", program_beside("hoop"));
        relay.args(["relay", "--listen", "0.0.0.0:4669", "--allow", &self.lab.address("web").to_string()]);
        relay.args(NOWHERE.iter().flat_map(|network| ["--allow", network]));
        relay.arg("--tls-cert").arg(self.path("certificate.pem")).arg("--tls-key").arg(self.path("key.pem"));
        relay.arg("--devices").arg(self.path("devices.toml")).args(more);
        Program::start("hoop relay", relay, "listening on").map_err(io::Error::other)
    }

    /// Kills the relay, and starts another, which knows nothing of what the first one carried.
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart_relay(&self) -> io::Result<()> {
        self.restart_relay_with(&[])
    }

    /// The same, with more flags.
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart_relay_with(&self, more: &[&str]) -> io::Result<()> {
        let mut relay = self.relay.lock();
        // The old one goes first.
        *relay = None;
        *relay = Some(self.start_relay(more)?);
        Ok(())
    }

    /// A file of it; the one to download is `www/file`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `ip` in a host.
    ///
    /// # Errors
    /// What it says, if it fails.
    pub fn ip(&self, host: &str, arguments: &str) -> io::Result<()> {
        let done = self.lab.command(host, "ip").args(arguments.split(' ')).output()?;
        match done.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&done.stderr)))),
        }
    }

    /// A program under `hoop run`, on the phone.
    pub fn run(&self, program: &str) -> Command {
        let mut run = self.lab.command("phone", program_beside("hoop"));
        run.arg("run").arg("--relay").arg(self.path("relay.toml")).args(["--", program]);
        run
    }

    /// A program under `hoop run`, on the phone, whose connections the agent carries that was [started](Self::start_agent).
    pub fn run_by_agent(&self, program: &str) -> Command {
        let mut run = self.lab.command("phone", program_beside("hoop"));
        run.args(["run", "--", program]).env("XDG_RUNTIME_DIR", self.folder.path()).env_remove("HOOP_RELAY");
        run
    }

    /// Starts `hoop agent` on the phone.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start_agent(&self, more: &[&str]) -> io::Result<Program> {
        let mut agent = self.lab.command("phone", program_beside("hoop"));
        agent.arg("agent").arg("--relay").arg(self.path("relay.toml")).args(more);
        agent.env("XDG_RUNTIME_DIR", self.folder.path());
        Program::start("hoop agent", agent, "listening on").map_err(io::Error::other)
    }

    /// The phone has Wi-Fi, and no mobile network.
    ///
    /// # Errors
    /// As [`Roaming::ip`].
    pub fn enter_wifi(&self) -> io::Result<()> {
        self.ip("phone", "link set cell down")?;
        self.ip("phone", "link set wifi up")?;
        self.route_by("wifi")
    }

    /// The phone's Wi-Fi goes.
    ///
    /// # Errors
    /// As [`Roaming::ip`].
    pub fn leave_wifi(&self) -> io::Result<()> {
        self.ip("phone", "link set wifi down")
    }

    /// The phone has the mobile network, and another address in it.
    ///
    /// # Errors
    /// As [`Roaming::ip`].
    pub fn reach_cell(&self) -> io::Result<()> {
        self.ip("phone", "link set cell up")?;
        self.route_by("cell")
    }

    fn route_by(&self, link: &str) -> io::Result<()> {
        let (net, relay) = (self.lab.address_on("net", link), self.lab.address_on("relay", "core"));
        self.ip("phone", &format!("route replace {relay} via {net}"))
    }
}
