//! What a server is given: [`ServerConfig`], its [`ServerLimits`], and the keys of its devices ([`DeviceKeys`]).

use super::carriers::CarrierLimits;
use crate::clock::Clock;
use crate::options::FlowOptions;
use hoop_carrier::Pending;
use hoop_flow::{DeviceId, DeviceKey};
use hoop_flow_store::{ByteStore, FlowStore};
use hoop_units::Duration;
use std::collections::HashMap;
use std::sync::Arc;

/// Whose keys a server knows, and what it offers.
pub trait DeviceKeys: Send + Sync {
    /// The key of a device; None if it is not known. A device is told nothing of which it was.
    fn key(&self, host: DeviceId) -> Pending<'_, Option<DeviceKey>>;

    /// Whether there is such a service for the device. By default there is.
    fn offers(&self, host: DeviceId, service: &str) -> bool {
        let _ = (host, service);
        true
    }
}

/// One key for each of these devices.
impl DeviceKeys for HashMap<DeviceId, DeviceKey> {
    fn key(&self, host: DeviceId) -> Pending<'_, Option<DeviceKey>> {
        Box::pin(std::future::ready(self.get(&host).copied()))
    }
}

/// Flows of one device that a server has at once, unless it is configured otherwise.
pub const FLOWS_OF_DEVICE: usize = 1_024;

/// What a server's end may hold. What is beyond is refused with the code in brackets; none of it harms flows that are there.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Flows that are not parked, in all (4, busy). Default 65,536.
    pub flows: usize,
    /// The same of one device (5, full). Default [`FLOWS_OF_DEVICE`].
    pub flows_of_device: usize,
    /// Lanes of one carrier that have not said OPEN or RESUME yet; more are not accepted until one has, or [`GREETING_MAX`](crate::GREETING_MAX) has passed. Default 16.
    pub greetings: usize,
    /// Carriers at once. When there is no room, one over which no flow was attached yet is closed, as with `unauthenticated_carriers`; if there is none, the new one. Default 16,384.
    pub carriers: usize,
    /// Those of them that are WebSockets, which take a descriptor each. When there is no room, the oldest of them is closed over which no flow was attached yet; if there is none, the new one.
    /// Default 16,384.
    pub websockets: usize,
    /// Carriers over which no flow was attached yet, whose some 100 to 400 KB of memory each no device's account has. When there are as many, one is closed for each that comes: the oldest of
    /// the address that has most. A device's is one for some round trips. Default 1,024.
    pub unauthenticated_carriers: usize,
    /// Carriers from one address (IPv6: one /64) over which no flow was attached yet; more are closed. Default 64.
    pub unauthenticated_carriers_of_address: usize,
    /// Carriers of one device; more are closed. Default 1,024: each program under `hoop run` has its own. Beyond the first 32 one brings no more at once than 128 KiB.
    pub carriers_of_device: usize,
    /// Flows that nobody has accepted yet (4, busy). Default 1,024.
    pub backlog: usize,
    /// Bytes of all flows together, written and not acknowledged or come and not read, those included that came before their turn. Beyond it no flow is opened (4, busy). Each flow
    /// that holds any has its part, and of half of it whoever wants it has what is free; whoever writes waits while its flow has no more. Devices, too, are told that they may send no
    /// more than this in all, shared out in the same way. A flow may write 64 KiB if it holds none, and be sent 64 KiB, nevertheless. So there is never more than twice this and 128 KiB
    /// for each flow, and one window for each that was parked, outlived a restart, or has [`AckPolicy::Stored`](crate::AckPolicy::Stored); and no more than 1 MiB for each flow of buffers that pieces of what came lie in. Default 1 GiB.
    pub memory: u64,
    /// The same of one device, whose flows are opened nevertheless: one that does not read, or is away, or sends what is not read, takes no more of the memory than that, with the same exceptions. Default 128 MiB.
    pub memory_of_device: u64,
    /// Flows of which it is remembered how they ended; the oldest are forgotten first. Default 65,536.
    pub ended: usize,
    /// The same of one device, so that none has those of others forgotten. Default 1,024.
    pub ended_of_device: usize,
    /// For so long a flow may be offline that is not parked and has no deadline; then it ends as expired. Default 30 days.
    pub offline: Duration,
}

impl ServerLimits {
    pub(super) const fn carriers_most(&self) -> CarrierLimits {
        CarrierLimits {
            all: self.carriers,
            websockets: self.websockets,
            strangers: self.unauthenticated_carriers,
            of_address: self.unauthenticated_carriers_of_address,
        }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            flows: 65_536,
            flows_of_device: FLOWS_OF_DEVICE,
            greetings: 16,
            carriers: 16_384,
            websockets: 16_384,
            unauthenticated_carriers: 1_024,
            unauthenticated_carriers_of_address: 64,
            carriers_of_device: 1_024,
            backlog: 1_024,
            memory: 1 << 30,
            memory_of_device: 128 << 20,
            ended: 65_536,
            ended_of_device: 1_024,
            offline: Duration::from_secs(30 * 24 * 3_600),
        }
    }
}

/// What a server's end is given.
#[derive(Clone)]
pub struct ServerConfig {
    /// Whose flows it takes.
    pub keys: Arc<dyn DeviceKeys>,
    /// Where flows are that are not here. Without one, flows cannot be parked, and do not outlive the server.
    pub store: Option<Arc<dyn FlowStore>>,
    /// Where bytes of devices are before they are acknowledged, for flows with [`AckPolicy::Stored`](crate::AckPolicy::Stored): that of the same store, which forgets them with their flow.
    pub byte_store: Option<Arc<dyn ByteStore>>,
    /// Whether the server [parks](crate::FlowStream::park) idle flows that outlive a restart by itself, with the attachment last [set](crate::FlowStream::set_attachment). It parks a flow when
    /// nothing is under way, all that has come is kept (consumed, with [`AckPolicy::Stored`](crate::AckPolicy::Stored)), and either the store asks for it or the flow has been offline for 30 s. Readers
    /// and writers then get [`FlowError::Gone`](crate::FlowError::Gone), and [`Server::accept`](crate::Server::accept) returns the flow again. Default false: the application gets
    /// [`FlowEvent::MayPark`](crate::FlowEvent::MayPark).
    pub parks: bool,
    /// What each flow is given.
    pub options: FlowOptions,
    /// What it may hold.
    pub limits: ServerLimits,
    /// The time.
    pub clock: Clock,
}

impl ServerConfig {
    /// With everything else as it is by default.
    pub fn new(keys: Arc<dyn DeviceKeys>) -> Self {
        let (options, limits, clock) = (FlowOptions::default(), ServerLimits::default(), Clock::system());
        Self { keys, store: None, byte_store: None, parks: false, options, limits, clock }
    }
}
