//! What owners and users did, a line an act, in the log's target `audit` (`docs/services.md`, "What was done"): [`Act`].
//!
//! Promises: who did it stands there as the beginning of a MAC, so that lines of the same owner are known by it, and nobody's name, cookie or
//! content.
//!
//! Bounds: [`REFUSALS_MAX`] lines a minute of what was refused, so that strangers do not fill the log; what was done is always written down.

use crate::owner::Tag;
use hoop_http::{Clock, Problem};
use hoop_units::{Timestamp, UploadId};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Lines of refused acts in a minute: more than people make by mistake.
const REFUSALS_MAX: u32 = 60;

const MINUTE: Duration = Duration::from_secs(60);

/// So much of a MAC tells owners apart: some ten million of them.
const SHORT: usize = 6;

/// How many refusals were written down since the minute began.
#[derive(Default)]
pub struct Audit(Mutex<(Option<Timestamp>, u32)>);

/// Somebody acts.
pub struct Act {
    /// What is done: `stop`, `release`, `settings`, ….
    pub name: &'static str,
    /// To what.
    pub id: Option<UploadId>,
    /// From where.
    pub address: IpAddr,
    /// Who, once that is known.
    pub who: Option<Tag>,
}

impl Act {
    /// Writes down what came of it: the state that the upload has then, `saved`, or the code of the refusal.
    pub fn came_to(&self, audit: &Audit, clock: &Clock, outcome: Result<&str, &Problem>) {
        if outcome.is_err() && !audit.has_room(clock.now()) {
            return;
        }
        let (act, address, id) = (self.name, self.address, self.id.map(tracing::field::display));
        let who = self.who.map(|tag| {
            tag[..SHORT].iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            })
        });
        let outcome = outcome.unwrap_or_else(|problem| problem.code.name());
        tracing::info!(target: "audit", act, who, %address, id, outcome, "an owner acts");
    }
}

impl Audit {
    /// Whether one more refusal is written down in this minute.
    fn has_room(&self, now: Timestamp) -> bool {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.0.is_none_or(|began| now.since(began) >= MINUTE) {
            *kept = (Some(now), 0);
        }
        kept.1 = kept.1.saturating_add(1);
        if kept.1 == REFUSALS_MAX + 1 {
            tracing::warn!(target: "audit", "more acts are refused than are written down in this minute");
        }
        kept.1 <= REFUSALS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_written_down_so_often_a_minute() {
        let audit = Audit::default();
        let at = Timestamp::from_secs;
        assert!((0..REFUSALS_MAX).all(|_| audit.has_room(at(5))));
        assert!(!audit.has_room(at(5)) && !audit.has_room(at(64)));
        assert!(audit.has_room(at(65)));
    }
}
