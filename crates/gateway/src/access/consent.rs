//! What is found out before bytes are taken ([`Consent`]): whether anything can be delivered to the destination, and whether its service consents to
//! this disk being filled for it.
//!
//! A device is told at once what would otherwise come to light only when it has gone. But nobody waits for a line that is down: what cannot be found out
//! within [`PROBE_WAIT`] is taken, unless a permit is demanded and cannot be checked.

use crate::core::state::Core;
use crate::peer::destination::Dest;
use crate::peer::probes::{ProbeCause, ServiceProbes};
use crate::peer::services::Services;
use crate::peer::well_known::{Acquaintance, WellKnown, When};
use hoop_http::{Code, Current, Problem};
use hoop_seal::signing::{Permit, SignedError};
use hoop_units::{AddressKey, UploadId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a device waits while an unknown destination is probed: name, TCP, TLS and an answer are five round trips, so this is enough for 300 ms
/// each. The first bytes of its upload wait in the socket meanwhile.
pub const PROBE_WAIT: Duration = Duration::from_millis(1500);

/// When a permit names a key that its origin has not published, the origin is asked again, but not sooner than this after the last time.
const KEYS_AGAIN: Duration = Duration::from_secs(60);

/// Who demands a permit, if its owner has it so.
const THIS_GATEWAY: &str = "this gateway";

/// When to come back with a permit that cannot be checked: a line that was down may be up by then.
const UNVERIFIABLE_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Judges uploads that are offered, by their destinations and permits.
pub struct Consent {
    core: Arc<Core>,
    pub services: Arc<Services>,
    pub probes: Arc<ServiceProbes>,
    /// Whether no upload is taken without its service's permit.
    pub permits_required: Current<bool>,
}

/// The upload that a device wants to hand over.
pub struct Offered<'a> {
    pub dest: &'a Dest,
    /// Who offers it.
    pub device: AddressKey,
    pub id: UploadId,
    /// The length of Z; `None` if the sender does not say.
    pub total: Option<u64>,
    /// Records before their prelude, so before the ticket, and the permit that comes with it.
    pub early: bool,
    /// `Hoop-Permit`.
    pub permit: Option<&'a [u8]>,
}

impl Consent {
    /// For those services; `permits_required` says whether this gateway demands permits.
    pub fn new(
        core: Arc<Core>,
        services: Arc<Services>,
        probes: Arc<ServiceProbes>,
        permits_required: bool,
    ) -> Arc<Self> {
        Arc::new(Self { core, services, probes, permits_required: Current::new(permits_required) })
    }

    /// Refuses a destination to which nothing can be delivered, as far as can be found out in a moment. Where this gateway demands
    /// permits, nobody is asked anything for whoever shows none.
    ///
    /// # Errors
    /// `dest-not-hoop`, `dest-forbidden`; `permit-required`, `permit-invalid`, `prelude-needed` as [`Consent::check_permit`] has them.
    pub async fn check_destination(
        &self,
        dest: &Dest,
        device: AddressKey,
        permit: Option<&[u8]>,
        early: bool,
    ) -> Result<(), Problem> {
        // Without keys, what has the form of a permit lacks nothing but its key.
        let formed = permit.map(|bytes| match Permit::open(bytes, dest.origin.as_str(), |_| None) {
            Err(SignedError::UnknownKey(_)) | Ok(_) => Ok(()),
            Err(error) => Err(invalid(error)),
        });
        if *self.permits_required.get() {
            formed.clone().unwrap_or_else(|| Err(missing(THIS_GATEWAY, early)))?;
        }
        let cause = ProbeCause { device, permit: matches!(formed, Some(Ok(()))) };
        match self.services.well_known.acquaintance(&dest.origin) {
            Acquaintance::Known(_) | Acquaintance::Silent => {}
            Acquaintance::Ask { worth_waiting: true } => self.probes.probe(dest, cause, PROBE_WAIT, false).await,
            Acquaintance::Ask { worth_waiting: false } => self.probes.probe(dest, cause, Duration::ZERO, false).await,
        }
        self.services.well_known.refusal(dest).map_or(Ok(()), |refusal| Err(refusal.problem()))
    }

    /// Checks the service's permit, where one is demanded or one came. Returns it if it was checked.
    ///
    /// # Errors
    /// `permit-required`, `permit-invalid`, `permit-unverifiable`, `length-required`; `prelude-needed` for early records.
    pub async fn check_permit(&self, offered: &Offered<'_>) -> Result<Option<Permit>, Problem> {
        let mut known = self.last_good(offered.dest);
        let demanded = self.demander(known.as_deref());
        let Some(bytes) = offered.permit else {
            return demanded.map_or(Ok(None), |who| Err(missing(who, offered.early)));
        };
        let mut opened = known.as_deref().map(|known| open(bytes, offered.dest, known));
        if matches!(opened, None | Some(Err(SignedError::UnknownKey(_)))) && self.may_ask(offered.dest) {
            let cause = ProbeCause { device: offered.device, permit: true };
            self.probes.probe(offered.dest, cause, PROBE_WAIT, true).await;
            known = self.last_good(offered.dest);
            opened = known.as_deref().map(|known| open(bytes, offered.dest, known));
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
        permit.covers(offered.id, total, self.core.key.id()).map_err(invalid)?;
        Ok(Some(permit))
    }

    /// Refuses whoever shows no permit where one is demanded, before it is known which upload comes.
    ///
    /// # Errors
    /// `permit-required`.
    pub fn demand_permit(&self, dest: &Dest, permit: Option<&[u8]>) -> Result<(), Problem> {
        let demanded = self.demander(self.last_good(dest).as_deref());
        demanded.filter(|_| permit.is_none()).map_or(Ok(()), |who| Err(required(who)))
    }

    /// Who demands permits, if anybody does.
    fn demander(&self, known: Option<&WellKnown>) -> Option<&'static str> {
        let service = known.is_some_and(|known| known.permits_required).then_some("the service");
        if *self.permits_required.get() { Some(THIS_GATEWAY) } else { service }
    }

    fn last_good(&self, dest: &Dest) -> Option<Arc<WellKnown>> {
        self.services.well_known.last_good(&dest.origin, When::now(&self.core.clock))
    }

    fn may_ask(&self, dest: &Dest) -> bool {
        self.services.well_known.age(&dest.origin).is_none_or(|age| age >= KEYS_AGAIN)
    }
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

fn open(bytes: &[u8], dest: &Dest, known: &WellKnown) -> Result<Permit, SignedError> {
    Permit::open(bytes, dest.origin.as_str(), |id| known.keys.get(&id).copied())
}
