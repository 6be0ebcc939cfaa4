//! `hoop relay` and `hoop introduce`: the server's side of programs whose connections are flows.

use crate::exit::{Exit, Failure};
use crate::logging;
use crate::server::{announce_flows, flow_runtime, raise_descriptors, stop_on_signal};
use clap::Args;
use hoop_relay::{Allowed, Relay, RelayConfig, RelayError, introduce};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

#[derive(Args)]
pub struct RelayFlags {
    /// Where to listen, UDP (QUIC) and TCP (WebSocket)
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:4669")]
    listen: SocketAddr,
    /// Chain of certificates, PEM
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Their key, PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The devices that may come; `hoop introduce` adds to it, also while the relay runs
    #[arg(long, value_name = "FILE")]
    devices: PathBuf,
    /// An address that devices may go to though it is not public; may be given several times
    #[arg(long, value_name = "IP")]
    allow: Vec<IpAddr>,
    /// Devices may go anywhere, into this machine's own network too
    #[arg(long)]
    allow_any: bool,
    /// Print and log JSON
    #[arg(long)]
    json: bool,
}

/// Runs a relay until it is told to stop.
pub fn run(flags: RelayFlags) -> Result<Exit, Failure> {
    logging::start(flags.json)?;
    raise_descriptors();
    let addresses = flags.allow.iter().map(IpAddr::to_canonical).collect();
    let config = RelayConfig {
        listen: flags.listen,
        certificate: flags.cert,
        key: flags.key,
        devices: flags.devices,
        allowed: Allowed { any: flags.allow_any, addresses },
    };
    flow_runtime()?.block_on(async {
        let relay = Relay::bind(&config).await.map_err(|error| match error {
            RelayError::Listen { .. } => Failure::new(Exit::Unexpected, "the relay cannot begin", error),
            error => Failure::new(Exit::File, "the relay cannot begin", error),
        })?;
        announce_flows(relay.address(), flags.json);
        let mut stop = stop_on_signal()?;
        tokio::select! {
            () = relay.run() => Err(Failure::new(Exit::Unexpected, "the relay ended", "its socket is gone")),
            () = stop.requested() => Ok(Exit::Done),
        }
    })
}

#[derive(Args)]
pub struct IntroduceFlags {
    /// The relay, as the device reaches it
    #[arg(value_name = "NAME:PORT")]
    server: String,
    /// The relay's file of devices; made if it is not there
    #[arg(long, value_name = "FILE")]
    devices: PathBuf,
    /// Certificates that the device is to trust instead of its system's, PEM: a relay's own, if no authority has signed it
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Where the relay is, if its name is not to be looked up; may be given several times
    #[arg(long, value_name = "IP")]
    address: Vec<IpAddr>,
}

/// Adds a device, and prints what it is to be told.
pub fn run_introduce(flags: IntroduceFlags) -> Result<Exit, Failure> {
    let certificate = flags.cert.as_ref().map(|path| {
        let fail = |error| Failure::new(Exit::File, format!("{} cannot be read", path.display()), error);
        std::fs::read_to_string(path).map_err(fail)
    });
    let introduced = introduce(&flags.devices, &flags.server, certificate.transpose()?);
    let mut introduction =
        introduced.map_err(|error| Failure::new(Exit::File, "the device cannot be introduced", error))?;
    introduction.addresses = flags.address;
    let text = toml::to_string(&introduction).map_err(|error| Failure::new(Exit::Unexpected, "no TOML", error))?;
    print!("{text}");
    Ok(Exit::Done)
}
