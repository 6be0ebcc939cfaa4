//! Reports the fields of sealed heads, and of plain ones, that the application does not get: [`LeftBehind`].
//!
//! A missing field is a riddle to the author of the page. So the log warns of each name once, and tells of it at debug
//! later. `/metrics` counts them. No value is told.
//!
//! Bounds: [`NAMES_MAX`] names are remembered. Only the debug log tells of others, since any ticket holder can make
//! names up.

use crate::policy::fields::Fate;
use hoop_units::UploadId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Names that are warned of: more than any application's pages have of their own.
const NAMES_MAX: usize = 64;

/// The longest name that is told whole.
const NAME_MAX: usize = 64;

/// What was told so far.
#[derive(Default)]
pub struct LeftBehind {
    warned: Mutex<BTreeSet<String>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// Those of plain requests are apart, so that network scanners do not use up the others' names.
    warned_plain: Mutex<BTreeSet<String>>,
}

impl LeftBehind {
    /// Tells of the fields of one upload, at its first attempt alone.
    pub fn tell(&self, id: UploadId, attempt: u32, fields: &[(&str, Fate)]) {
        if attempt > 1 {
            return;
        }
        for (name, fate) in fields {
            let Some(why) = fate.told() else { continue };
            *self.counts.lock().entry(why).or_default() += 1;
            let field: String = name.chars().take(NAME_MAX).collect();
            match self.is_news(&field, *fate) {
                true => {
                    tracing::warn!(%id, field, why, "the application does not get this field of sealed requests: {}", hint(*fate))
                }
                false => tracing::debug!(%id, field, why, "a field of a sealed request stays behind"),
            }
        }
    }

    /// Tells of a field of a plain request that only a trusted proxy may say.
    pub fn tell_plain(&self, name: &str) {
        let field: String = name.chars().take(NAME_MAX).collect();
        if is_new(&self.warned_plain, &field) {
            tracing::warn!(
                field,
                "the application gets this field from a trusted proxy alone: is the one in front named with --trusted-proxy?"
            );
        }
    }

    /// How many stayed behind, by why.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().clone()
    }

    /// Whether to warn. What the operator drops is no news to them.
    fn is_news(&self, name: &str, fate: Fate) -> bool {
        fate != Fate::Dropped && is_new(&self.warned, name)
    }
}

fn is_new(warned: &Mutex<BTreeSet<String>>, name: &str) -> bool {
    let mut warned = warned.lock();
    warned.len() < NAMES_MAX && warned.insert(name.to_ascii_lowercase())
}

const fn hint(fate: Fate) -> &'static str {
    match fate {
        Fate::OfTheFront => "only a web server in front may say that",
        Fate::Goes | Fate::Ours | Fate::Unlisted | Fate::Dropped => "`keep` in routes.toml would let it in",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_name_is_warned_of_once_and_at_most_64_in_all() {
        let left = LeftBehind::default();
        assert!(left.is_news("X-Album", Fate::Unlisted) && !left.is_news("x-album", Fate::Unlisted));
        assert!(!left.is_news("X-Dropped", Fate::Dropped), "the operator knows");
        let warned = (0..1_000).filter(|n| left.is_news(&format!("X-{n}"), Fate::Unlisted)).count();
        assert_eq!(warned, NAMES_MAX - 1);
        left.tell(
            UploadId([1; 16]),
            1,
            &[("X-Album", Fate::Unlisted), ("Cookie", Fate::Ours), ("Via", Fate::OfTheFront)],
        );
        left.tell(UploadId([1; 16]), 2, &[("X-Album", Fate::Unlisted)]);
        assert_eq!(left.counts(), [("front", 1), ("unlisted", 1)].into(), "once for each upload");
    }
}
