//! Where devices' connections go: [`Egress`].

use super::access_log::{ended_with, tried};
use super::lookups::Lookups;
use super::metered::Metered;
use super::metrics::Counters;
use super::places::Places;
use super::rate_limit::Shares;
use super::refusals::Refusals;
use crate::codes;
use crate::introduction::Devices;
use crate::wire::NEVER_PORTS;
use hoop_endpoint::DeviceId;
use hoop_http::to_try;
use hoop_units::{Here, Prefix};
use if_addrs::IfAddr;
use rustix::net::sockopt;
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// How long a destination has to take a connection.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// After so long without a byte a destination is asked whether it is still there, so often, and so many times (RFC 9293 §3.8.4). Programs cannot ask for that through a tunnel, and one
/// that only reads would wait for ever for a machine that is gone.
const PROBE_AFTER: Duration = Duration::from_secs(120);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 8;

/// How long a lookup may take before it counts as slow: a resolver that loses a question asks again after five seconds, and others answer within one.
const SLOW_AFTER: Duration = Duration::from_secs(2);

/// Why there is no connection, as who waits for it is told.
fn refusal_of(error: &io::Error) -> u64 {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => codes::REFUSED,
        io::ErrorKind::TimedOut => codes::TIMED_OUT,
        io::ErrorKind::HostUnreachable => codes::NO_HOST,
        io::ErrorKind::NetworkUnreachable => codes::NO_NETWORK,
        _ => codes::UNREACHABLE,
    }
}

/// Where a relay connects to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Allowed {
    /// Anywhere at all.
    pub any: bool,
    /// These, though they are not public.
    pub addresses: BTreeSet<Prefix>,
    /// These ports, though they are among [`NEVER_PORTS`].
    pub ports: BTreeSet<u16>,
}

impl Allowed {
    /// Public addresses that are not this machine's, nor its neighbours', and those that are listed: a device that was introduced is not let into the server's network by that.
    fn allows(&self, to: SocketAddr, here: &Here, own_ports: &BTreeSet<u16>) -> bool {
        let address = to.ip();
        // Not to itself, whatever is listed: such a connection would hold two of its own places. Linux takes the unspecified address for loopback.
        let canonical = address.to_canonical();
        let is_own = canonical.is_loopback() || canonical.is_unspecified() || here.is_own(address);
        let is_itself = own_ports.contains(&to.port()) && is_own;
        if is_itself || (NEVER_PORTS.contains(&to.port()) && !self.ports.contains(&to.port())) {
            return false;
        }
        self.any
            || self.addresses.iter().any(|listed| listed.contains(address))
            || (hoop_units::is_public(address) && !here.is_near(address))
    }
}

/// Where the relay is, as its interfaces are now: they come and go.
fn look() -> io::Result<Here> {
    let bits = |interface: &if_addrs::Interface| match &interface.addr {
        IfAddr::V4(v4) => v4.prefixlen.into(),
        IfAddr::V6(v6) => v6.prefixlen.into(),
    };
    Ok(Here::of(if_addrs::get_if_addrs()?.iter().map(|interface| (interface.ip(), bits(interface)))))
}

/// Names that are looked up at once, of all devices and of each: a lookup takes a thread, for as long as the resolver takes.
pub(crate) const LOOKUPS: usize = 256;
pub(crate) const LOOKUPS_OF_DEVICE: usize = 16;

/// The most that the kernel keeps for a connection whose place is not wide, in bytes: at 50 ms to its destination it carries 20 Mbit/s. Linux takes it twice.
const NARROW_BYTES: u32 = 128 << 10;

/// Where devices' connections go, and what each device may use for them.
#[derive(Debug)]
pub(crate) struct Egress {
    pub devices: Arc<Devices>,
    pub allowed: Allowed,
    /// Those that the relay itself listens on, where it never goes on its own machine.
    pub own_ports: BTreeSet<u16>,
    /// Names that are looked up.
    pub lookups: Arc<Lookups>,
    /// Connections to destinations.
    pub connections: Arc<Places>,
    pub shares: Shares,
    pub refusals: Refusals,
    pub counters: Arc<Counters>,
}

impl Egress {
    /// A connection of this device's to `HOST:PORT`. It counts as the device's as long as it is there, and waits for a place if the device has no more, for [`CONNECT_MAX`] at most.
    ///
    /// # Errors
    /// The code that says why there is none ([`codes`]).
    pub async fn connect(&self, destination: &str, device: DeviceId) -> Result<Metered, u64> {
        let share = self.shares.begin(device, Instant::now()).ok_or(codes::TOO_MANY)?;
        let place = timeout(CONNECT_MAX, self.connections.take(device)).await.ok().flatten().ok_or(codes::TOO_MANY)?;
        if destination.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
            return Err(codes::MALFORMED);
        }
        tried();
        let addresses = match destination.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                timeout(CONNECT_MAX, self.look_up(destination, device)).await.map_err(|_| codes::UNKNOWN_NAME)??
            }
        };
        let permitted = self.permitted(addresses, device)?;
        let connecting = connect_to(&permitted, &self.shares, device, place.is_wide());
        let stream = timeout(CONNECT_MAX, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(|error| refusal_of(&error))?;
        // What a flow brings is as large as it will be.
        let _ = stream.set_nodelay(true);
        Ok(Metered::new(stream, share, place, self.counters.clone()))
    }

    /// Whether connections of this device wait for others of its own.
    pub fn is_behind(&self, device: DeviceId) -> bool {
        self.connections.waits(device) || self.lookups.waits(device)
    }

    /// Counts that a device was refused, or that its connection broke off, with this code.
    pub fn ended(&self, device: DeviceId, code: u64) {
        self.counters.ended(code);
        ended_with(code);
        if code == codes::TOO_MANY && self.refusals.are_written(device, Instant::now()) {
            tracing::info!(
                device = hex::encode(device.0),
                "a device begins more connections than its share, or has too many"
            );
        }
    }

    /// The addresses of `HOST:PORT`. A lookup that nobody waits for any more keeps its place until the resolver has answered.
    async fn look_up(&self, destination: &str, device: DeviceId) -> Result<Vec<SocketAddr>, u64> {
        let place = self.lookups.take(device).await.ok_or(codes::UNKNOWN_NAME)?;
        let (destination, patience) = (destination.to_owned(), place.patience());
        let mut found = self.lookups.run(move || {
            let _place = place;
            destination.to_socket_addrs().map(Vec::from_iter)
        });
        let found = match timeout(SLOW_AFTER, &mut found).await {
            Ok(found) => found,
            Err(_) => {
                drop(patience);
                found.await
            }
        };
        found.ok().and_then(Result::ok).ok_or(codes::UNKNOWN_NAME)
    }

    /// Those of `addresses` that this device may go to and that are tried, at least one: each counts as a connection, and whoever owns a name may give it thousands.
    fn permitted(&self, addresses: Vec<SocketAddr>, device: DeviceId) -> Result<Vec<SocketAddr>, u64> {
        // They come and go; without knowing them nothing is public.
        let unknown = || Here::of(addresses.iter().map(|address| (address.ip(), u32::MAX)));
        let here = look().unwrap_or_else(|_| unknown());
        let only = self.devices.only(device);
        let is_its = |to: &SocketAddr| only.as_ref().is_none_or(|only| only.iter().any(|own| own.contains(to.ip())));
        let (may, may_not): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|to| is_its(to) && self.allowed.allows(*to, &here, &self.own_ports));
        if !may.is_empty() {
            return Ok(to_try(may));
        }
        let Some(to) = may_not.first() else { return Err(codes::UNKNOWN_NAME) };
        if self.refusals.are_written(device, Instant::now()) {
            self.say_forbidden(to, device, is_its(to));
        }
        Err(codes::FORBIDDEN)
    }

    fn say_forbidden(&self, to: &SocketAddr, device: DeviceId, is_its: bool) {
        let device = hex::encode(device.0);
        if !is_its {
            tracing::info!(device, %to, "a device may not go there: it is not in its `only`");
        } else if NEVER_PORTS.contains(&to.port()) {
            tracing::info!(device, %to, "a device may not go to this port: --allow-port would let all");
        } else if self.allowed.any || self.allowed.addresses.iter().any(|listed| listed.contains(to.ip())) {
            tracing::info!(device, %to, "a device may not go to the relay itself");
        } else {
            tracing::info!(device, %to, "a device may not go there: --allow {} would let it", to.ip());
        }
    }
}

/// Connects to the first that takes it, as [`TcpStream::connect`] does. Each after the first counts as one more connection that the device begins: a name of its own may have thousands of addresses.
async fn connect_to(addresses: &[SocketAddr], shares: &Shares, host: DeviceId, is_wide: bool) -> io::Result<TcpStream> {
    let mut tried = Err(io::ErrorKind::AddrNotAvailable.into());
    for (at, address) in addresses.iter().enumerate() {
        if at > 0 && shares.begin(host, Instant::now()).is_none() {
            break;
        }
        tried = connect_socket(*address, is_wide).await;
        if tried.is_ok() {
            break;
        }
    }
    tried
}

async fn connect_socket(address: SocketAddr, is_wide: bool) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if !is_wide {
        // Before it connects, so that the window fits.
        socket.set_recv_buffer_size(NARROW_BYTES)?;
        socket.set_send_buffer_size(NARROW_BYTES)?;
    }
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(&socket, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    socket.connect(address).await
}

#[cfg(test)]
mod tests {
    use super::super::places::WIDE;
    use super::super::rate_limit::ShareLimits;
    use super::*;
    use std::net::IpAddr;
    use std::path::Path;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// What a relay at this port has that knows one device.
    fn egress(folder: &Path, port: u16) -> impl Fn(&Allowed) -> Egress {
        let path = folder.join("devices.toml");
        std::fs::write(&path, format!("[devices]\n{} = \"{}\"\n", "01".repeat(20), "09".repeat(32))).unwrap();
        move |allowed| Egress {
            devices: Arc::new(Devices::open(&path).unwrap()),
            allowed: allowed.clone(),
            own_ports: [port].into(),
            lookups: Lookups::new(1, 1),
            connections: Places::new(1, 1),
            shares: Shares::new(ShareLimits::default()),
            refusals: Refusals::default(),
            counters: Arc::default(),
        }
    }

    #[tokio::test]
    async fn a_device_gets_to_public_addresses_and_to_those_that_are_listed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().to_string();
        let none = Allowed::default();
        let folder = tempfile::tempdir().unwrap();
        let egress = egress(folder.path(), listener.local_addr().unwrap().port() ^ 1);
        let connect = async |destination: &str, allowed: &Allowed| {
            egress(allowed).connect(destination, DeviceId([1; 20])).await.map(drop)
        };
        assert_eq!(connect(&here, &none).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("[::ffff:127.0.0.1]:1", &none).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("10.0.0.1:22", &none).await.unwrap_err(), codes::FORBIDDEN);
        let listed = Allowed { addresses: [IpAddr::from([127, 0, 0, 1]).into()].into(), ..none.clone() };
        assert!(connect(&here, &listed).await.is_ok());
        assert_eq!(connect("127.0.0.2:1", &listed).await.unwrap_err(), codes::FORBIDDEN);
        assert_eq!(connect("127.0.0.1:1", &listed).await.unwrap_err(), codes::REFUSED);
        for malformed in ["", "127.0.0.1", ":1", "127.0.0.1:99999", "x:"] {
            assert_eq!(connect(malformed, &listed).await.unwrap_err(), codes::MALFORMED, "{malformed}");
        }
    }

    #[test]
    fn a_neighbour_with_a_public_address_is_in_the_relays_network() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let here = Here::of([(ip("2a02:2454::5"), 64), (ip("93.184.216.5"), 29)]);
        let at = |address: &str| SocketAddr::new(ip(address), 443);
        for (address, may) in [
            ("2a02:2454::5", false),
            ("2a02:2454::17", false),
            ("2a02:2454:0:1::17", true),
            ("93.184.216.5", false),
            ("93.184.216.7", false),
            ("::ffff:93.184.216.7", false),
            ("93.184.216.8", true),
        ] {
            assert_eq!(Allowed::default().allows(at(address), &here, &[4669].into()), may, "{address}");
            let listed = Allowed { addresses: ["2a02:2454::/64".parse().unwrap()].into(), ..Allowed::default() };
            assert_eq!(
                listed.allows(at(address), &here, &[4669].into()),
                may || address.starts_with("2a02:2454::"),
                "{address}"
            );
        }
        assert!(look().unwrap().is_near(ip("127.9.9.9")), "loopback's");
    }

    #[test]
    fn no_device_gets_to_port_25_or_to_the_relay_itself_whatever_is_listed() {
        let here = Here::default().known_as(&[IpAddr::from([192, 0, 2, 5])]);
        let any = Allowed { any: true, ..Allowed::default() };
        let mail = Allowed { ports: [25].into(), ..any.clone() };
        for (to, by_default, with_any, with_mail) in [
            ("93.184.216.8:25", false, false, true),
            ("93.184.216.8:587", true, true, true),
            ("[2606:2800::8]:25", false, false, true),
            ("192.0.2.5:4669", false, false, false),
            ("127.0.0.1:4669", false, false, false),
            ("[::ffff:127.0.0.1]:4669", false, false, false),
            ("0.0.0.0:4669", false, false, false),
            ("[::]:4669", false, false, false),
            ("[::ffff:0.0.0.0]:4669", false, false, false),
            ("127.0.0.1:4670", false, true, true),
            ("93.184.216.8:4669", true, true, true),
        ] {
            let to = to.parse().unwrap();
            let may = [&Allowed::default(), &any, &mail].map(|allowed| allowed.allows(to, &here, &[4669].into()));
            assert_eq!(may, [by_default, with_any, with_mail], "{to}");
        }
    }

    #[tokio::test]
    async fn a_device_with_networks_of_its_own_goes_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let egress = egress(folder.path(), 1);
        let path = folder.path().join("devices.toml");
        let listed = std::fs::read_to_string(&path).unwrap();
        for (only, may) in [("127.0.0.0/8", true), ("10.9.2.0/24", false)] {
            std::fs::write(&path, format!("{listed}[only]\n{} = [\"{only}\"]\n", "01".repeat(20))).unwrap();
            let to = listener.local_addr().unwrap().to_string();
            let any = Allowed { any: true, ..Allowed::default() };
            let connected = egress(&any).connect(&to, DeviceId([1; 20])).await;
            assert_eq!(connected.map(drop).err(), (!may).then_some(codes::FORBIDDEN), "{only}");
        }
        std::fs::write(&path, format!("[only]\n{} = [\"everywhere\"]\n", "01".repeat(20))).unwrap();
        let error = Devices::open(&path).unwrap_err().to_string();
        assert!(error.contains("`only` has `everywhere`: an address is wanted"), "{error}");
    }

    #[test]
    fn a_name_with_thousands_of_addresses_takes_little_of_a_devices_share() {
        let folder = tempfile::tempdir().unwrap();
        let at = egress(folder.path(), 4669);
        let egress = at(&Allowed { any: true, ..Allowed::default() });
        let many: Vec<_> = (0..2_000_u16).map(|at| SocketAddr::from(([8, 8, (at >> 8) as u8, at as u8], 80))).collect();
        assert_eq!(egress.permitted(many, DeviceId([1; 20])).unwrap().len(), 16);
    }

    /// A name of a device's own may have thousands.
    #[tokio::test]
    async fn each_address_of_a_name_counts_as_a_connection_that_a_device_begins() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Nobody listens at the first ones.
        let addresses: Vec<_> = (0..9).map(|at| SocketAddr::from(([127, 0, 0, 9 - at], port))).collect();
        let host = DeviceId([1; 20]);
        for (begun_per_minute, is_reached) in [(0, true), (9, true), (5, false)] {
            let shares = Shares::new(ShareLimits { begun_per_minute, rate: None });
            let _begun = shares.begin(host, Instant::now()).unwrap();
            let connection = connect_to(&addresses, &shares, host, true).await;
            assert_eq!(connection.is_ok(), is_reached, "{begun_per_minute}");
            assert_eq!(shares.begin(host, Instant::now()).is_none(), begun_per_minute > 0, "all of it is used up");
        }
    }

    #[tokio::test]
    async fn the_kernel_keeps_little_for_what_a_device_has_many_of() {
        let places = Places::new(1_000, 100);
        let mut held = Vec::new();
        for number in 0..2 * WIDE {
            held.push(places.take(DeviceId([1; 20])).await.unwrap());
            assert_eq!(held.last().unwrap().is_wide(), number < WIDE);
        }
        assert!(places.take(DeviceId([2; 20])).await.unwrap().is_wide(), "another device has its own");
        let unread = unread_of_narrow().await;
        assert!(unread <= 2 * NARROW_BYTES as usize, "{unread} bytes lie in the kernel");
        let untaken = untaken_of_narrow().await;
        assert!(untaken <= 3 * NARROW_BYTES as usize, "{untaken} bytes lie in the kernel");
    }

    #[tokio::test]
    async fn a_destination_that_says_nothing_is_probed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for is_wide in [true, false] {
            let stream = connect_socket(listener.local_addr().unwrap(), is_wide).await.unwrap();
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), PROBE_AFTER);
            assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), PROBE_EVERY);
            assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), PROBES);
        }
    }

    /// How much is written to a destination that takes little, and then nothing.
    async fn untaken_of_narrow() -> usize {
        let listener = TcpSocket::new_v4().unwrap();
        listener.set_recv_buffer_size(4_096).unwrap();
        listener.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = listener.listen(1).unwrap();
        let writer = connect_socket(listener.local_addr().unwrap(), false).await.unwrap();
        let _reader = listener.accept().await.unwrap();
        let (mut before, mut written) = (0, 1);
        while written > before {
            before = written;
            while let Ok(len) = writer.try_write(&[0; 1 << 16]) {
                written += len;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            // What it has learnt since.
            let _ = tokio::time::timeout(Duration::from_millis(100), writer.writable()).await;
        }
        written
    }

    /// How much of what a destination sends lies in the kernel, when a reader who had his window grow takes nothing more.
    async fn unread_of_narrow() -> usize {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut reader = connect_socket(listener.local_addr().unwrap(), false).await.unwrap();
        let (mut writer, _) = listener.accept().await.unwrap();
        let writing = tokio::spawn(async move {
            let bytes = vec![0; 1 << 20];
            while writer.write_all(&bytes).await.is_ok() {}
        });
        let mut buffer = vec![0; 32 << 20];
        for _ in 0..64 {
            reader.read_exact(&mut buffer[..1 << 20]).await.unwrap();
        }
        let (mut before, mut unread) = (0, 1);
        while unread > before {
            tokio::time::sleep(Duration::from_millis(100)).await;
            (before, unread) = (unread, reader.peek(&mut buffer).await.unwrap());
        }
        writing.abort();
        unread
    }
}
