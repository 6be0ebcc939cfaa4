//! What is found out before octets are taken: whether anything can be delivered to the destination ([`vet`]), and whether its
//! service consents to this disk being filled for it ([`consent`]).
//!
//! A device is told at once what would otherwise come to light only when it has gone. But nobody waits for a line that is down: what cannot be found out
//! within [`LOOK_WAIT`] is taken, unless a permit is demanded and cannot be checked.

use crate::destination::Dest;
use crate::service::Service;
use crate::shared::Shared;
use crate::well_known::{AtDoor, WellKnown, When};
use hoop_http::{Code, Origin, Problem};
use hoop_seal::signing::{Permit, SignedError};
use hoop_units::{DeviceId, UploadId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How long a device waits for word of a destination that nothing is known of: name, TCP, TLS and an answer are five round trips, so
/// enough for 300 ms each. The first octets of its upload wait in the socket meanwhile.
pub const LOOK_WAIT: Duration = Duration::from_millis(1500);

/// How long such a look may take in all; its answer then helps whoever comes next.
const LOOK_TIME: Duration = Duration::from_secs(20);

/// Looks at once. Whoever is on the LAN causes them, so that they must not become a flood; beyond it uploads are taken unseen.
const LOOKS_MAX: usize = 8;

/// Looks at once for the keys that a permit was signed with. They have places of their own, since without them uploads are refused.
const KEY_LOOKS_MAX: usize = 8;

/// Looks of each kind that one device may cause at once, so that it takes four to have them all.
const LOOKS_OF_ONE: usize = 2;

/// Requests of one device that wait for looks at once: as many as a browser has connections to one server. Each keeps its connection's place from others meanwhile; more are answered by
/// what is known.
const WAITS_OF_ONE: usize = 6;

/// An origin whose published keys lack the one that a permit names is asked again, but not sooner than this after it was asked last.
const KEYS_AGAIN: Duration = Duration::from_secs(60);

/// Who demands a permit, if its owner has it so.
const THIS_GATEWAY: &str = "this gateway";

/// When to come back with a permit that cannot be checked: a line that was down may be up by then.
const UNVERIFIABLE_RETRY_AFTER: Duration = Duration::from_secs(30);

/// The looks under way, one for each origin, and how many requests of each device wait for one.
#[derive(Default)]
pub struct Looks {
    under_way: Mutex<BTreeMap<Origin, Look>>,
    waiting: Mutex<BTreeMap<DeviceId, usize>>,
}

struct Look {
    cause: Cause,
    /// Closed when it is over.
    over: watch::Receiver<()>,
    task: AbortHandle,
}

/// Why an origin is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// Who offers an upload for it.
    pub device: DeviceId,
    /// Whether it came with a permit, for which keys are needed.
    pub permit: bool,
}

impl fmt::Debug for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

impl Looks {
    /// Joins the look at `dest`'s origin, or begins one; `None` if too many are under way.
    fn begin(&self, shared: &Arc<Shared>, dest: &Dest, cause: Cause) -> Option<watch::Receiver<()>> {
        let mut looks = self.lock();
        if let Some(look) = looks.get(&dest.origin) {
            return Some(look.over.clone());
        }
        let kind = looks.values().filter(|look| look.cause.permit == cause.permit);
        let own = kind.clone().filter(|look| look.cause == cause).count();
        let most = if cause.permit { KEY_LOOKS_MAX } else { LOOKS_MAX };
        if kind.count() >= most || (own >= LOOKS_OF_ONE && shared.devices.is_limited(cause.device)) {
            return None;
        }
        let (sender, over) = watch::channel(());
        let (shared, own) = (shared.clone(), dest.clone());
        let task = tokio::spawn(async move {
            let _over = sender;
            if timeout(LOOK_TIME, Service::new(&shared, &own).learn()).await.is_err() {
                shared.well_known.silent(&own.origin);
            }
            shared.looks.lock().remove(&own.origin);
        });
        looks.insert(dest.origin.clone(), Look { cause, over: over.clone(), task: task.abort_handle() });
        Some(over)
    }

    /// Calls off every look, when the gateway stops.
    pub fn stop(&self) {
        for look in std::mem::take(&mut *self.lock()).into_values() {
            look.task.abort();
        }
    }

    /// Has one more request of the device wait, unless it is limited and has [`WAITS_OF_ONE`].
    fn wait(&self, device: DeviceId, is_limited: bool) -> Option<Waiting<'_>> {
        let mut waiting = self.waiting();
        let own = waiting.entry(device).or_default();
        if *own >= WAITS_OF_ONE && is_limited {
            return None;
        }
        *own += 1;
        Some(Waiting(self, device))
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<DeviceId, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Origin, Look>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request of a device waits for a look, until this is dropped.
struct Waiting<'a>(&'a Looks, DeviceId);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        if let Some(own) = waiting.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                waiting.remove(&self.1);
            }
        }
    }
}

/// Asks `dest`'s origin what it is, and waits for its answer at most so long.
async fn look(shared: &Arc<Shared>, dest: &Dest, cause: Cause, wait: Duration) {
    let Some(mut over) = shared.looks.begin(shared, dest, cause) else { return };
    if wait.is_zero() {
        return;
    }
    if let Some(_waiting) = shared.looks.wait(cause.device, shared.devices.is_limited(cause.device)) {
        // Over, or not in time: what is known then is all that counts.
        let _ = timeout(wait, over.changed()).await;
    }
}

/// Refuses a destination to which nothing can be delivered, as far as can be found out in a moment. Where this gateway demands
/// permits, nobody is asked anything for whoever shows none.
///
/// # Errors
/// `dest-not-hoop`, `dest-forbidden`; `permit-required`, `permit-invalid`, `prelude-needed` as [`consent`] has them.
pub async fn vet(
    shared: &Arc<Shared>,
    dest: &Dest,
    device: DeviceId,
    permit: Option<&[u8]>,
    early: bool,
) -> Result<(), Problem> {
    // Without keys, what has the form of a permit lacks nothing but its key.
    let formed = permit.map(|octets| match Permit::open(octets, dest.origin.as_str(), |_| None) {
        Err(SignedError::UnknownKey(_)) | Ok(_) => Ok(()),
        Err(error) => Err(invalid(error)),
    });
    if *shared.permits_required.get() {
        formed.clone().unwrap_or_else(|| Err(missing(THIS_GATEWAY, early)))?;
    }
    let cause = Cause { device, permit: matches!(formed, Some(Ok(()))) };
    match shared.well_known.at_door(&dest.origin) {
        AtDoor::Known(_) | AtDoor::Silent => {}
        AtDoor::Ask { worth_waiting: true } => look(shared, dest, cause, LOOK_WAIT).await,
        AtDoor::Ask { worth_waiting: false } => look(shared, dest, cause, Duration::ZERO).await,
    }
    shared.well_known.refusal(dest).map_or(Ok(()), |refusal| Err(refusal.problem()))
}

/// The upload that someone wants to hand over.
pub struct Offered<'a> {
    pub dest: &'a Dest,
    /// Who offers it.
    pub device: DeviceId,
    pub id: UploadId,
    /// The length of Z; `None` if the sender does not say.
    pub total: Option<u64>,
    /// Records before their prelude, so before the ticket, and the permit that comes with it.
    pub early: bool,
    /// `Hoop-Permit`.
    pub permit: Option<&'a [u8]>,
}

/// Checks the service's permit, where one is demanded or one came. Returns it if it was checked.
///
/// # Errors
/// `permit-required`, `permit-invalid`, `permit-unverifiable`, `length-required`; `prelude-needed` for early records.
pub async fn consent(shared: &Arc<Shared>, offered: &Offered<'_>) -> Result<Option<Permit>, Problem> {
    let mut known = last_good(shared, offered.dest);
    let demanded = demander(shared, known.as_deref());
    let Some(octets) = offered.permit else {
        return demanded.map_or(Ok(None), |who| Err(missing(who, offered.early)));
    };
    let mut opened = known.as_deref().map(|known| open(octets, offered.dest, known));
    if matches!(opened, None | Some(Err(SignedError::UnknownKey(_)))) && may_ask(shared, offered.dest) {
        look(shared, offered.dest, Cause { device: offered.device, permit: true }, LOOK_WAIT).await;
        known = last_good(shared, offered.dest);
        opened = known.as_deref().map(|known| open(octets, offered.dest, known));
    }
    let permit = match opened {
        Some(Ok(permit)) => permit,
        Some(Err(error)) => return Err(invalid(error)),
        None if demanded.is_none() => return Ok(None),
        None => {
            let detail = "the service's keys cannot be had now, and its permit not be checked";
            return Err(Problem::new(Code::PermitUnverifiable, detail).retry_after(UNVERIFIABLE_RETRY_AFTER));
        }
    };
    let Some(total) = offered.total else {
        let detail = "a permit is for so many bytes; say Content-Length";
        return Err(Problem::new(Code::LengthRequired, detail).field("Content-Length"));
    };
    permit.covers(offered.id, total, shared.key.id()).map_err(invalid)?;
    Ok(Some(permit))
}

/// Refuses whoever shows no permit where one is demanded, before it is known which upload comes.
///
/// # Errors
/// `permit-required`.
pub fn demand(shared: &Arc<Shared>, dest: &Dest, permit: Option<&[u8]>) -> Result<(), Problem> {
    let demanded = demander(shared, last_good(shared, dest).as_deref());
    demanded.filter(|_| permit.is_none()).map_or(Ok(()), |who| Err(required(who)))
}

/// Who demands permits, if anybody does.
fn demander(shared: &Shared, known: Option<&WellKnown>) -> Option<&'static str> {
    let service = known.is_some_and(|known| known.permits_required).then_some("the service");
    if *shared.permits_required.get() { Some(THIS_GATEWAY) } else { service }
}

/// Why an upload is refused that came without the permit that somebody demands.
fn missing(who: &str, early: bool) -> Problem {
    if early {
        let detail = "an upload for that service is taken with its permit only, which comes with the ticket";
        return Problem::new(Code::PreludeNeeded, detail).field("Hoop-Early");
    }
    required(who)
}

fn required(who: &str) -> Problem {
    let detail = format!("{who} demands the service's permit, from the ticket's answer");
    Problem::new(Code::PermitRequired, detail).field("Hoop-Permit")
}

fn invalid(error: impl fmt::Display) -> Problem {
    Problem::new(Code::PermitInvalid, error).field("Hoop-Permit")
}

fn last_good(shared: &Shared, dest: &Dest) -> Option<Arc<WellKnown>> {
    shared.well_known.last_good(&dest.origin, When::now(&shared.clock))
}

fn open(octets: &[u8], dest: &Dest, known: &WellKnown) -> Result<Permit, SignedError> {
    Permit::open(octets, dest.origin.as_str(), |id| known.keys.get(&id).copied())
}

fn may_ask(shared: &Shared, dest: &Dest) -> bool {
    shared.well_known.age(&dest.origin).is_none_or(|age| age >= KEYS_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_requests_of_a_device_wait_for_a_look_and_others_have_their_own() {
        let looks = Looks::default();
        let device = |host| DeviceId::from_ip([192, 168, 0, host].into());
        let mut waiting: Vec<_> = (0..6).map(|_| looks.wait(device(1), true).unwrap()).collect();
        assert!(looks.wait(device(1), true).is_none());
        assert!(looks.wait(device(2), true).is_some() && looks.wait(device(1), false).is_some());
        waiting.pop();
        assert!(looks.wait(device(1), true).is_some());
        waiting.clear();
        assert!(looks.waiting().is_empty());
    }
}
