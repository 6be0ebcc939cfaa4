//! Statuses of services on the wire (`docs/protocol.md` §8): [`ServiceStatus`].

use crate::core::wire::MISSING_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_units::{ByteRange, RangeSet};
use serde::{Deserialize, Serialize};

/// What is in the way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReasonDocument {
    pub code: String,
    #[serde(default)]
    pub detail: String,
}

/// A service's status, as far as it concerns a gateway.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct ServiceStatus {
    pub state: String,
    #[serde(default)]
    pub missing: String,
    #[serde(default)]
    pub reason: Option<ReasonDocument>,
    #[serde(default)]
    pub answer: Option<String>,
}

/// The longest sealed answer that is kept: 16 KiB of body and a head, sealed (`docs/protocol.md` §8), with room to spare.
const ANSWER_MAX: usize = 32 * 1024;

impl ServiceStatus {
    /// Reads a status; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The sealed answer's octets.
    pub fn answer(&self) -> Option<Vec<u8>> {
        let octets = URL_SAFE_NO_PAD.decode(self.answer.as_ref()?).ok()?;
        (octets.len() <= ANSWER_MAX).then_some(octets)
    }
}

/// What the service has, from what it says is missing; `None` if that is no word of a service's. It names [`MISSING_MAX`] spans at most: when so many are named, what
/// lies beyond the last is not known, and taken as missing.
pub fn delivered_from_missing(missing: &str, total: u64) -> Option<RangeSet> {
    let missing: RangeSet = missing.parse().ok()?;
    // Kept with the upload: a service's word must not grow the index.
    if missing.spans() > MISSING_MAX {
        return None;
    }
    let mut has: RangeSet = [ByteRange::new(0, total)].into_iter().collect();
    missing.iter().for_each(|span| has.remove(span));
    if missing.spans() >= MISSING_MAX {
        let last = missing.iter().last().map_or(0, |span| span.end);
        has.remove(ByteRange::new(last.min(total), total));
    }
    Some(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_has_follows_from_what_it_misses() {
        let has = |missing: &str| delivered_from_missing(missing, 1000).map(|set| set.to_string());
        assert_eq!(has("").as_deref(), Some("0-999"));
        assert_eq!(has("0-999").as_deref(), Some(""));
        assert_eq!(has("100-199, 900-999").as_deref(), Some("0-99, 200-899"));
        assert_eq!(has("900-5000").as_deref(), Some("0-899"), "more than there is");
        assert_eq!(has("all of it"), None);
    }

    #[test]
    fn beyond_the_last_span_that_fits_the_header_nothing_is_known() {
        let spans: Vec<String> = (0..32).map(|i| format!("{}-{}", i * 10, i * 10 + 4)).collect();
        let has = delivered_from_missing(&spans.join(", "), 1000).unwrap();
        assert_eq!(has.iter().last(), Some(ByteRange::new(305, 310)));
    }

    #[test]
    fn a_status_of_a_service_is_read_leniently_and_garbage_is_none() {
        let status = ServiceStatus::parse(br#"{"state":"accepted","answer":"AAEC","new":[1]}"#).unwrap();
        assert_eq!(status.answer(), Some(vec![0, 1, 2]));
        for garbage in ["", "<html>", "{}", "[]", r#"{"state":7}"#] {
            assert_eq!(ServiceStatus::parse(garbage.as_bytes()), None, "{garbage}");
        }
        let long = ServiceStatus { answer: Some("A".repeat(100_000)), ..status };
        assert_eq!(long.answer(), None);
    }
}
