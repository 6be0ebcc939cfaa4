//! `hoop gateway`.

#[cfg(target_os = "linux")]
mod announcer;
mod limits;
pub mod spool;

use crate::base::exit::{Exit, Failure};
use crate::base::values::{self, Rate, Resolve, Size, Span, loopback};
#[cfg(target_os = "linux")]
use crate::gateway::announcer::Announcer;
use crate::gateway::limits::{Limits, Window};
use crate::server;
use crate::server::layers::{RoleFlags as _, layers, with_file};
use crate::server::logging;
use clap::Args;
use hoop_gateway::{AllowDest, Config, Gateway, OpenError, Permits};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use url::Url;

/// The gateway's flags; a configuration file has the same names (`allow-dest = ["10.0.0.7:443"]`). What is typed counts
/// more than what is in the file, and lists add up.
#[derive(Args, Deserialize, Clone, Default)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GatewayFlags {
    /// Listen on this address and port [default: [::]:4667]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Keep uploads that wait for delivery in this folder (required)
    #[arg(long, value_name = "FOLDER")]
    spool: Option<PathBuf>,
    /// The most that the spool may hold [default: the size of the disk]
    #[arg(long, value_name = "SIZE")]
    quota: Option<Size>,
    /// Leave this much of the disk free; also leave one inode free for each 16 KiB of this size [default: 64M]
    #[arg(long, value_name = "SIZE")]
    reserve: Option<Size>,
    /// The largest upload to accept [default: 64G]
    #[arg(long, value_name = "SIZE")]
    max_upload: Option<Size>,
    /// The most uploads that the spool may hold; 0 means no limit [default: 100000]
    #[arg(long, value_name = "COUNT")]
    max_uploads: Option<u64>,
    /// The most that one device may store; 0 means no limit [default: three quarters of the space]
    #[arg(long, value_name = "SIZE")]
    device_quota: Option<Size>,
    /// The most uploads that one device may store; 0 means no limit [default: 2000]
    #[arg(long, value_name = "COUNT")]
    device_uploads: Option<u64>,
    /// The most uploads that one device may begin in a minute; 0 means no limit [default: 600]
    #[arg(long, value_name = "COUNT")]
    device_begun: Option<u32>,
    /// The most requests that one device may make in a second; 0 means no limit [default: 100]
    #[arg(long, value_name = "COUNT")]
    device_requests: Option<u32>,
    /// The most connections from one device at once; 0 means no limit [default: 16]
    #[arg(long, value_name = "COUNT")]
    device_connections: Option<usize>,
    /// Which uploads need a permit from their service: those whose service requires it (offered), or all (required) [default: offered]
    #[arg(long, value_name = "WHEN", value_parser = permits)]
    permits: Option<String>,
    /// Serve the owner's page and /metrics on this loopback address, such as 127.0.0.1:4672 [default: off]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback)]
    admin: Option<SocketAddr>,
    /// Trust the certificates in this PEM file, in addition to the system's
    #[arg(long, visible_alias = "cacert", value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// Allow this destination although it is not public or does not use HTTPS: host, host:port, address or network
    #[arg(long, value_name = "PLACE", value_parser = |text: &str| text.parse::<AllowDest>().map(|_| text.to_owned()))]
    allow_dest: Vec<String>,
    /// Use this address for this host and port, and do not look up the name
    #[arg(long, value_name = "HOST:PORT:ADDRESS")]
    resolve: Vec<Resolve>,
    /// Use this URL in links to the monitor page; people reach the gateway there
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Also accept requests for this host name
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Vec<String>,
    /// Do not announce hoop.local and _hoop._tcp by multicast DNS
    #[arg(long)]
    no_mdns: bool,
    /// Refuse records that arrive before their upload's ticket
    #[arg(long)]
    no_early: bool,
    /// Begin to send an upload only when all of it is stored
    #[arg(long)]
    no_cut_through: bool,
    /// Announce the gateway to people by this name
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Answer before the data is synced; only to measure what syncing costs
    #[arg(long, hide = true)]
    no_sync: bool,
    /// Send this many uploads at once [default: 4]
    #[arg(long, value_name = "COUNT")]
    transfers: Option<usize>,
    /// The most that all uploads together may use of the uplink, such as 500kbit or 1.15Mbit
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Send only in this daily window, in local time: 22:00-06:30, or with a rate, 08:00-18:00=500kbit
    #[arg(long, value_name = "FROM-TO[=RATE]")]
    window: Vec<Window>,
    /// Keep the uplink's delay low for other traffic
    #[arg(long)]
    background: bool,
    /// The delay that --background may add, on top of the time that two packets take [default: 10ms]
    #[arg(long, value_name = "TIME")]
    background_target: Option<Span>,
    /// The committed rate of a line that is billed by its 95th percentile: the rate that you pay for in any case
    #[arg(long, value_name = "RATE")]
    budget: Option<Rate>,
    /// The day on which each billing month begins, 1 to 28 [default: 1]
    #[arg(long, value_name = "DAY")]
    billing_day: Option<u8>,
    /// The interface to the uplink; its counters show what the whole household sends
    #[arg(long, value_name = "NAME")]
    uplink_interface: Option<String>,
    /// Keep to the window and the budget even if an upload then misses its deadline
    #[arg(long)]
    deadlines_wait: bool,
    /// Become this user before opening any file. Only root can do this, for example to listen on a port below 1024
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Do not confine the process to its own files (Landlock)
    #[arg(long)]
    no_landlock: bool,
    /// Read these flags from a TOML file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Print the listening address as JSON
    #[arg(long)]
    #[serde(skip)]
    json: bool,
    /// Write logs as JSON
    #[arg(long)]
    log_json: bool,
}

layers!(GatewayFlags:
    listen spool quota reserve max_upload max_uploads device_quota device_uploads device_begun device_requests
    device_connections permits admin ca allow_dest resolve public_url host no_mdns no_early no_cut_through instance
    no_sync transfers rate window background background_target budget billing_day uplink_interface deadlines_wait user
    no_landlock config json log_json
);

/// Runs it until a signal stops it.
pub fn run(typed: GatewayFlags) -> Result<Exit, Failure> {
    let flags = with_file(&typed)?;
    logging::start(flags.log_json)?;
    let powers = flags.powers();
    powers.take_user(flags.spool.as_deref())?;
    let as_json = flags.json;
    let config = config(flags)?;
    let named = config.ca.iter().map(PathBuf::as_path).chain(typed.config.as_deref());
    powers.confine(Some(&config.spool), &named.collect::<Vec<_>>());
    #[cfg(target_os = "linux")]
    let mut announcer = config.mdns.then(Announcer::new).transpose()?;
    server::raise_descriptors();
    let runtime = server::runtime()?;
    runtime.block_on(async {
        server::warn_of_root();
        let shutdown = server::stop_on_signal()?;
        let mut gateway = Gateway::open(config).await.map_err(|error| {
            let failure = Failure::new(Exit::Usage, "cannot start the gateway", &error);
            let OpenError::Listen(listen) = error else { return failure };
            server::hint_at_ports(failure, &listen)
        })?;
        #[cfg(target_os = "linux")]
        if let (Some(announcer), Some(name)) = (&mut announcer, gateway.leave_announcing()) {
            announcer.announce(&name, gateway.address().port());
        }
        if let Some(address) = gateway.admin_address() {
            tracing::info!(%address, "the owner's page");
        }
        let reload = gateway.reload();
        server::reload_on_hang_up(move || {
            server::is_whole(typed.config.as_deref())?;
            let flags = with_file(&typed)?;
            flags.ca.iter().try_for_each(|path| server::is_whole(Some(path)))?;
            let waiting = powers.waiting(&flags.powers());
            let adopted = reload.adopt(&self::config(flags)?);
            let fixed = adopted.map_err(|error| Failure::new(Exit::Usage, "cannot use the configuration", error))?;
            Ok([fixed, waiting].concat())
        })?;
        server::announce(gateway.address(), false, as_json);
        gateway.run(shutdown).await;
        Ok(Exit::Done)
    })
}

fn config(flags: GatewayFlags) -> Result<Config, Failure> {
    let spool =
        flags.spool.ok_or_else(|| Failure::usage("--spool is missing").hint("name the folder: --spool FOLDER"))?;
    let mut config = Config::new(spool);
    config.pacing = Limits {
        rate: flags.rate,
        windows: flags.window,
        background: flags.background,
        target: flags.background_target,
        budget: flags.budget,
        billing_day: flags.billing_day,
        interface: flags.uplink_interface,
        deadlines_wait: flags.deadlines_wait,
    }
    .check()?;
    config.listen = flags.listen.unwrap_or(config.listen);
    config.quota_bytes = values::room("quota", flags.quota)?;
    config.reserve_bytes = flags.reserve.map_or(config.reserve_bytes, |size| size.0);
    config.max_uploads = flags.max_uploads.unwrap_or(config.max_uploads);
    let device = &mut config.device;
    device.quota_bytes = match flags.device_quota {
        Some(Size(0)) => Some(0),
        quota => values::room("device-quota", quota)?,
    };
    device.uploads = flags.device_uploads.unwrap_or(device.uploads);
    device.begun_per_minute = flags.device_begun.unwrap_or(device.begun_per_minute);
    device.requests_per_second = flags.device_requests.unwrap_or(device.requests_per_second);
    device.connections = flags.device_connections.unwrap_or(device.connections);
    if flags.permits.map(|word| permits(&word)).transpose().map_err(Failure::usage)?.as_deref() == Some("required") {
        config.permits = Permits::Required;
    }
    config.admin = flags.admin;
    let longest = values::room("max-upload", flags.max_upload)?;
    config.max_upload_bytes = longest.unwrap_or(config.max_upload_bytes);
    config.ca = flags.ca;
    config.resolve = values::addresses(&flags.resolve);
    let allowed = flags.allow_dest.iter().map(|text| text.parse()).collect::<Result<_, _>>();
    config.allow_dest =
        allowed.map_err(|error| Failure::new(Exit::Usage, "allow-dest is not a valid destination", error))?;
    config.public_url = flags.public_url.map(|text| public_url(&text)).transpose()?;
    config.hosts = flags.host;
    if let Some(wrong) = config.hosts.iter().find_map(|name| host(name).err()) {
        return Err(Failure::usage(format!("host is not a valid name: {wrong}")));
    }
    config.mdns = !flags.no_mdns;
    config.early = !flags.no_early;
    config.cut_through = !flags.no_cut_through;
    config.sync = !flags.no_sync;
    config.instance = flags.instance.unwrap_or(config.instance);
    config.transfers = flags.transfers.unwrap_or(config.transfers);
    if config.transfers == 0 {
        return Err(Failure::usage("transfers must be at least 1"));
    }
    Ok(config)
}

/// When permits are demanded.
fn permits(text: &str) -> Result<String, String> {
    match text {
        "offered" | "required" => Ok(text.to_owned()),
        _ => Err(format!("expected `offered` or `required`, not `{text}`")),
    }
}

/// A host name, without scheme or port.
fn host(text: &str) -> Result<String, url::ParseError> {
    url::Host::parse(text).map(|_| text.to_owned())
}

fn public_url(text: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|error| Failure::new(Exit::Usage, "public-url is not a valid URL", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Command, Flags};
    use crate::server::layers::Over as _;
    use clap::Parser as _;

    fn typed(arguments: &[&str]) -> GatewayFlags {
        let flags = Flags::try_parse_from(["hoop", "gateway"].iter().chain(arguments)).unwrap();
        let Command::Gateway(flags) = flags.command else { panic!("gateway was typed") };
        flags
    }

    fn config(typed: GatewayFlags, file: GatewayFlags) -> Result<Config, Failure> {
        super::config(typed.over(file))
    }

    #[test]
    fn what_is_typed_counts_more_than_the_file_and_lists_add_up() {
        let file = toml::from_str(
            "spool = \"a\"\nquota = \"2G\"\nreserve = 7\nno-mdns = true\nallow-dest = [\"10.0.0.1:443\"]\nhost = [\"a.example\"]\n",
        )
        .unwrap();
        let config =
            config(typed(&["--spool", "b", "--allow-dest", "app.example", "--host", "b.example"]), file).unwrap();
        assert_eq!(config.spool, PathBuf::from("b"));
        assert_eq!((config.quota_bytes, config.reserve_bytes, config.mdns), (Some(2 << 30), 7, false));
        assert_eq!(config.allow_dest.len(), 2);
        assert_eq!(config.hosts, ["a.example", "b.example"]);
        let file = toml::from_str(
            "spool = \"a\"\npermits = \"required\"\ndevice-quota = \"1G\"\nadmin = \"127.0.0.1:4668\"\n",
        )
        .unwrap();
        let config = super::config(typed(&["--device-requests", "7", "--device-quota", "2G"]).over(file)).unwrap();
        assert_eq!((config.permits, config.device.quota_bytes), (Permits::Required, Some(2 << 30)));
        assert_eq!((config.device.requests_per_second, config.admin.unwrap().port()), (7, 4668));
    }

    #[test]
    fn rates_windows_and_budgets_that_contradict_are_refused() {
        let with = |more: &[&str]| config(typed(&[&["--spool", "s"], more].concat()), GatewayFlags::default());
        let all = ["--rate", "1Mbit", "--window", "22:00-06:30", "--window", "08:00-18:00=500kbit", "--background"];
        let pacing = with(&all).unwrap().pacing;
        assert_eq!(pacing.rate.map(hoop_units::Bitrate::as_bps), Some(1_000_000));
        assert!(
            pacing.hours.is_limited() && pacing.background == Some(hoop_dispatch::TARGET) && pacing.budget.is_none()
        );
        let pacing = with(&["--budget", "2Mbit", "--uplink-interface", "lo", "--deadlines-wait"]).unwrap().pacing;
        assert_eq!(pacing.budget.map(|budget| budget.billing_day), Some(1));
        assert!(pacing.deadlines_wait);
        for wrong in [
            &["--window", "22:00-06:30", "--window", "06:00-07:00"][..],
            &["--rate", "100kbit", "--window", "08:00-18:00=500kbit"],
            &["--background-target", "5ms"],
            &["--background", "--background-target", "1s"],
            &["--billing-day", "3"],
            &["--budget", "1Mbit", "--billing-day", "29"],
            &["--uplink-interface", "lo"],
            &["--budget", "1Mbit", "--uplink-interface", "nothing-of-that-name"],
            &["--deadlines-wait"],
            &["--quota", "20"],
            &["--quota", "0"],
            &["--device-quota", "20"],
            &["--max-upload", "0"],
        ] {
            assert_eq!(with(wrong).unwrap_err().exit, Exit::Usage, "{wrong:?}");
        }
    }

    #[test]
    fn without_flags_the_defaults_hold() {
        let (config, defaults) = (config(typed(&["--spool", "s"]), GatewayFlags::default()).unwrap(), Config::new("s"));
        assert_eq!(format!("{:?}", config.listen), format!("{:?}", defaults.listen));
        assert_eq!((config.quota_bytes, config.mdns, config.sync), (None, true, true));
        assert_eq!(config.max_upload_bytes, defaults.max_upload_bytes);
    }

    #[test]
    fn what_the_file_should_not_have_is_refused() {
        assert!(toml::from_str::<GatewayFlags>("spol = \"a\"").is_err(), "an unknown name");
        assert!(toml::from_str::<GatewayFlags>("quota = \"much\"").is_err(), "no size");
        let file = toml::from_str("spool = \"a\"\nallow-dest = [\"a b\"]").unwrap();
        assert_eq!(config(GatewayFlags::default(), file).unwrap_err().exit, Exit::Usage);
        let file = toml::from_str("spool = \"a\"\nhost = [\"https://a.example\"]").unwrap();
        assert_eq!(config(GatewayFlags::default(), file).unwrap_err().exit, Exit::Usage);
        let file = toml::from_str("spool = \"a\"\npermits = \"sometimes\"").unwrap();
        assert_eq!(config(GatewayFlags::default(), file).unwrap_err().exit, Exit::Usage);
        assert_eq!(config(GatewayFlags::default(), GatewayFlags::default()).unwrap_err().exit, Exit::Usage);
    }
}
