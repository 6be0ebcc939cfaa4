//! Device, gateway and service in a lab: [`House`].

use crate::certificates::Certificates;
use crate::program::{Program, StartError};
use hoop_lab::{Host, Lab, Link, LinkConfig, Loss, Probability, QueueLimit, Topology};
use hoop_units::Bitrate;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The service's name in the lab.
pub const SERVICE: &str = "photos.example";

/// The service's origin.
pub const ORIGIN: &str = "https://photos.example";

/// The gateway's port.
pub const HOOP: u16 = 4667;

/// The links of a house.
#[derive(Clone, Copy, Debug)]
pub struct HouseConfig {
    /// Between device and gateway, both ways. Default 30 Mbit/s.
    pub lan: Bitrate,
    /// One way, on the LAN. Default 1 ms.
    pub lan_delay: Duration,
    /// From gateway to service. Default 1.15 Mbit/s: a DSL line of the published measurements.
    pub up: Bitrate,
    /// From service to gateway. Default 12 Mbit/s.
    pub down: Bitrate,
    /// One way, on the uplink. Default 10 ms, which makes a round trip of 20 ms.
    pub uplink_delay: Duration,
    /// How many of 100 packets the uplink loses, each way. Default 0.
    pub uplink_loss_percent: u8,
    /// Bytes that may wait at the uplink's upper end. Default 256 KiB, which on 1.15 Mbit/s is 1.8 s.
    pub uplink_queue: usize,
}

impl Default for HouseConfig {
    fn default() -> Self {
        Self {
            lan: Bitrate::mbps(30),
            lan_delay: Duration::from_millis(1),
            up: Bitrate::kbps(1_150),
            down: Bitrate::mbps(12),
            uplink_delay: Duration::from_millis(10),
            uplink_loss_percent: 0,
            uplink_queue: 256 * 1024,
        }
    }
}

/// Device, gateway and service, wired; programs are started in it by hand.
#[derive(Debug)]
pub struct House {
    lab: Lab,
    folder: TempDir,
    certificates: Certificates,
}

impl House {
    /// Builds the hosts and links, and makes certificates and a service key.
    ///
    /// # Errors
    /// If the machine allows no namespaces, or a file cannot be written.
    pub fn build(config: HouseConfig) -> Result<Self, Box<dyn Error>> {
        let lan = LinkConfig::new().rate(config.lan).delay(config.lan_delay);
        let loss = Loss::Independent(Probability::percent(config.uplink_loss_percent));
        let uplink = LinkConfig::new().delay(config.uplink_delay).loss(loss);
        let topology = Topology::new()
            .host(Host::new("device"))
            .host(Host::new("gateway").forwarding())
            .host(Host::new("service").named(SERVICE))
            .link(Link::new("lan", "device", "gateway").both(lan))
            .link(
                Link::new("uplink", "gateway", "service")
                    .up(uplink.clone().rate(config.up).queue(QueueLimit::bytes(config.uplink_queue)))
                    .down(uplink.rate(config.down)),
            );
        Self::build_on(&topology)
    }

    /// On hosts and links of one's own; the service's host is called `service`, and [`SERVICE`] is a name of it.
    ///
    /// # Errors
    /// If the machine allows no namespaces, or a file cannot be written.
    pub fn build_on(topology: &Topology) -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::Builder::new().prefix("hoop-house").tempdir()?;
        let certificates = Certificates::make(folder.path(), &[SERVICE])?;
        let house = Self { lab: Lab::build(topology)?, folder, certificates };
        let keys = Command::new(program_beside("hoop")).arg("keygen").arg("-o").arg(house.path("keys")).output()?;
        if !keys.status.success() {
            return Err(format!("hoop keygen: {}", String::from_utf8_lossy(&keys.stderr)).into());
        }
        Ok(house)
    }

    /// The lab, to change a link or read its counters.
    pub const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// A path in the house's folder, which goes with the house.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The certificates of the service.
    pub const fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// A program to run on a host.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Command {
        self.lab.command(host, program)
    }

    /// `hoop …` on a host, with a state folder of the house's own.
    pub fn hoop(&self, host: &str) -> Command {
        let mut command = self.lab.command(host, program_beside("hoop"));
        command.env("HOOP_STATE", self.path("device-state"));
        command
    }

    /// Where the gateway listens, as the device sees it.
    pub fn gateway_url(&self) -> String {
        self.gateway_url_on("gateway", "lan")
    }

    /// Where a gateway on this host listens, as devices on that link see it.
    pub fn gateway_url_on(&self, host: &str, link: &str) -> String {
        format!("http://{}:{HOOP}/", self.lab.address_on(host, link))
    }

    /// Starts `hoop gateway` with its spool in the house's folder.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_gateway(&self, more: &[&str]) -> Result<Program, StartError> {
        self.start_gateway_on("gateway", &[&["--public-url", &self.gateway_url()], more].concat())
    }

    /// The same on any host.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_gateway_on(&self, host: &str, more: &[&str]) -> Result<Program, StartError> {
        let mut command = self.hoop(host);
        let spool = if host == "gateway" { "spool".to_owned() } else { format!("spool-{host}") };
        command.args(["gateway", "--listen", &format!("0.0.0.0:{HOOP}"), "--allow-dest", SERVICE]);
        command.arg("--spool").arg(self.path(&spool)).arg("--ca").arg(&self.certificates.authority).args(more);
        Program::start("hoop gateway", command, "listening on")
    }

    /// Starts `hoop service` on port 443 before the application on `upstream` of the same host.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_service(&self, upstream: u16, more: &[&str]) -> Result<Program, StartError> {
        let mut command = self.hoop("service");
        command.args(["service", "--listen", "0.0.0.0:443", "--origin", ORIGIN]);
        command.arg("--upstream").arg(format!("http://127.0.0.1:{upstream}"));
        command.arg("--tls-cert").arg(&self.certificates.certificate).arg("--tls-key").arg(&self.certificates.key);
        command.arg("--keys").arg(self.path("keys")).arg("--state-dir").arg(self.path("service-state")).args(more);
        Program::start("hoop service", command, "listening on")
    }

    /// Starts the example photo wall on port 8000 of the service's host; pictures go to `photos` in the house's folder.
    ///
    /// # Errors
    /// If it does not come up: `npm ci` in its folder is the set-up's to run.
    pub fn start_photo_wall(&self) -> Result<Program, StartError> {
        self.start_photo_wall_with(&[])
    }

    /// The same, with more in its environment: see the photo wall's own words.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_photo_wall_with(&self, more: &[(&str, &str)]) -> Result<Program, StartError> {
        let mut command = self.command("service", "node");
        command.arg(project_folder().join("examples/photo-wall/server.js"));
        command.env("PORT", "8000").env("PHOTOS", self.path("photos")).envs(more.iter().copied());
        Program::start("the photo wall", command, "listening")
    }

    /// `hoop push …` on the device, to be given its form and URL.
    pub fn push(&self, gateway: &str) -> Command {
        let mut command = self.hoop("device");
        command.args(["push", "--gateway", gateway]).arg("--ca").arg(&self.certificates.authority);
        command
    }

    /// `curl …` on the device, trusting the service's certificate.
    pub fn curl(&self) -> Command {
        let mut command = self.command("device", "curl");
        command.args(["--silent", "--show-error", "--cacert"]).arg(&self.certificates.authority);
        command
    }

    /// Makes a file of pseudo-random bytes, the same for the same name and length.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn file(&self, name: &str, len: usize) -> std::io::Result<PathBuf> {
        let path = self.path(name);
        let mut state =
            name.bytes().fold(0x9e37_79b9_7f4a_7c15_u64, |state, byte| state.rotate_left(7) ^ u64::from(byte)) | 1;
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            // xorshift64: no pattern that a record's length could hide in.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        fs::write(&path, &bytes[..len])?;
        Ok(path)
    }
}

/// Another program of the same build: it lies beside this one, or a folder up from a test.
///
/// # Panics
/// If it was not built; `cargo build` builds all.
pub fn program_beside(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let folders = this.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not built: run `cargo build` with the same profile first"))
}

/// The project's own folder, for the examples in it.
fn project_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies two folders down")
}
