//! `hoop service`.

pub mod keygen;

use crate::base::exit::{Exit, Failure};
use crate::base::values::{self, Network, Size, Span, loopback};
use crate::server;
use crate::server::layers::{RoleFlags as _, layers, with_file};
use crate::server::logging;
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

/// The service's flags; a configuration file has the same names (`trusted-proxy = ["127.0.0.1"]`). What is typed counts
/// more than what is in the file, and lists add up.
#[derive(Args, Deserialize, Clone, Default)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServiceFlags {
    /// Listen on this address and port [default: 127.0.0.1:4668]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Serve /metrics on this loopback address, such as 127.0.0.1:4670 [default: off]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback)]
    admin: Option<SocketAddr>,
    /// The certificate chain, in a PEM file, to serve HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key, in a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The application's origin, such as http://127.0.0.1:8000 (required)
    #[arg(long, value_name = "ORIGIN")]
    upstream: Option<String>,
    /// The origin that users see, such as https://photos.example (required)
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,
    /// The key file that `hoop keygen` made (required)
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Keep the index and the sealed bodies in this folder (required)
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,
    /// A TOML file that says what the application's answers mean
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Whether a gateway needs this service's permit to take an upload: no (offered), or yes (required) [default: offered]
    #[arg(long, value_name = "offered|required", value_parser = ["offered", "required"])]
    permits: Option<String>,
    /// Take uploads only from the gateways that you name. If you name none, any gateway may bring them
    #[arg(long, value_name = "NAME")]
    gateway: Vec<String>,
    /// The largest sealed upload to accept [default: 10G]
    #[arg(long, value_name = "SIZE")]
    max_bytes: Option<Size>,
    /// The most that all uploads together may store [default: 100G]
    #[arg(long, value_name = "SIZE")]
    max_stored: Option<Size>,
    /// The most that one user may store, where the application names its users [default: a quarter of --max-stored]
    #[arg(long, value_name = "SIZE")]
    owner_quota: Option<Size>,
    /// The most that one address may store, for users without a name [default: a quarter of --max-stored]
    #[arg(long, value_name = "SIZE")]
    address_quota: Option<Size>,
    /// Leave this much of the disk free; also leave one inode free for each 16 KiB of this size [default: 256M]
    #[arg(long, value_name = "SIZE")]
    reserve: Option<Size>,
    /// The most space for the answers, receipts and notes of ended uploads [default: 1G]
    #[arg(long, value_name = "SIZE")]
    max_ended: Option<Size>,
    /// The most tickets that one user, or one address, gets in a minute [default: 240]
    #[arg(long, value_name = "COUNT")]
    tickets_per_minute: Option<u32>,
    /// How long a ticket is valid [default: 7d]
    #[arg(long, value_name = "TIME")]
    ticket_lifetime: Option<Span>,
    /// Wait this long for a connection to the application [default: 10s]
    #[arg(long, value_name = "TIME")]
    connect_timeout: Option<Span>,
    /// Wait this long for the application's answer [default: 10m]
    #[arg(long, value_name = "TIME")]
    answer_timeout: Option<Span>,
    /// Wait this long for each 64 KiB from a sender [default: 60s]
    #[arg(long, value_name = "TIME")]
    body_timeout: Option<Span>,
    /// Close a WebSocket connection when it has been idle for this long [default: 5m]
    #[arg(long, value_name = "TIME")]
    tunnel_idle: Option<Span>,
    /// Replay this many uploads at once [default: 4]
    #[arg(long, value_name = "COUNT")]
    replays: Option<usize>,
    /// Take in this many sealed messages at once [default: 64]
    #[arg(long, value_name = "COUNT")]
    intakes: Option<usize>,
    /// The most connections at once, divided among several kinds of use [default: 2560]
    #[arg(long, value_name = "COUNT")]
    connections: Option<usize>,
    /// Trust X-Forwarded-* and Forwarded only from these web servers in front, such as 127.0.0.1 or 10.9.2.0/24
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    trusted_proxy: Vec<Network>,
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

/// A ticket that ends sooner is of no use to a device that fetches it before it walks to a gateway.
const TICKET_LIFETIMES: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 86_400);

/// The smallest share is a tenth.
const CONNECTIONS_MIN: usize = 40;

layers!(ServiceFlags:
    listen admin tls_cert tls_key upstream origin keys state_dir routes permits gateway max_bytes max_stored
    owner_quota address_quota reserve max_ended tickets_per_minute ticket_lifetime connect_timeout answer_timeout
    body_timeout tunnel_idle replays intakes connections trusted_proxy user no_landlock config json log_json
);

/// Runs it until a signal stops it.
pub fn run(typed: ServiceFlags) -> Result<Exit, Failure> {
    let flags = with_file(&typed)?;
    logging::start(flags.log_json)?;
    let powers = flags.powers();
    powers.take_user(flags.state_dir.as_deref())?;
    let named =
        [flags.config.clone(), flags.keys.clone(), flags.routes.clone(), flags.tls_cert.clone(), flags.tls_key.clone()];
    let as_json = flags.json;
    let config = config(flags)?;
    powers.confine(Some(&config.state_dir), &named.iter().flatten().map(PathBuf::as_path).collect::<Vec<_>>());
    let tls = config.tls.is_some();
    server::raise_descriptors();
    let runtime = server::runtime()?;
    runtime.block_on(async {
        server::warn_of_root();
        let shutdown = server::stop_on_signal()?;
        let service = Service::open(config).await.map_err(|error| {
            let failure = Failure::new(Exit::Usage, "cannot start the service", &error);
            let OpenServiceError::Listen(listen) = error else { return failure };
            server::hint_at_ports(failure, &listen)
        })?;
        let reload = service.reload();
        server::reload_on_hang_up(move || {
            server::is_whole(typed.config.as_deref())?;
            let flags = with_file(&typed)?;
            for path in [&flags.keys, &flags.routes] {
                server::is_whole(path.as_deref())?;
            }
            let waiting = powers.waiting(&flags.powers());
            let adopted = reload.adopt(&self::config(flags)?);
            let fixed = adopted.map_err(|error| Failure::new(Exit::File, "cannot use the configuration", error))?;
            Ok([fixed, waiting].concat())
        })?;
        server::announce(service.address(), tls, as_json);
        service.run(shutdown).await;
        Ok(Exit::Done)
    })
}

fn config(flags: ServiceFlags) -> Result<Config, Failure> {
    let missing = |flag: &str| Failure::usage(format!("{flag} is missing")).hint("`hoop service --help` explains it");
    let upstream = origin("--upstream", flags.upstream.ok_or_else(|| missing("--upstream"))?)?;
    let public = origin("--origin", flags.origin.ok_or_else(|| missing("--origin"))?)?;
    let keys = flags.keys.ok_or_else(|| missing("--keys"))?;
    let keys = load_keyring(&keys).map_err(no_keys)?;
    let state_dir = flags.state_dir.ok_or_else(|| missing("--state-dir"))?;
    let mut config = Config::new(upstream, public, keys, state_dir);
    config.listen = flags.listen.unwrap_or(config.listen);
    config.admin = flags.admin;
    config.tls = match (flags.tls_cert, flags.tls_key) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(Failure::usage("tls-cert and tls-key must be given together")),
    };
    if let Some(path) = flags.routes {
        config.routes = routes(&path)?;
    }
    config.permits = permits(flags.permits.as_deref(), flags.gateway)?;
    if is_in_the_open(&config.origin) {
        let origin = &config.origin;
        tracing::warn!(%origin, "over http, anyone on the path can read and change tickets and sign-ins, and no gateway delivers here");
    }
    config.max_bytes = values::room("max-bytes", flags.max_bytes)?.unwrap_or(config.max_bytes);
    let stored = values::room("max-stored", flags.max_stored)?;
    config.max_stored_bytes = stored.unwrap_or(config.max_stored_bytes);
    config.owner_quota_bytes = values::room("owner-quota", flags.owner_quota)?;
    config.address_quota_bytes = values::room("address-quota", flags.address_quota)?;
    config.reserve_bytes = flags.reserve.map_or(config.reserve_bytes, |size| size.0);
    config.max_ended_bytes = flags.max_ended.map_or(config.max_ended_bytes, |size| size.0);
    config.tickets_per_minute = flags.tickets_per_minute.unwrap_or(config.tickets_per_minute);
    if config.tickets_per_minute == 0 {
        return Err(Failure::usage("tickets-per-minute must be at least 1"));
    }
    let span = |name, span: Option<Span>, default| match span {
        Some(Span(Duration::ZERO)) => Err(Failure::usage(format!("{name} must be more than 0"))),
        span => Ok(span.map_or(default, |span| span.0)),
    };
    config.ticket_lifetime = span("ticket-lifetime", flags.ticket_lifetime, config.ticket_lifetime)?;
    if !TICKET_LIFETIMES.contains(&config.ticket_lifetime) {
        return Err(Failure::usage(
            "ticket-lifetime must be between 1 minute and 30 days; gateways keep no ticket longer",
        ));
    }
    config.connect_timeout = span("connect-timeout", flags.connect_timeout, config.connect_timeout)?;
    config.answer_timeout = span("answer-timeout", flags.answer_timeout, config.answer_timeout)?;
    config.body_timeout = span("body-timeout", flags.body_timeout, config.body_timeout)?;
    config.tunnel_idle = span("tunnel-idle", flags.tunnel_idle, config.tunnel_idle)?;
    config.replays = flags.replays.unwrap_or(config.replays);
    config.intakes = flags.intakes.unwrap_or(config.intakes);
    if config.replays == 0 || config.intakes == 0 {
        return Err(Failure::usage("replays and intakes must be at least 1"));
    }
    config.connections = flags.connections.unwrap_or(config.connections);
    if config.connections < CONNECTIONS_MIN {
        return Err(Failure::usage(format!(
            "connections must be at least {CONNECTIONS_MIN}, so that each kind of use has some"
        )));
    }
    config.trusted_proxies = flags.trusted_proxy.into_iter().map(|network| network.0).collect();
    Ok(config)
}

/// A new key is for whom has none: uploads that are under way need the old one.
fn no_keys(error: KeyFileError) -> Failure {
    let hint = match &error {
        KeyFileError::Read { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => Some("make one with `hoop keygen -o FILE`"),
            io::ErrorKind::PermissionDenied => Some("`chown` it to the user that the service runs as"),
            _ => None,
        },
        KeyFileError::Writable { .. } => Some("check that nobody added a key to it, then `chmod 600` it"),
        KeyFileError::Content { .. } => Some("restore the file; uploads under way need the key that was in it"),
    };
    let failure = Failure::new(Exit::File, "cannot use the key file", error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn origin(flag: &str, text: String) -> Result<Origin, Failure> {
    text.parse().map_err(|error| {
        Failure::new(Exit::Usage, format!("{flag} `{text}` is not an origin"), error)
            .hint("use a form such as https://photos.example or http://127.0.0.1:8000")
    })
}

/// Which gateways are listed, and whether permits are required.
fn permits(named: Option<&str>, gateways: Vec<String>) -> Result<Permits, Failure> {
    let required = match named {
        None | Some("offered") => false,
        Some("required") => true,
        Some(other) => return Err(Failure::usage(format!("permits must be `offered` or `required`, not `{other}`"))),
    };
    if gateways.len() > GATEWAYS_MAX {
        return Err(Failure::usage(format!(
            "{} gateways are listed, but at most {GATEWAYS_MAX} may be",
            gateways.len()
        )));
    }
    let parse = |name: &String| {
        name.parse().map_err(|error| {
            Failure::new(Exit::Usage, format!("--gateway `{name}` is not a gateway's name"), error)
                .hint("use the value of `gateway` in the gateway's answer to `GET /test`")
        })
    };
    Ok(Permits { required, gateways: gateways.iter().map(parse).collect::<Result<_, _>>()? })
}

/// Whether what users have in the address bar is plain HTTP to another machine.
fn is_in_the_open(origin: &Origin) -> bool {
    !origin.is_https() && !origin.is_loopback()
}

fn routes(path: &Path) -> Result<Routes, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Exit::File, format!("cannot read {}", path.display()), error))?;
    Routes::parse(&text).map_err(|error| Failure::new(Exit::Usage, format!("{} has an error", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::layers::Over as _;
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

    fn config(typed: ServiceFlags, file: ServiceFlags) -> Result<Config, Failure> {
        super::config(typed.over(file))
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
