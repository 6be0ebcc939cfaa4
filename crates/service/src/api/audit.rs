//! What owners and users did, a line an act, in the log's target `audit` (`docs/services.md`, "What was done"): [`Act`].
//!
//! Promises: who did it stands there as the beginning of a MAC, so that lines of the same owner are known by it, and nobody's name, cookie or
//! content.
//!
//! Bounds: of what was refused as many lines a minute as [`Lines`] has room for, and [`DONE_MAX`] of what was done, so that nobody fills the log.

use crate::model::Tag;
use hoop_http::{Lines, Problem};
use hoop_units::UploadId;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Instant;

/// So much of a MAC tells owners apart: some ten million of them.
const SHORT: usize = 6;

/// Lines of what was done in a minute: ten a second are more than people do, and some 130 MB a day at the most.
const DONE_MAX: u32 = 600;

/// What was refused lately, and what was done, and written down.
pub struct Audit {
    refused: Lines,
    done: Lines,
}

impl Default for Audit {
    fn default() -> Self {
        Self { refused: Lines::new(), done: Lines::at_most(DONE_MAX) }
    }
}

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
    pub fn came_to(&self, audit: &Audit, outcome: Result<&str, &Problem>) {
        let (lines, what) = if outcome.is_ok() { (&audit.done, "done") } else { (&audit.refused, "refused") };
        let more = || tracing::warn!(target: "audit", "more acts are {what} than are written down in this minute");
        if !lines.have_room(Instant::now(), more) {
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
