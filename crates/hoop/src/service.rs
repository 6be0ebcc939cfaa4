//! `hoop service`.

pub mod keygen;

use crate::base::exit::{Exit, Failure};
use crate::base::values::{self, Network, Size, Span};
use crate::server;
use crate::server::logging;
use crate::server::powers::Powers;
use clap::Args;
use hoop_http::Origin;
use hoop_service::{
    Config, GATEWAYS_MAX, KeyFileError, OpenServiceError, Permits, Routes, Service, TlsFiles, load_keyring,
};
use serde::Deserialize;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Host;

/// The service's flags; a configuration file has the same names (`trusted-proxy = ["127.0.0.1"]`). What is typed counts
/// more than what is in the file, and lists add up.
#[derive(Args, Deserialize, Clone, Default)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServiceFlags {
    /// Where to listen [default: 127.0.0.1:4668]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where to tell /metrics, on this machine alone: 127.0.0.1:4670
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<SocketAddr>,
    /// A PEM file with the certificate chain, to speak HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// A PEM file with its private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The application: http://127.0.0.1:8000 (needed)
    #[arg(long, value_name = "ORIGIN")]
    upstream: Option<String>,
    /// The origin that users see: https://photos.example (needed)
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    /// The key file that `hoop keygen` made (needed)
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// The folder of the index and the sealed bodies (needed)
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    /// A TOML file that says what the application's answers mean
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Whether gateways are asked to take nothing for this service without its permit: offered or required [default: offered]
    #[arg(long, value_name = "offered|required", value_parser = ["offered", "required"])]
    permits: Option<String>,
    /// The name of a gateway that may bring uploads; without any, every gateway may
    #[arg(long, value_name = "NAME")]
    gateway: Vec<String>,
    /// The longest sealed upload [default: 10G]
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<Size>,
    /// The most that all uploads may have together [default: 100G]
    #[arg(long, value_name = "SIZE")]
    max_stored: Option<Size>,
    /// The most of that for one user whom the application names [default: a quarter of it]
    #[arg(long, value_name = "SIZE")]
    owner_quota: Option<Size>,
    /// The most of that for whoever is at one address and has no name [default: a quarter of it]
    #[arg(long, value_name = "SIZE")]
    address_quota: Option<Size>,
    /// What of the disk stays free, and a file for each 16 KiB of it [default: 256M]
    #[arg(long, value_name = "SIZE")]
    reserve: Option<Size>,
    /// The most that is kept of uploads that have ended: answers, receipts and notes [default: 1G]
    #[arg(long, value_name = "SIZE")]
    max_ended: Option<Size>,
    /// Tickets that one user, or one address, gets in a minute [default: 240]
    #[arg(long, value_name = "COUNT")]
    tickets_per_minute: Option<u32>,
    /// How long a ticket is good for [default: 7d]
    #[arg(long, value_name = "TIME")]
    ticket_lifetime: Option<Span>,
    /// How long a connection to the application may take [default: 10s]
    #[arg(long, value_name = "TIME")]
    connect_timeout: Option<Span>,
    /// How long the application may take to answer [default: 10m]
    #[arg(long, value_name = "TIME")]
    answer_timeout: Option<Span>,
    /// How long a sender may take for each 64 KiB [default: 60s]
    #[arg(long, value_name = "TIME")]
    body_timeout: Option<Span>,
    /// How long nothing may move in a WebSocket connection [default: 5m]
    #[arg(long, value_name = "TIME")]
    tunnel_idle: Option<Span>,
    /// Replays at once [default: 4]
    #[arg(long, value_name = "COUNT")]
    replays: Option<usize>,
    /// Sealed messages taken at once [default: 64]
    #[arg(long, value_name = "COUNT")]
    intakes: Option<usize>,
    /// Connections at once, shared out by what they are used for [default: 2560]
    #[arg(long, value_name = "COUNT")]
    connections: Option<usize>,
    /// Web servers in front, whose X-Forwarded-* and Forwarded are believed: 127.0.0.1, 10.9.2.0/24
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    trusted_proxy: Vec<Network>,
    /// Become this user before anything is opened; for root alone, as to listen at a port below 1024
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Do not confine the process to its own files (Landlock)
    #[arg(long)]
    no_landlock: bool,
    /// A TOML file with these flags
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Say where it listens as JSON
    #[arg(long)]
    #[serde(skip)]
    json: bool,
    /// Log as JSON
    #[arg(long)]
    log_json: bool,
}

/// A ticket that ends sooner is of no use to a device that fetches it before it walks to a gateway.
const TICKET_LIFETIMES: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 86_400);

/// The smallest share is a tenth.
const CONNECTIONS_MIN: usize = 40;

/// Runs it until a signal stops it.
pub fn run(flags: ServiceFlags) -> Result<Exit, Failure> {
    let file: ServiceFlags = server::read_file(flags.config.as_deref())?;
    logging::start(flags.log_json || file.log_json)?;
    let as_json = flags.json;
    let again = flags.clone();
    let powers = powers(&flags, &file);
    powers.take_user(flags.state_dir.as_deref().or(file.state_dir.as_deref()))?;
    let named = [
        flags.config.clone(),
        flags.keys.clone().or(file.keys.clone()),
        flags.routes.clone().or(file.routes.clone()),
        flags.tls_cert.clone().or(file.tls_cert.clone()),
        flags.tls_key.clone().or(file.tls_key.clone()),
    ];
    let config = config(flags, file)?;
    powers.confine(Some(&config.state_dir), &named.iter().flatten().map(PathBuf::as_path).collect::<Vec<_>>());
    let tls = config.tls.is_some();
    server::raise_descriptors();
    let runtime = server::runtime()?;
    runtime.block_on(async {
        let shutdown = server::stop_on_signal()?;
        let service = Service::open(config).await.map_err(|error| {
            let failure = Failure::new(Exit::Usage, "the service cannot be opened", &error);
            let OpenServiceError::Listen(listen) = error else { return failure };
            server::hint_at_ports(failure, &listen)
        })?;
        let reload = service.reload();
        server::reload_on_hang_up(move || {
            server::is_whole(again.config.as_deref())?;
            let file: ServiceFlags = server::read_file(again.config.as_deref())?;
            for path in [again.keys.as_ref().or(file.keys.as_ref()), again.routes.as_ref().or(file.routes.as_ref())] {
                server::is_whole(path.map(PathBuf::as_path))?;
            }
            let waiting = powers.waiting(&self::powers(&again, &file));
            let adopted = reload.adopt(&self::config(again.clone(), file)?);
            let fixed = adopted.map_err(|error| Failure::new(Exit::File, "the configuration cannot be used", error))?;
            Ok([fixed, waiting].concat())
        })?;
        server::announce(service.address(), tls, as_json);
        service.run(shutdown).await;
        Ok(Exit::Done)
    })
}

fn powers(flags: &ServiceFlags, file: &ServiceFlags) -> Powers {
    Powers::new(flags.user.clone().or(file.user.clone()), flags.no_landlock || file.no_landlock)
}

fn config(flags: ServiceFlags, file: ServiceFlags) -> Result<Config, Failure> {
    let missing = |flag: &str| Failure::usage(format!("{flag} is missing")).hint("`hoop service --help`");
    let upstream = origin("--upstream", flags.upstream.or(file.upstream).ok_or_else(|| missing("--upstream"))?)?;
    let public = origin("--origin", flags.origin.or(file.origin).ok_or_else(|| missing("--origin"))?)?;
    let keys = flags.keys.or(file.keys).ok_or_else(|| missing("--keys"))?;
    let keys = load_keyring(&keys).map_err(no_keys)?;
    let state_dir = flags.state_dir.or(file.state_dir).ok_or_else(|| missing("--state-dir"))?;
    let mut config = Config::new(upstream, public, keys, state_dir);
    config.listen = flags.listen.or(file.listen).unwrap_or(config.listen);
    config.admin = flags.admin.or(file.admin);
    config.tls = match (flags.tls_cert.or(file.tls_cert), flags.tls_key.or(file.tls_key)) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(Failure::usage("tls-cert and tls-key go together")),
    };
    if let Some(path) = flags.routes.or(file.routes) {
        config.routes = routes(&path)?;
    }
    config.permits = permits(flags.permits.or(file.permits).as_deref(), [file.gateway, flags.gateway].concat())?;
    if is_in_the_open(&config.origin) {
        let origin = &config.origin;
        tracing::warn!(%origin, "over http, anybody on the way reads and changes tickets and sign-ins, and no gateway delivers here");
    }
    let room = |name, typed: Option<Size>, file: Option<Size>| values::room(name, typed.or(file));
    config.max_bytes = room("max-bytes", flags.max_bytes, file.max_bytes)?.unwrap_or(config.max_bytes);
    let stored = room("max-stored", flags.max_stored, file.max_stored)?;
    config.max_stored_bytes = stored.unwrap_or(config.max_stored_bytes);
    config.owner_quota_bytes = room("owner-quota", flags.owner_quota, file.owner_quota)?;
    config.address_quota_bytes = room("address-quota", flags.address_quota, file.address_quota)?;
    config.reserve_bytes = flags.reserve.or(file.reserve).map_or(config.reserve_bytes, |size| size.0);
    config.max_ended_bytes = flags.max_ended.or(file.max_ended).map_or(config.max_ended_bytes, |size| size.0);
    config.tickets_per_minute =
        flags.tickets_per_minute.or(file.tickets_per_minute).unwrap_or(config.tickets_per_minute);
    if config.tickets_per_minute == 0 {
        return Err(Failure::usage("tickets-per-minute must be one at least"));
    }
    let span = |name, typed: Option<Span>, file: Option<Span>, default| match typed.or(file) {
        Some(Span(Duration::ZERO)) => Err(Failure::usage(format!("{name} must be more than 0"))),
        span => Ok(span.map_or(default, |span| span.0)),
    };
    config.ticket_lifetime =
        span("ticket-lifetime", flags.ticket_lifetime, file.ticket_lifetime, config.ticket_lifetime)?;
    if !TICKET_LIFETIMES.contains(&config.ticket_lifetime) {
        return Err(Failure::usage(
            "ticket-lifetime is a minute at least, and 30 days at most: gateways keep none for longer",
        ));
    }
    config.connect_timeout =
        span("connect-timeout", flags.connect_timeout, file.connect_timeout, config.connect_timeout)?;
    config.answer_timeout = span("answer-timeout", flags.answer_timeout, file.answer_timeout, config.answer_timeout)?;
    config.body_timeout = span("body-timeout", flags.body_timeout, file.body_timeout, config.body_timeout)?;
    config.tunnel_idle = span("tunnel-idle", flags.tunnel_idle, file.tunnel_idle, config.tunnel_idle)?;
    config.replays = flags.replays.or(file.replays).unwrap_or(config.replays);
    config.intakes = flags.intakes.or(file.intakes).unwrap_or(config.intakes);
    if config.replays == 0 || config.intakes == 0 {
        return Err(Failure::usage("replays and intakes must be one at least"));
    }
    config.connections = flags.connections.or(file.connections).unwrap_or(config.connections);
    if config.connections < CONNECTIONS_MIN {
        return Err(Failure::usage(format!(
            "connections must be {CONNECTIONS_MIN} at least, so that each use has some"
        )));
    }
    let networks = file.trusted_proxy.into_iter().chain(flags.trusted_proxy);
    config.trusted_proxies = networks.map(|network| network.0).collect();
    Ok(config)
}

/// A new key is for whom has none: uploads that are under way need the old one.
fn no_keys(error: KeyFileError) -> Failure {
    let hint = match &error {
        KeyFileError::Read { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => Some("`hoop keygen -o FILE`, which makes one"),
            io::ErrorKind::PermissionDenied => Some("`chown` it to the user whom the service runs as"),
            _ => None,
        },
        KeyFileError::Writable { .. } => Some("`chmod 600` it, and see that no key was put into it"),
        KeyFileError::Content { .. } => Some("the file as it was: uploads under way need the key that was in it"),
    };
    let failure = Failure::new(Exit::File, "the key file cannot be used", error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn origin(flag: &str, text: String) -> Result<Origin, Failure> {
    text.parse().map_err(|error| {
        Failure::new(Exit::Usage, format!("{flag} `{text}` is no origin"), error)
            .hint("a form such as https://photos.example or http://127.0.0.1:8000")
    })
}

/// Which gateways are listed, and whether permits are required.
fn permits(named: Option<&str>, gateways: Vec<String>) -> Result<Permits, Failure> {
    let required = match named {
        None | Some("offered") => false,
        Some("required") => true,
        Some(other) => return Err(Failure::usage(format!("permits are `offered` or `required`, not `{other}`"))),
    };
    if gateways.len() > GATEWAYS_MAX {
        return Err(Failure::usage(format!("{} gateways are listed, and {GATEWAYS_MAX} is the most", gateways.len())));
    }
    let parse = |name: &String| {
        name.parse().map_err(|error| {
            Failure::new(Exit::Usage, format!("--gateway `{name}` is no gateway's name"), error)
                .hint("what `GET /test` of the gateway calls `gateway`")
        })
    };
    Ok(Permits { required, gateways: gateways.iter().map(parse).collect::<Result<_, _>>()? })
}

/// Whether what users have in the address bar is plain HTTP to another machine.
fn is_in_the_open(origin: &Origin) -> bool {
    let loopback = match origin.host() {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    };
    !origin.is_https() && !loopback
}

fn routes(path: &Path) -> Result<Routes, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Exit::File, format!("{} cannot be read", path.display()), error))?;
    Routes::parse(&text).map_err(|error| Failure::new(Exit::Usage, format!("{} has a mistake", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::keygen;
    use std::fs::{self, Permissions};

    fn file(folder: &Path, more: &str) -> ServiceFlags {
        let keys = folder.join("kws");
        if !keys.exists() {
            keygen::run(&keygen::KeygenFlags { output: Some(keys.clone()), rotate: None }).unwrap();
        }
        let text = format!(
            "upstream = \"http://127.0.0.1:8000\"\norigin = \"https://photos.example\"\nkeys = {:?}\nstate-dir = \"s\"\n{more}",
            keys
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_file_says_what_flags_say() {
        let folder = tempfile::tempdir().unwrap();
        let flags = ServiceFlags { replays: Some(2), ..ServiceFlags::default() };
        let config = config(
            flags,
            file(folder.path(), "ticket-lifetime = \"2d\"\nreplays = 9\nmax-bytes = \"1G\"\nowner-quota = \"2G\""),
        )
        .unwrap();
        assert_eq!(config.origin.as_str(), "https://photos.example");
        assert_eq!(config.ticket_lifetime, Duration::from_secs(2 * 86_400));
        assert_eq!((config.replays, config.max_bytes), (2, 1 << 30));
        assert_eq!((config.owner_quota_bytes, config.address_quota_bytes), (Some(2 << 30), None));
        assert!(config.tls.is_none());
    }

    #[test]
    fn plain_http_is_warned_of_unless_it_stays_on_this_machine() {
        for (origin, open) in [
            ("http://photos.example", true),
            ("http://192.168.1.2:8080", true),
            ("https://photos.example", false),
            ("http://localhost:8080", false),
            ("http://127.0.0.2", false),
            ("http://[::1]:1", false),
        ] {
            assert_eq!(is_in_the_open(&origin.parse().unwrap()), open, "{origin}");
        }
    }

    #[test]
    fn contradictions_and_unknown_names_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |more: &str| config(ServiceFlags::default(), file(folder.path(), more)).unwrap_err().exit;
        assert_eq!(refused("tls-cert = \"c\""), Exit::Usage);
        assert_eq!(refused("replays = 0"), Exit::Usage);
        assert_eq!(refused("tickets-per-minute = 0"), Exit::Usage);
        let means_nothing =
            ["max-bytes = 100", "max-stored = 1", "owner-quota = 0", "address-quota = \"2\"", "connections = 0"];
        let never = ["answer-timeout = 0", "body-timeout = \"0s\"", "connect-timeout = \"0ms\"", "tunnel-idle = 0"];
        for wrong in
            means_nothing.iter().chain(&never).chain(&["ticket-lifetime = \"1s\"", "ticket-lifetime = \"90d\""])
        {
            assert_eq!(refused(wrong), Exit::Usage, "{wrong}");
        }
        assert_eq!(refused("permits = \"perhaps\""), Exit::Usage);
        assert_eq!(refused("gateway = [\"fritz\"]"), Exit::Usage);
        assert_eq!(refused("routes = \"missing\""), Exit::File);
        assert!(toml::from_str::<ServiceFlags>("upstraem = \"x\"").is_err());
        assert_eq!(config(ServiceFlags::default(), ServiceFlags::default()).unwrap_err().exit, Exit::Usage);
    }

    #[cfg(unix)]
    #[test]
    fn a_new_key_is_only_made_for_whom_has_none() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("kws");
        let refused = |flags: ServiceFlags| config(ServiceFlags::default(), flags).unwrap_err().to_string();
        let flags = file(folder.path(), "");
        fs::set_permissions(&keys, Permissions::from_mode(0o666)).unwrap();
        let writable = refused(flags);
        assert!(writable.contains("anybody") && writable.contains("chmod 600"), "{writable}");
        fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
        fs::write(&keys, "no key\n").unwrap();
        let malformed = refused(file(folder.path(), ""));
        assert!(malformed.contains("line 1") && !malformed.contains("keygen"), "{malformed}");
        let flags = file(folder.path(), "");
        fs::remove_file(&keys).unwrap();
        assert!(refused(flags).contains("hoop keygen"));
    }
}
