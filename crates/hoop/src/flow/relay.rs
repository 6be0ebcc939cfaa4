//! `hoop relay` and `hoop introduce`: the server's side of programs whose connections are flows.

use crate::base::exit::{Exit, Failure};
use crate::base::output::Output;
use crate::base::values::{Rate, Size, Span, loopback, room};
use crate::flow::qr;
use crate::server::logging;
use crate::server::powers::Powers;
use crate::server::{
    announce_flows, hint_at_ports, raise_descriptors, reload_on_hang_up, run_flows, stop_on_signal, warn_of_root,
};
use clap::Args;
use hoop_relay::{
    Allowed, CacheConfig, IntroductionError, NewDevice, PlainListen, Prefix, Relay, RelayConfig, RelayError,
    ShareLimits, StoreConfig,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct RelayFlags {
    /// Listen on this address, on UDP (QUIC) and on TCP (WebSocket)
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:4669")]
    listen: SocketAddr,
    /// Also listen on this address without TLS, such as 127.0.0.1:4670, for WebSockets that a web server in front passes on
    #[arg(long, value_name = "ADDRESS")]
    plain_listen: Option<SocketAddr>,
    /// Listen there only to web servers at these addresses, such as 10.9.2.0/24, and believe whom they name in X-Forwarded-For or Forwarded [default: this machine's]
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', requires = "plain_listen")]
    trusted_proxy: Vec<Prefix>,
    /// The certificate chain, in a PEM file
    #[arg(long, alias = "cert", value_name = "FILE")]
    tls_cert: PathBuf,
    /// The private key, in a PEM file
    #[arg(long, alias = "key", value_name = "FILE")]
    tls_key: PathBuf,
    /// The file of devices that may connect. `hoop introduce` adds devices to it, also while the relay runs
    #[arg(long, value_name = "FILE")]
    devices: PathBuf,
    /// Let devices reach this address or network (10.9.2.0/24) although it is not public; may be given several times
    #[arg(long, value_name = "IP")]
    allow: Vec<Prefix>,
    /// Let devices reach any address, including this machine's own network
    #[arg(long)]
    allow_any: bool,
    /// Let devices reach this port although it is closed by default (25, mail between servers); may be given several times
    #[arg(long, value_name = "PORT")]
    allow_port: Vec<u16>,
    /// The most connections that one device may begin in a minute; 0 means no limit
    #[arg(long, value_name = "N", default_value_t = ShareLimits::default().begun_per_minute)]
    device_begun: u32,
    /// The most that all connections of one device may carry together, in both directions, such as 20Mbit (a second) [default: no limit]
    #[arg(long, value_name = "RATE")]
    device_rate: Option<Rate>,
    /// Finish downloads that devices do not take at once, and keep them in this folder until they do; keep uploads there until they are answered. Both outlive a restart. Without it, downloads wait for their devices, and uploads end with the relay
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    /// The most that all these downloads and uploads together may take on disk [default: 4G]
    #[arg(long, value_name = "SIZE", requires = "state_dir")]
    max_stored: Option<Size>,
    /// The most that those of one device may take [default: a quarter of --max-stored]
    #[arg(long, value_name = "SIZE", requires = "state_dir")]
    device_stored: Option<Size>,
    /// How long a device is away before a whole answer waits for it on disk alone, such as 30s [default: 1min]
    #[arg(long, value_name = "TIME", requires = "state_dir")]
    park_after: Option<Span>,
    /// Believe the authorities in this PEM file, too, of servers whose https requests devices entrust to the relay; may be given several times
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// The most that the cache of answers may take on disk, in the folder of --state-dir; 0 keeps none there [default: 1G]
    #[arg(long, value_name = "SIZE", requires = "state_dir")]
    cache: Option<Size>,
    /// The most that this cache may take in memory; 0 keeps none there [default: 32M]
    #[arg(long, value_name = "SIZE")]
    cache_memory: Option<Size>,
    /// Serve metrics (Prometheus) on this loopback address, such as 127.0.0.1:4671
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback)]
    admin: Option<SocketAddr>,
    /// Log each connection and request of a device when it is over: where it went, without queries, how much was carried, and how it ended
    #[arg(long)]
    access_log: bool,
    /// Become this user before opening any file. Only root can do this, for example to listen on a port below 1024
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Do not confine the process to its own files (Landlock)
    #[arg(long)]
    no_landlock: bool,
    /// Print the listening address as JSON
    #[arg(long)]
    json: bool,
    /// Write logs as JSON
    #[arg(long)]
    log_json: bool,
}

/// Runs a relay until it is told to stop.
pub fn run(flags: RelayFlags) -> Result<Exit, Failure> {
    logging::start(flags.log_json)?;
    let powers = Powers::new(flags.user, flags.no_landlock);
    powers.take_user(flags.state_dir.as_deref())?;
    let (all, of_device) = (room("max-stored", flags.max_stored)?, room("device-stored", flags.device_stored)?);
    let own = [&flags.tls_cert, &flags.tls_key, &flags.devices];
    let cache = CacheConfig::default();
    let disk = room_or_none("cache", flags.cache)?.unwrap_or(cache.disk);
    let memory = room_or_none("cache-memory", flags.cache_memory)?.unwrap_or(cache.memory);
    powers.confine(
        flags.state_dir.as_deref(),
        &own.into_iter().chain(&flags.ca).map(PathBuf::as_path).collect::<Vec<_>>(),
    );
    raise_descriptors();
    let store = flags.state_dir.map(StoreConfig::new).map(|store| {
        let bytes = all.unwrap_or(store.bytes);
        let parks_after = flags.park_after.map_or(store.parks_after, |after| after.0);
        StoreConfig { bytes, bytes_of_device: of_device.unwrap_or(bytes / 4), parks_after, ..store }
    });
    let proxies = if flags.trusted_proxy.is_empty() { loopback_networks() } else { flags.trusted_proxy };
    let config = RelayConfig {
        listen: flags.listen,
        plain_listen: flags.plain_listen.map(|address| PlainListen { address, proxies }),
        certificate: flags.tls_cert,
        key: flags.tls_key,
        devices: flags.devices,
        allowed: Allowed {
            any: flags.allow_any,
            addresses: flags.allow.into_iter().collect(),
            ports: flags.allow_port.into_iter().collect(),
        },
        shares: ShareLimits { begun_per_minute: flags.device_begun, rate: flags.device_rate.map(|rate| rate.0) },
        ca: flags.ca,
        store,
        cache: CacheConfig { disk, memory },
        admin: flags.admin,
        access_log: flags.access_log,
    };
    run_flows(async {
        let relay = Relay::bind(&config).await.map_err(|error| match error {
            RelayError::Listen(listen) => {
                hint_at_ports(Failure::new(Exit::Unexpected, "cannot start the relay", &listen), &listen)
            }
            RelayError::Devices(IntroductionError::File { ref path, ref source }) if *path == config.devices => {
                let hint = match source.kind() {
                    io::ErrorKind::NotFound => "make it, with a first device: `hoop introduce NAME:PORT --devices FILE`",
                    io::ErrorKind::PermissionDenied => {
                        "`chown` it to the relay's user; it belongs to the user who ran `hoop introduce`, unless that had `--user`"
                    }
                    _ => "check that it is the file that `hoop introduce --devices` writes",
                };
                Failure::new(Exit::File, "cannot start the relay", &error).hint(hint)
            }
            error => Failure::new(Exit::File, "cannot start the relay", error),
        })?;
        if let Some(address) = relay.plain_address() {
            tracing::info!(%address, "listening without TLS, for web servers in front");
        }
        if let Some(address) = relay.admin_address() {
            tracing::info!(%address, "serving metrics");
        }
        let (reload, runtime) = (relay.reload(), tokio::runtime::Handle::current());
        reload_on_hang_up(move || {
            let looked = runtime.block_on(reload.look());
            looked.map(|()| Vec::new()).map_err(|error| Failure::new(Exit::File, "cannot use a file", error))
        })?;
        warn_of_root();
        let mut stop = stop_on_signal()?;
        // Whoever reads this may send a signal at once.
        announce_flows(relay.address(), flags.json);
        tokio::select! {
            () = relay.run() => Err(Failure::new(Exit::Unexpected, "the relay ended", "its socket is closed")),
            () = stop.requested() => Ok(Exit::Done),
        }
    })
}

/// Where this machine's own web servers come from.
fn loopback_networks() -> Vec<Prefix> {
    ["127.0.0.0/8", "::1"].iter().filter_map(|network| network.parse().ok()).collect()
}

/// As [`room`]; 0 is none.
fn room_or_none(name: &str, size: Option<Size>) -> Result<Option<u64>, Failure> {
    if size == Some(Size(0)) { Ok(Some(0)) } else { room(name, size) }
}

#[derive(Args)]
pub struct IntroduceFlags {
    /// The relay's name and port, as the device reaches it
    #[arg(value_name = "NAME:PORT")]
    server: String,
    /// The relay's file of devices; created if it does not exist
    #[arg(long, value_name = "FILE")]
    devices: PathBuf,
    /// The PEM certificates that the device trusts instead of its system's, for a relay whose certificate no authority has signed
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// The relay's IP address, if the device should not look up its name; may be given several times
    #[arg(long, value_name = "IP")]
    address: Vec<IpAddr>,
    /// Where a web server stands in front of the relay, ends TLS there and passes WebSockets on: wss://NAME[:PORT][/PATH] [default path: /.well-known/hoop-flow]
    #[arg(long, value_name = "URL")]
    front: Option<String>,
    /// The PEM certificates that the device trusts of that web server instead of its system's
    #[arg(long, value_name = "FILE", requires = "front")]
    front_cert: Option<PathBuf>,
    /// Give the file of devices to this user, such as hoop-relay. Only root can do this. Without this option an existing file keeps its owner, and a new file is yours
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The device's name in the file of devices, by which you find it when you want to remove it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Write the device's file here, readable only by its owner [default: the standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the device's file as a QR code for a phone's camera, also with `--output`. The code holds the device's key: anyone who sees it can pose as the device
    #[arg(long)]
    qr: bool,
}

/// Adds a device, and prints what it is to be told.
pub fn run_introduce(flags: IntroduceFlags) -> Result<Exit, Failure> {
    let unreadable = |path: &Path, error| Failure::new(Exit::File, format!("cannot read {}", path.display()), error);
    let pem = |path: Option<&PathBuf>| {
        let bytes = path.map(|path| std::fs::read(path).map_err(|error| unreadable(path, error))).transpose()?;
        // What is no text is no PEM, and is refused as such.
        Ok::<_, Failure>(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    let (certificate, front_certificate) = (pem(flags.cert.as_ref())?, pem(flags.front_cert.as_ref())?);
    // Before a device is added: a key that cannot be written down is lost.
    let output = flags.output.as_deref().map(Output::create).transpose()?;
    let owner = flags.user.as_deref().map(owner).transpose()?;
    let device = NewDevice {
        server: &flags.server,
        addresses: flags.address,
        certificate,
        front: flags.front,
        front_certificate,
        name: flags.name.as_deref(),
        owner,
    };
    let introduction = device.introduce(&flags.devices).map_err(|error| {
        let is_usage = matches!(error, IntroductionError::Server(_) | IntroductionError::Front(_));
        let exit = if is_usage { Exit::Usage } else { Exit::File };
        Failure::new(exit, "cannot introduce the device", error)
    })?;
    let text =
        toml::to_string(&introduction).map_err(|error| Failure::new(Exit::Unexpected, "cannot write TOML", error))?;
    let is_written = output.is_some();
    output.map(|output| output.write(&text)).transpose()?;
    match flags.qr.then(|| qr::lines(&text)) {
        Some(Some(lines)) => {
            lines.iter().for_each(|line| println!("{line}"));
            eprintln!("This code holds the device's key: anyone who sees or photographs it can pose as the device.");
            return Ok(Exit::Done);
        }
        Some(None) => eprintln!("The device's file is too long for a QR code."),
        None => {}
    }
    // The key is nowhere else.
    if !is_written {
        print!("{text}");
    }
    Ok(Exit::Done)
}

/// A user's number, and its group's.
#[cfg(target_os = "linux")]
fn owner(name: &str) -> Result<(u32, u32), Failure> {
    let found = nix::unistd::User::from_name(name)
        .map_err(|error| Failure::new(Exit::Usage, format!("cannot look up --user {name}"), error))?;
    let hint = "make the user with `adduser --system` or dist/sysusers.d/hoop.conf";
    let user = found.ok_or_else(|| Failure::usage(format!("--user {name}: there is no such user")).hint(hint))?;
    match rustix::process::geteuid().is_root() || rustix::process::geteuid().as_raw() == user.uid.as_raw() {
        true => Ok((user.uid.as_raw(), user.gid.as_raw())),
        false => Err(Failure::usage(format!("--user {name}: only root can give a file to another user"))),
    }
}

#[cfg(not(target_os = "linux"))]
fn owner(_: &str) -> Result<(u32, u32), Failure> {
    Err(Failure::usage("--user works on Linux only"))
}
