//! The flows that a listening socket has: [`Backlog`], and which port is whose: [`Ports`].

use crate::lock::lock;
use hoop_carrier::Pending;
use hoop_endpoint::{DeviceId, DeviceKey, DeviceKeys, FlowStream};
use hoop_relay::{Devices, codes};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex};

/// The most flows that wait to be accepted, whatever the program asks for: each leaves a byte in the pair, and every buffer has room for so many.
pub const BACKLOG_MAX: usize = 128;

/// What a service's name begins with when it is a port of a program here.
const PORT: &str = "d2tp:";

/// Flows that wait to be accepted. For each there is a byte that the listening descriptor reads.
pub struct Backlog {
    local: OwnedFd,
    backlog: usize,
    waiting: Mutex<VecDeque<FlowStream>>,
}

impl Backlog {
    /// Writes its bytes to `local`.
    pub fn new(local: OwnedFd, backlog: libc::c_int) -> Self {
        let backlog = usize::try_from(backlog).unwrap_or(0).clamp(1, BACKLOG_MAX);
        Self { local, backlog, waiting: Mutex::default() }
    }

    /// The library's end of the pair.
    pub fn into_local(self) -> OwnedFd {
        self.local
    }

    /// The flow that a byte stood for.
    pub fn take(&self) -> Option<FlowStream> {
        lock(&self.waiting).pop_front()
    }

    /// Puts a flow back that no socket could be made for: it is the next again.
    pub fn put_back(&self, flow: FlowStream) {
        let mut waiting = lock(&self.waiting);
        let byte = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(self.local.as_raw_fd(), &[0], byte) {
            Ok(_) => waiting.push_front(flow),
            Err(_) => flow.reset(codes::UNREACHABLE),
        }
    }

    fn is_full(&self) -> bool {
        lock(&self.waiting).len() >= self.backlog
    }

    /// Refuses the flow if there is no room, or nobody accepts any more.
    fn give(&self, flow: FlowStream) {
        let mut waiting = lock(&self.waiting);
        let byte = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        // The flow is there before its byte is seen: both are under the lock that `take` takes.
        if waiting.len() >= self.backlog || send(self.local.as_raw_fd(), &[0], byte).is_err() {
            return flow.reset(codes::UNREACHABLE);
        }
        waiting.push_back(flow);
    }

    /// Gives up what waits.
    pub fn refuse_all(&self) {
        lock(&self.waiting).drain(..).for_each(|flow| flow.reset(codes::UNREACHABLE));
    }
}

/// Which port is whose, and which devices may ask for it.
pub struct Ports {
    devices: Devices,
    listeners: Mutex<BTreeMap<u16, Arc<Backlog>>>,
}

impl Ports {
    /// Without any yet.
    pub fn new(devices: Devices) -> Self {
        Self { devices, listeners: Mutex::default() }
    }

    /// Whether somebody listens there.
    pub fn is_taken(&self, port: u16) -> bool {
        lock(&self.listeners).contains_key(&port)
    }

    /// Flows to the port go there from now on.
    ///
    /// # Errors
    /// `EADDRINUSE` if it is taken.
    pub fn add(&self, port: u16, listener: &Arc<Backlog>) -> Result<(), Errno> {
        let mut listeners = lock(&self.listeners);
        if listeners.contains_key(&port) {
            return Err(Errno::EADDRINUSE);
        }
        listeners.insert(port, listener.clone());
        Ok(())
    }

    /// Flows to the port go there no more.
    pub fn remove(&self, port: u16, listener: &Arc<Backlog>) {
        let mut listeners = lock(&self.listeners);
        if listeners.get(&port).is_some_and(|there| Arc::ptr_eq(there, listener)) {
            listeners.remove(&port);
        }
    }

    fn listener(&self, service: &str) -> Option<Arc<Backlog>> {
        let port = service.strip_prefix(PORT)?.parse().ok()?;
        lock(&self.listeners).get(&port).cloned()
    }

    /// Gives a flow to who listens at its port.
    pub fn give(&self, flow: FlowStream) {
        match self.listener(flow.service()) {
            Some(listener) => listener.give(flow),
            // Nobody listens there any more.
            None => flow.reset(codes::UNREACHABLE),
        }
    }
}

impl DeviceKeys for Ports {
    fn key(&self, host: DeviceId) -> Pending<'_, Option<DeviceKey>> {
        self.devices.key(host)
    }

    fn offers(&self, _: DeviceId, service: &str) -> bool {
        self.listener(service).is_some_and(|listener| !listener.is_full())
    }
}
