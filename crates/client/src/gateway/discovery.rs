//! Finding the gateway on the LAN, and connecting to it: [`find`].
//!
//! Three questions at once: DNS-SD for `_hoop._tcp.local`, mDNS for `hoop.local`, and the system's resolver for
//! `hoop.local` (a router may own that name by plain DNS); and meanwhile the gateway of the last time is tried. Where no gateway is known, the
//! first address that takes a connection is the gateway. Where one is, each has to show who it is, and the one that is known wins: it is waited for a
//! moment after another has answered, since anybody on the network can be quicker.

use crate::config::{ClientConfig, GatewayChoice};
use crate::gateway::identity::{self, Met};
use crate::gateway::known::Known;
use crate::gateway::place::{interfaces, origin_of};
use crate::private::write_private;
use crate::wire::Link;
use hoop_http::{Connector, Origin};
use mdns_sd::{HostnameResolutionEvent, ServiceDaemon, ServiceEvent};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// 4667 spells HOOP on a keypad.
pub const GATEWAY_PORT: u16 = 4667;

/// The gateway's name on the LAN.
pub const GATEWAY_NAME: &str = "hoop.local";

const SERVICE_TYPE: &str = "_hoop._tcp.local.";

/// Addresses that are tried; a LAN has one gateway or two, each with a few addresses.
const CANDIDATES_MAX: usize = 16;

/// So long a gateway that is known here is waited for once another has answered: mDNS asks again after a second, and whoever is there has answered by then.
const KNOWN_GRACE: Duration = Duration::from_millis(1_500);

/// The gateway, and who it has shown to be; or why there is none.
pub(crate) async fn find_and_meet(config: &ClientConfig, connector: Connector) -> Result<(Link, Met), String> {
    let (mut link, met) = seek(config, connector, &[]).await?;
    let met = match met {
        Some(met) => met,
        None => identity::meet(&mut link, config.meeting_timeout()).await,
    };
    Ok((link, met))
}

/// The gateway, one that is not among `tried`, or why there is none.
pub(crate) async fn find(config: &ClientConfig, connector: Connector, tried: &[Origin]) -> Result<Link, String> {
    seek(config, connector, tried).await.map(|(link, _)| link)
}

/// The same, and who it has shown to be if it was asked.
async fn seek(config: &ClientConfig, connector: Connector, tried: &[Origin]) -> Result<(Link, Option<Met>), String> {
    let connector = connector.with_timeout(config.gateway_connect_timeout);
    match &config.gateway {
        GatewayChoice::None => Err("no gateway was asked for".to_owned()),
        GatewayChoice::At(origin) => {
            first_of(connector, std::slice::from_ref(origin), tried).await.map(|link| (link, None))
        }
        GatewayChoice::AnyOf(origins) => first_of(connector, origins, tried).await.map(|link| (link, None)),
        GatewayChoice::Auto => {
            let last = recall(config).filter(|last| !tried.contains(last));
            look_around(config, connector, last, tried).await
        }
    }
}

/// The file in the state folder that names the gateway of the last time.
const LAST: &str = "gateway";

fn recall(config: &ClientConfig) -> Option<Origin> {
    std::fs::read_to_string(config.state_dir.as_ref()?.join(LAST)).ok()?.trim().parse().ok()
}

/// Remembers a gateway that was found by looking, for the next time. It saves the next push the second or so that mDNS
/// may take, so a failure is no more than that.
pub(crate) fn remember(config: &ClientConfig, origin: &Origin) {
    let Some(folder) = config.state_dir.as_ref().filter(|_| config.gateway == GatewayChoice::Auto) else { return };
    if recall(config).as_ref() != Some(origin)
        && let Err(error) = write_private(folder, LAST, format!("{origin}\n").as_bytes())
    {
        tracing::debug!(%error, "cannot remember the gateway");
    }
}

/// The first of `origins`, in their order, that takes a connection.
async fn first_of(connector: Connector, origins: &[Origin], tried: &[Origin]) -> Result<Link, String> {
    let mut reason = "there is no other gateway".to_owned();
    for origin in origins.iter().filter(|origin| !tried.contains(origin)) {
        match connect(connector.clone(), origin.clone()).await {
            Ok(link) => return Ok(link),
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

async fn connect(connector: Connector, origin: Origin) -> Result<Link, String> {
    let mut link = Link::new(connector, origin);
    link.open().await.map_err(|error| format!("the gateway is out of reach: {error}"))?;
    Ok(link)
}

async fn look_around(
    config: &ClientConfig,
    connector: Connector,
    last: Option<Origin>,
    not: &[Origin],
) -> Result<(Link, Option<Met>), String> {
    let (sender, candidates) = mpsc::channel(CANDIDATES_MAX);
    let mut searches = JoinSet::new();
    let daemon = ServiceDaemon::new().map_err(|error| tracing::debug!(%error, "no mDNS")).ok().map(Daemon);
    if let Some(Daemon(daemon)) = &daemon {
        searches.spawn(browse(daemon.clone(), sender.clone()));
        searches.spawn(resolve(daemon.clone(), sender.clone()));
    }
    searches.spawn(ask_system(sender));
    let (known, timeout) = (Arc::new(Known::read(config)), config.meeting_timeout());
    let attempt = |origin| {
        let (connector, known) = (connector.clone(), known.clone());
        async move {
            let mut link = connect(connector, origin).await.ok()?;
            let expected = known.expected(&identity::place(&mut link).await.ok()?, &interfaces());
            if expected.is_empty() {
                return Some(((link, None), Standing::First));
            }
            let met = identity::meet(&mut link, timeout).await;
            let standing = if met.shown.is_one_of(&expected) { Standing::Known } else { Standing::Other };
            Some(((link, Some(met)), standing))
        }
    };
    let found = choose(candidates, last, not, config.discovery_timeout, attempt).await;
    found.ok_or_else(|| "there is no gateway on this network".to_owned())
}

/// What a gateway that answers is, by what is known at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// One that is known.
    Known,
    /// Nobody is, and nobody is in any network of this device.
    First,
    /// Another than those that are, or one that shows nothing.
    Other,
}

/// Of the candidates, and the gateway of the `last` time, but `not` of these: the first that is known, or that is where nobody is; else the first, if no such one comes
/// within [`KNOWN_GRACE`] of it. None if nobody answers `within` that time.
async fn choose<T: Send + 'static, A>(
    mut candidates: mpsc::Receiver<SocketAddr>,
    last: Option<Origin>,
    not: &[Origin],
    within: Duration,
    attempt: impl Fn(Origin) -> A,
) -> Option<T>
where
    A: Future<Output = Option<(T, Standing)>> + Send + 'static,
{
    let mut attempts = JoinSet::new();
    let mut tried = Vec::new();
    if let Some(origin) = last {
        attempts.spawn(attempt(origin));
    }
    let mut other = None;
    let mut until = Instant::now() + within;
    loop {
        // Of a known one, or of any.
        let may_come = other.is_some() || !candidates.is_closed() || !attempts.is_empty();
        tokio::select! {
            Some(address) = candidates.recv() => {
                let known = tried.contains(&address) || not.contains(&origin_of(address));
                if !known && tried.len() < CANDIDATES_MAX {
                    tried.push(address);
                    attempts.spawn(attempt(origin_of(address)));
                }
            }
            Some(attempt) = attempts.join_next() => match attempt.ok().flatten() {
                Some((found, Standing::Known | Standing::First)) => return Some(found),
                Some((found, Standing::Other)) if other.is_none() => {
                    other = Some(found);
                    until = Instant::now() + KNOWN_GRACE;
                }
                Some(_) | None => {}
            },
            () = tokio::time::sleep_until(until), if may_come => return other,
            else => return other,
        }
    }
}

/// A thread that listens to multicast DNS; it ends when this is dropped, also when the search was given up.
struct Daemon(ServiceDaemon);

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::debug!(%error, "the mDNS thread does not take its end");
        }
    }
}

/// An address that a gateway can be reached at: link-local ones need a scope, which no URL has (RFC 6874 was withdrawn). Whoever answers on the
/// network does not say what runs on this machine: loopback, multicast and no address at all are passed over.
pub(crate) fn candidate(address: IpAddr, port: u16) -> Option<SocketAddr> {
    let address = address.to_canonical();
    let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    let elsewhere = address.is_loopback() || address.is_multicast() || address.is_unspecified() || broadcast;
    (!link_local && !elsewhere).then(|| (address, port).into())
}

async fn offer(sender: &mpsc::Sender<SocketAddr>, address: IpAddr, port: u16) {
    if let Some(candidate) = candidate(address, port) {
        let _ = sender.send(candidate).await;
    }
}

async fn browse(daemon: ServiceDaemon, sender: mpsc::Sender<SocketAddr>) {
    let Ok(events) = daemon.browse(SERVICE_TYPE) else { return };
    while let Ok(event) = events.recv_async().await {
        if let ServiceEvent::ServiceResolved(service) = event {
            for address in &service.addresses {
                offer(&sender, address.to_ip_addr(), service.port).await;
            }
        }
    }
}

async fn resolve(daemon: ServiceDaemon, sender: mpsc::Sender<SocketAddr>) {
    let Ok(events) = daemon.resolve_hostname(&format!("{GATEWAY_NAME}."), None) else { return };
    while let Ok(event) = events.recv_async().await {
        if let HostnameResolutionEvent::AddressesFound(_, addresses) = event {
            for address in &addresses {
                offer(&sender, address.to_ip_addr(), GATEWAY_PORT).await;
            }
        }
    }
}

async fn ask_system(sender: mpsc::Sender<SocketAddr>) {
    let Ok(addresses) = tokio::net::lookup_host((GATEWAY_NAME, GATEWAY_PORT)).await else { return };
    for address in addresses {
        offer(&sender, address.ip(), address.port()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(folder: &std::path::Path, gateway: GatewayChoice) -> ClientConfig {
        ClientConfig { state_dir: Some(folder.to_owned()), gateway, ..ClientConfig::default() }
    }

    #[test]
    fn a_gateway_that_was_found_is_remembered_and_one_that_was_named_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [found, named]: [Origin; 2] =
            ["http://192.0.2.1:4667", "http://192.0.2.2:4667"].map(|o| o.parse().unwrap());
        let auto = config(folder.path(), GatewayChoice::Auto);
        assert_eq!(recall(&auto), None);
        remember(&auto, &found);
        remember(&config(folder.path(), GatewayChoice::At(named.clone())), &named);
        assert_eq!(recall(&auto), Some(found));
    }

    #[test]
    fn an_answer_that_points_to_this_machine_or_to_many_is_ignored() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "224.0.0.251",
            "ff02::fb",
            "255.255.255.255",
            "fe80::1",
        ] {
            assert_eq!(candidate(address.parse().unwrap(), 4667), None, "{address}");
        }
        for address in ["192.168.1.1", "10.0.0.1", "2001:db8::1", "fd00::1", "169.254.3.4"] {
            assert_eq!(
                candidate(address.parse().unwrap(), 4667).map(|found| found.ip()),
                Some(address.parse().unwrap())
            );
        }
    }

    const WITHIN: Duration = Duration::from_millis(1_500);

    /// Who answers at a port, after so many milliseconds.
    async fn chosen(answers: &'static [(u16, u64, Standing)]) -> Option<u16> {
        let (sender, candidates) = mpsc::channel(CANDIDATES_MAX);
        for (port, ..) in answers {
            sender.send(SocketAddr::from(([192, 0, 2, 1], *port))).await.unwrap();
        }
        let attempt = |origin: Origin| async move {
            let (port, after, standing) =
                answers.iter().find(|(port, ..)| origin.authority().ends_with(&port.to_string()))?;
            tokio::time::sleep(Duration::from_millis(*after)).await;
            Some((*port, *standing))
        };
        let chosen = choose(candidates, None, &[], WITHIN, attempt).await;
        drop(sender);
        chosen
    }

    #[tokio::test(start_paused = true)]
    async fn the_gateway_that_is_known_wins_over_one_that_answers_sooner() {
        use Standing::{First, Known, Other};
        assert_eq!(chosen(&[(4667, 1, Other), (4668, 1_000, Known)]).await, Some(4668));
        assert_eq!(chosen(&[(4667, 1, Other), (4668, 5, Other), (4669, 1_400, Known)]).await, Some(4669));
        assert_eq!(chosen(&[(4667, 1, Other), (4668, 60_000, Known)]).await, Some(4667), "it is not waited for long");
        assert_eq!(chosen(&[(4667, 1, Other), (4668, 2, Other)]).await, Some(4667));
        assert_eq!(chosen(&[(4667, 1, First), (4668, 0, Other)]).await, Some(4667), "nobody is known there");
        assert_eq!(chosen(&[(4667, 1_400, Other)]).await, Some(4667), "also if it is the last moment to answer");
        assert_eq!(chosen(&[(4667, 1_400, Other), (4668, 2_800, Known)]).await, Some(4668));
        assert_eq!(chosen(&[(4667, 1_600, Known)]).await, None, "nobody is waited for without end");
        let begun = Instant::now();
        assert_eq!(chosen(&[(4667, 1, First), (4668, 1_000, Known)]).await, Some(4667));
        assert!(begun.elapsed() < KNOWN_GRACE, "where nobody is known, nobody is waited for");
    }

    #[tokio::test]
    async fn a_gateway_that_is_not_there_is_said_to_be_out_of_reach() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = origin_of(listener.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), GatewayChoice::At(origin.clone()));
        let connector = || Connector::new(hoop_http::tls::client_config(&[]).unwrap());
        assert_eq!(find(&config, connector(), &[]).await.unwrap().origin(), &origin);
        drop(listener);
        assert!(find(&config, connector(), &[]).await.unwrap_err().starts_with("the gateway is out of reach: "));
    }
}
