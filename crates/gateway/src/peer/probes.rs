//! Asking services what they are, before an upload for them is taken: [`ServiceProbes`].

use super::client::ServiceClient;
use super::destination::Dest;
use super::services::Services;
use crate::core::device_limits::DeviceLimits;
use hoop_http::Origin;
use hoop_units::AddressKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long a probe may take in all; its answer then helps whoever comes next.
const PROBE_TIME: Duration = Duration::from_secs(20);

/// Probes at once. Whoever is on the LAN causes them, so that they must not become a flood; beyond it uploads are taken unseen.
const PROBES_MAX: usize = 8;

/// Probes at once for the keys that a permit was signed with. They have places of their own, since without them uploads are refused.
const KEY_PROBES_MAX: usize = 8;

/// Probes of each kind that one device may cause at once, so that it takes four to have them all.
const PROBES_OF_ONE: usize = 2;

/// Requests of one device that wait for probes at once: as many as a browser has connections to one server. Each keeps its connection's place
/// from others meanwhile; more are answered by what is known.
const WAITERS_OF_ONE: usize = 6;

/// Requests that wait for probes at once, of all devices: half of the places that requests without a body have. Whoever is answered at once is taken unseen, which is no harm.
const WAITERS_MAX: usize = 4;

/// The same of those that need a service's keys, to check a permit, and may be refused if they do not wait: half of the places that uploads have.
const KEY_WAITERS_MAX: usize = 12;

/// The probes under way, one for each origin, and how many requests of each device wait for one.
pub struct ServiceProbes {
    services: Arc<Services>,
    limits: DeviceLimits,
    under_way: Mutex<BTreeMap<Origin, Probe>>,
    waiters: Waiters,
}

struct Probe {
    cause: ProbeCause,
    /// Closed when it is over.
    over: watch::Receiver<()>,
    task: AbortHandle,
}

/// Why an origin is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProbeCause {
    /// Who offers an upload for it.
    pub device: AddressKey,
    /// Whether it came with a permit, for which keys are needed.
    pub permit: bool,
}

impl fmt::Debug for ServiceProbes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.under_way.lock().keys()).finish()
    }
}

impl ServiceProbes {
    /// None yet; each device may cause so many.
    pub fn new(services: Arc<Services>, limits: DeviceLimits) -> Arc<Self> {
        Arc::new(Self { services, limits, under_way: Mutex::default(), waiters: Waiters::default() })
    }

    /// Asks `dest`'s origin what it is, and waits for its answer at most so long. `needs_keys`: the request is refused without the answer.
    pub async fn probe(self: &Arc<Self>, dest: &Dest, cause: ProbeCause, wait: Duration, needs_keys: bool) {
        let Some(mut over) = self.begin(dest, cause) else { return };
        if wait.is_zero() {
            return;
        }
        if let Some(_waiting) = self.waiters.wait(cause.device, needs_keys, self.limits.apply_to(cause.device)) {
            // Over, or not in time: what is known then is all that counts.
            let _ = timeout(wait, over.changed()).await;
        }
    }

    /// Joins the probe of `dest`'s origin, or begins one; `None` if too many are under way.
    fn begin(self: &Arc<Self>, dest: &Dest, cause: ProbeCause) -> Option<watch::Receiver<()>> {
        let mut probes = self.under_way.lock();
        if let Some(probe) = probes.get(&dest.origin) {
            return Some(probe.over.clone());
        }
        let kind = probes.values().filter(|probe| probe.cause.permit == cause.permit);
        let own = kind.clone().filter(|probe| probe.cause == cause).count();
        let most = if cause.permit { KEY_PROBES_MAX } else { PROBES_MAX };
        if kind.count() >= most || (own >= PROBES_OF_ONE && self.limits.apply_to(cause.device)) {
            return None;
        }
        let (sender, over) = watch::channel(());
        let (all, own) = (self.clone(), dest.clone());
        let task = tokio::spawn(async move {
            let _over = sender;
            if timeout(PROBE_TIME, ServiceClient::new(&all.services, &own).learn()).await.is_err() {
                all.services.well_known.silent(&own.origin);
            }
            all.under_way.lock().remove(&own.origin);
        });
        probes.insert(dest.origin.clone(), Probe { cause, over: over.clone(), task: task.abort_handle() });
        Some(over)
    }

    /// Calls off every probe, when the gateway stops.
    pub fn stop(&self) {
        for probe in std::mem::take(&mut *self.under_way.lock()).into_values() {
            probe.task.abort();
        }
    }
}

/// How many requests of each device wait for a probe: those that need no keys, and those that do.
#[derive(Default)]
struct Waiters(Mutex<BTreeMap<AddressKey, [usize; 2]>>);

impl Waiters {
    /// Has one more request wait, unless as many do as may, or its device is limited and has [`WAITERS_OF_ONE`].
    fn wait(&self, device: AddressKey, needs_keys: bool, is_limited: bool) -> Option<Waiting<'_>> {
        let mut waiting = self.0.lock();
        let kind = usize::from(needs_keys);
        let all = waiting.values().map(|own| own[kind]).sum::<usize>();
        let own = waiting.get(&device).map_or(0, |own| own.iter().sum());
        if all >= [WAITERS_MAX, KEY_WAITERS_MAX][kind] || (own >= WAITERS_OF_ONE && is_limited) {
            return None;
        }
        waiting.entry(device).or_default()[kind] += 1;
        Some(Waiting { waiters: self, device, kind })
    }
}

/// A request of a device waits for a probe, until this is dropped.
struct Waiting<'a> {
    waiters: &'a Waiters,
    device: AddressKey,
    kind: usize,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiters.0.lock();
        if let Some(own) = waiting.get_mut(&self.device) {
            own[self.kind] -= 1;
            if *own == [0; 2] {
                waiting.remove(&self.device);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(host: u8) -> AddressKey {
        AddressKey::from_ip([192, 168, 0, host].into())
    }

    #[test]
    fn six_requests_of_one_device_wait_for_a_probe_beside_those_of_others() {
        let waiters = Waiters::default();
        let mut waiting: Vec<_> = (0..6).map(|_| waiters.wait(device(1), true, true).unwrap()).collect();
        assert!(waiters.wait(device(1), true, true).is_none());
        assert!(waiters.wait(device(2), true, true).is_some() && waiters.wait(device(1), true, false).is_some());
        waiting.pop();
        assert!(waiters.wait(device(1), true, true).is_some());
        waiting.clear();
        assert!(waiters.0.lock().is_empty());
    }

    #[test]
    fn however_many_devices_there_are_few_requests_wait_for_probes() {
        let waiters = Waiters::default();
        for (needs_keys, most) in [(false, WAITERS_MAX), (true, KEY_WAITERS_MAX)] {
            let wait = |host| waiters.wait(device(host), needs_keys, true);
            let waiting: Vec<_> = (0..100).filter_map(wait).collect();
            assert_eq!(waiting.len(), most);
            assert!(waiters.wait(device(200), needs_keys, false).is_none(), "nor of the machine's own");
            assert!(waiters.wait(device(200), !needs_keys, false).is_some());
        }
    }
}
