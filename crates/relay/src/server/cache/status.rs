//! What the cache says of an answer: `Cache-Status` (RFC 9211). Pure.

use super::directives::members;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use std::fmt::Write as _;

pub(super) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Why a request went to the origin (RFC 9211 §2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Forward {
    /// Nothing of this URI is there.
    UriMiss,
    /// Something else of it is.
    VaryMiss,
    /// One of both.
    Miss,
    Stale,
    /// What is there is fresh, and the request wants more than that.
    Request,
    Method,
    /// The cache takes no part in it.
    Bypass,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It was answered from the cache, and would be for so many seconds.
    Hit { left: u64 },
    /// It went to the origin.
    Forwarded { why: Forward, status: Option<u16>, is_stored: bool },
    /// It waited for another's answer.
    Collapsed { why: Forward },
    /// The origin was asked, and an error came instead of an answer (RFC 5861 §4).
    StaleIfError { status: Option<u16> },
    /// Nobody was asked, as the request wanted.
    OnlyIfCached,
}

impl Forward {
    const fn word(self) -> &'static str {
        match self {
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Stale => "stale",
            Self::Request => "request",
            Self::Method => "method",
            Self::Bypass => "bypass",
        }
    }
}

impl Outcome {
    fn words(self) -> String {
        let mut words = "hoop".to_owned();
        let written = match self {
            Self::Hit { left: 0 } => write!(words, "; hit"),
            Self::Hit { left } => write!(words, "; hit; ttl={left}"),
            Self::Forwarded { why, status, is_stored } => {
                let status = status.map(|status| format!("; fwd-status={status}")).unwrap_or_default();
                write!(words, "; fwd={}{status}{}", why.word(), if is_stored { "; stored" } else { "" })
            }
            Self::Collapsed { why } => write!(words, "; fwd={}; collapsed", why.word()),
            Self::StaleIfError { status } => {
                let status = status.map(|status| format!("; fwd-status={status}")).unwrap_or_default();
                write!(words, "; fwd=stale{status}; detail=stale-if-error")
            }
            Self::OnlyIfCached => write!(words, "; detail=only-if-cached"),
        };
        written.map(|()| words).unwrap_or_default()
    }

    /// Says so in an answer, after what those say that it has passed before. What they say in this cache's name is taken out.
    pub(super) fn mark(self, headers: &mut HeaderMap) {
        let told: Vec<_> = headers.get_all(CACHE_STATUS).iter().filter_map(of_others).collect();
        headers.remove(CACHE_STATUS);
        let own = HeaderValue::from_str(&self.words()).ok();
        for told in told.into_iter().chain(own) {
            headers.append(CACHE_STATUS, told);
        }
    }
}

/// A line without the members that name this cache, as a token or as a string. A line that has none stays as it is. One that cannot be read goes.
fn of_others(line: &HeaderValue) -> Option<HeaderValue> {
    let text = line.to_str().ok()?;
    let kept: Vec<_> = members(text).filter(|member| !names_us(member)).collect();
    if kept.iter().any(|member| member.bytes().filter(|byte| *byte == b'"').count() % 2 > 0 && !member.contains('\\')) {
        // A string without an end: others may read it otherwise.
        return None;
    }
    match kept.len() == members(text).count() {
        true => Some(line.clone()),
        false => HeaderValue::from_str(&kept.join(", ")).ok().filter(|line| !line.is_empty()),
    }
}

/// Whether a member is this cache's, or might be to a lenient reader: each backslash counts as an escape, either case as the same, and the first of a list as its name.
fn names_us(member: &str) -> bool {
    let name: String = member.trim_start_matches(['(', ' ', '\t']).chars().filter(|char| *char != '\\').collect();
    let name = name.strip_prefix('"').unwrap_or(&name).to_ascii_lowercase();
    let is_token = |char: char| char.is_ascii_alphanumeric() || "-_.:/*".contains(char);
    name.strip_prefix("hoop").is_some_and(|rest| !rest.starts_with(is_token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(lines: &[&str], outcome: Outcome) -> Vec<String> {
        let mut all = HeaderMap::new();
        for line in lines {
            all.append(CACHE_STATUS, line.parse().unwrap());
        }
        outcome.mark(&mut all);
        all.get_all(CACHE_STATUS).iter().map(|line| line.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn an_outcome_is_said_in_the_words_of_rfc_9211() {
        let forwarded = |why, status, is_stored| Outcome::Forwarded { why, status, is_stored };
        for (outcome, words) in [
            (Outcome::Hit { left: 30 }, "hoop; hit; ttl=30"),
            (Outcome::Hit { left: 0 }, "hoop; hit"),
            (forwarded(Forward::UriMiss, None, true), "hoop; fwd=uri-miss; stored"),
            (forwarded(Forward::Stale, Some(304), false), "hoop; fwd=stale; fwd-status=304"),
            (forwarded(Forward::Method, None, false), "hoop; fwd=method"),
            (Outcome::Collapsed { why: Forward::VaryMiss }, "hoop; fwd=vary-miss; collapsed"),
            (Outcome::StaleIfError { status: Some(503) }, "hoop; fwd=stale; fwd-status=503; detail=stale-if-error"),
            (Outcome::OnlyIfCached, "hoop; detail=only-if-cached"),
        ] {
            assert_eq!(marked(&[], outcome), [words]);
        }
    }

    #[test]
    fn an_origin_does_not_speak_as_this_cache_and_others_are_left_alone() {
        for (line, left) in [
            ("Other; hit; key=\"a, hoop\"", Some("Other; hit; key=\"a, hoop\"")),
            ("hoop; hit", None),
            ("\"hoop\"; hit", None),
            ("\"h\\oop\"; hit", None),
            ("hooper; hit, hoop; hit,  b; fwd=miss", Some("hooper; hit, b; fwd=miss")),
            ("hoop", None),
            ("HOOP; hit, (hoop); hit, (\"hoop\" x)", None),
            ("a; detail=\"b, hoop; hit", None),
            ("a; detail=\"b\\\", hoop\"", Some("a; detail=\"b\\\", hoop\"")),
        ] {
            let mut expected: Vec<_> = left.into_iter().map(str::to_owned).collect();
            expected.push("hoop; hit".to_owned());
            assert_eq!(marked(&[line], Outcome::Hit { left: 0 }), expected, "{line}");
        }
    }
}
