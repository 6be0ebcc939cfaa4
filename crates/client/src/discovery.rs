//! Finding the gateway on the LAN, and connecting to it: [`find`].
//!
//! Three questions at once: DNS-SD for `_hoop._tcp.local`, mDNS for `hoop.local`, and the system's resolver for
//! `hoop.local` (a router may own that name by plain DNS). The first address that takes a connection is the gateway; no
//! request is spent on asking it whether it is one, since the answer to the upload's first `PUT` says so.

use crate::config::{ClientConfig, GatewayChoice};
use crate::wire::Link;
use hoop_http::{Connector, Origin};
use mdns_sd::{HostnameResolutionEvent, ServiceDaemon, ServiceEvent};
use std::net::{IpAddr, SocketAddr};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// 4667 spells HOOP on a keypad.
pub const GATEWAY_PORT: u16 = 4667;

/// The gateway's name on the LAN.
pub const GATEWAY_NAME: &str = "hoop.local";

const SERVICE_TYPE: &str = "_hoop._tcp.local.";

/// Addresses that are tried; a LAN has one gateway or two, each with a few addresses.
const CANDIDATES_MAX: usize = 16;

/// An open connection to the gateway, or why there is none.
pub(crate) async fn find(config: &ClientConfig, connector: Connector) -> Result<Link, String> {
    let connector = connector.with_timeout(config.gateway_connect_timeout);
    match &config.gateway {
        GatewayChoice::None => Err("no gateway was asked for".to_owned()),
        GatewayChoice::At(origin) => connect(connector, origin.clone()).await,
        GatewayChoice::Auto => match tokio::time::timeout(config.discovery_timeout, look_around(connector)).await {
            Ok(found) => found,
            Err(_) => Err("there is no gateway on this network".to_owned()),
        },
    }
}

async fn connect(connector: Connector, origin: Origin) -> Result<Link, String> {
    let mut link = Link::new(connector, origin);
    link.open().await.map_err(|error| format!("the gateway is out of reach: {error}"))?;
    Ok(link)
}

async fn look_around(connector: Connector) -> Result<Link, String> {
    let (sender, mut candidates) = mpsc::channel(CANDIDATES_MAX);
    let mut searches = JoinSet::new();
    let daemon = ServiceDaemon::new().map_err(|error| tracing::debug!(%error, "no mDNS")).ok();
    if let Some(daemon) = &daemon {
        searches.spawn(browse(daemon.clone(), sender.clone()));
        searches.spawn(resolve(daemon.clone(), sender.clone()));
    }
    searches.spawn(ask_system(sender));
    let mut attempts = JoinSet::new();
    let mut tried = Vec::new();
    let found = loop {
        tokio::select! {
            Some(address) = candidates.recv() => {
                if !tried.contains(&address) && tried.len() < CANDIDATES_MAX {
                    tried.push(address);
                    let origin = origin_of(address);
                    attempts.spawn(connect(connector.clone(), origin));
                }
            }
            Some(Ok(Ok(link))) = attempts.join_next() => break Ok(link),
            else => break Err("there is no gateway on this network".to_owned()),
        }
    };
    if let Some(daemon) = daemon {
        let _ = daemon.shutdown();
    }
    found
}

fn origin_of(address: SocketAddr) -> Origin {
    format!("http://{address}").parse().expect("an address and a port make an origin")
}

/// Addresses that a gateway can be reached at: link-local ones need a scope, which no URL has (RFC 6874 was withdrawn).
async fn offer(sender: &mpsc::Sender<SocketAddr>, address: IpAddr, port: u16) {
    let link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    if !link_local {
        let _ = sender.send((address, port).into()).await;
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
