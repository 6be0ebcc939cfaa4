//! Being found on the LAN: `hoop.local` and `_hoop._tcp` by multicast DNS ([`Announcement`]; RFC 6762, RFC 6763).

use crate::core::config::DEFAULT_PORT;
use mdns_sd::{ServiceDaemon, ServiceInfo};
use std::fmt;

/// The service type.
const SERVICE: &str = "_hoop._tcp.local.";

/// The host name.
const HOST: &str = "hoop.local.";

/// An announcement that holds until it is dropped. It follows the machine's addresses as they change.
///
/// It has a thread, which keeps what others on the LAN say, without a bound: `hoop gateway` gives it a process of its own.
pub struct Announcement {
    daemon: ServiceDaemon,
    name: String,
}

impl Announcement {
    /// Announces `instance` on `port`.
    ///
    /// # Errors
    /// If multicast DNS cannot be spoken here: no network, or its port is another's alone.
    pub fn begin(instance: &str, port: u16) -> Result<Self, mdns_sd::Error> {
        Self::begin_by(ServiceDaemon::new()?, instance, port)
    }

    fn begin_by(daemon: ServiceDaemon, instance: &str, port: u16) -> Result<Self, mdns_sd::Error> {
        let properties = [("version", env!("CARGO_PKG_VERSION")), ("path", "/offload")];
        let service = ServiceInfo::new(SERVICE, instance, HOST, "", port, &properties[..])?.enable_addr_auto();
        let name = service.get_fullname().to_owned();
        daemon.register(service)?;
        if port != DEFAULT_PORT {
            tracing::info!(port, "devices that know the name hoop.local alone will look at port {DEFAULT_PORT}");
        }
        Ok(Self { daemon, name })
    }
}

impl fmt::Debug for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Announcement").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Announcement {
    /// Says goodbye, so that nobody tries an address that is gone.
    fn drop(&mut self) {
        let _ = self.daemon.unregister(&self.name);
        let _ = self.daemon.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdns_sd::{IfKind, ServiceEvent};
    use std::time::Duration;

    /// A daemon that speaks on loopback alone.
    fn on_loopback() -> ServiceDaemon {
        let daemon = ServiceDaemon::new().unwrap();
        daemon.disable_interface(IfKind::All).unwrap();
        daemon.enable_interface(IfKind::LoopbackV4).unwrap();
        daemon
    }

    #[test]
    fn a_second_daemon_finds_the_gateway_by_its_service_type_with_port_and_host_name() {
        let announcement = Announcement::begin_by(on_loopback(), "Hoop gateway, tested", 4667).unwrap();
        let seeker = on_loopback();
        let events = seeker.browse(SERVICE).unwrap();
        let found = loop {
            match events.recv_timeout(Duration::from_secs(60)).expect("it is found within a minute") {
                ServiceEvent::ServiceResolved(found) if found.fullname == announcement.name => break found,
                _ => {}
            }
        };
        assert_eq!((found.host.as_str(), found.port), (HOST, 4667));
        assert!(found.addresses.iter().any(|address| address.is_loopback()), "{:?}", found.addresses);
        let _ = seeker.shutdown();
    }
}
