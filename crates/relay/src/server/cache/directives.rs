//! What `Cache-Control` says: [`Directives`] (RFC 9111 §5.2). Pure.
//!
//! Names are read in lower case, and a comma within quotes ends nothing. A number that is none counts as 0, and of several the least counts: an answer is rather stale than fresh for too
//! long (RFC 9111 §4.2.1). A line that is not ASCII, or in which it is not clear what is within quotes, counts as
//! `no-store`: a `private` may be hidden in it.

use http::HeaderMap;
use http::header::{CACHE_CONTROL, PRAGMA};

/// The most seconds that any number stands for (RFC 9111 §1.2.2): 68 years.
pub(super) const SECONDS_MAX: u64 = 1 << 31;

/// The directives of a message, in their order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Directives(Vec<(String, Option<String>)>);

impl Directives {
    /// Those of an answer.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut directives = Vec::new();
        for line in headers.get_all(CACHE_CONTROL) {
            match line.to_str() {
                Ok(line) => directives.extend(members(line).filter_map(directive)),
                Err(_) => directives.push(no_store()),
            }
            if !is_well_quoted(line.as_bytes()) {
                directives.push(no_store());
            }
        }
        Self(directives)
    }

    /// Those of a request: `Pragma: no-cache` is one where it has no others (RFC 9111 §5.4).
    pub(super) fn of_request(headers: &HeaderMap) -> Self {
        if headers.contains_key(CACHE_CONTROL) {
            return Self::of(headers);
        }
        let pragma = headers.get_all(PRAGMA).iter().filter_map(|line| line.to_str().ok());
        Self(pragma.flat_map(members).filter_map(directive).filter(|(name, _)| name == "no-cache").collect())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is there, with or without a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(of, _)| of == name)
    }

    /// Whether it is there without a value.
    pub(super) fn is_bare(&self, name: &str) -> bool {
        self.0.iter().any(|(of, value)| of == name && value.is_none())
    }

    /// How many seconds it names.
    pub(super) fn seconds(&self, name: &str) -> Option<u64> {
        self.0.iter().filter(|(of, _)| of == name).map(|(_, value)| value.as_deref().map_or(0, seconds)).min()
    }
}

/// A number of seconds; one that is none is 0, and one that is too large is [`SECONDS_MAX`] (RFC 9111 §1.2.2).
pub(super) fn seconds(text: &str) -> u64 {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    text.parse().unwrap_or(SECONDS_MAX).min(SECONDS_MAX)
}

fn no_store() -> (String, Option<String>) {
    ("no-store".to_owned(), None)
}

/// Whether each quotation of a line is a value's, and ends. Others may read it otherwise, and see directives that are
/// hidden here.
fn is_well_quoted(line: &[u8]) -> bool {
    let (mut is_quoted, mut is_escaped, mut before) = (false, false, b' ');
    for byte in line {
        match (is_quoted, *byte) {
            _ if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (true, b'"') => is_quoted = false,
            (false, b'"') if before == b'=' => is_quoted = true,
            (false, b'"') => return false,
            _ => {}
        }
        before = *byte;
    }
    !is_quoted
}

/// What stands between commas that are in no quotes.
pub(super) fn members(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = line.bytes().position(|byte| {
            let ends = byte == b',' && !is_quoted;
            if byte == b'"' && !is_escaped {
                is_quoted = !is_quoted;
            }
            is_escaped = is_quoted && byte == b'\\' && !is_escaped;
            ends
        });
        rest = end.map(|end| &line[end + 1..]);
        Some(line[..end.unwrap_or(line.len())].trim_matches([' ', '\t']))
    })
}

fn directive(member: &str) -> Option<(String, Option<String>)> {
    let (name, value) = member.split_once('=').map_or((member, None), |(name, value)| (name, Some(value)));
    let value = value.map(|value| {
        let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        unquoted.unwrap_or(value).to_owned()
    });
    let name = name.trim().to_ascii_lowercase();
    (!name.is_empty()).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(lines: &[&str]) -> Directives {
        let lines = lines.iter().map(|line| (CACHE_CONTROL, HeaderValue::from_bytes(line.as_bytes()).unwrap()));
        Directives::of(&lines.collect())
    }

    #[test]
    fn names_have_no_case_and_quotes_hide_commas() {
        let told = of(&["Max-Age=60 , PRIVATE=\"a, no-store\", x=\"\\\", no-cache\"", ",,foo"]);
        assert!(told.has("max-age") && told.has("private") && told.is_bare("foo") && !told.is_bare("private"));
        assert!(!told.has("no-store") && !told.has("no-cache"));
        assert_eq!(told.seconds("max-age"), Some(60));
    }

    #[test]
    fn numbers_are_the_least_and_what_is_none_is_zero() {
        for (line, expected) in [
            ("max-age=60", 60),
            ("max-age=\"60\"", 60),
            ("max-age=0060", 60),
            ("max-age=60, max-age=5", 5),
            ("max-age=99999999999999999999", SECONDS_MAX),
            ("max-age", 0),
            ("max-age=", 0),
            ("max-age=-60", 0),
            ("max-age=+60", 0),
            ("max-age='60'", 0),
            ("max-age= 60", 0),
            ("max-age=60.5", 0),
            ("max-age=6a", 0),
        ] {
            assert_eq!(of(&[line]).seconds("max-age"), Some(expected), "{line}");
        }
        assert_eq!(of(&["s-maxage=1"]).seconds("max-age"), None);
    }

    #[test]
    fn what_cannot_be_read_is_not_stored() {
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_bytes(b"max-age=60, \xff").unwrap());
        assert!(Directives::of(&headers).has("no-store"));
    }

    #[test]
    fn a_quotation_that_hides_what_follows_is_not_stored() {
        for line in [
            "max-age=60, x=\"a, private",
            "max-age=60, x=\"a\\\", private",
            "max-age=60, x=a\", private, y=b\"",
            "max-age=60, x=\"a\"\", private, y=b\"",
            "max-age=60, \"private",
            "\"max-age=60, private\"",
            "max-age=60, x=\"",
        ] {
            assert!(of(&[line]).has("no-store"), "{line}");
        }
        assert!(of(&["max-age=60, x=\"a", "private\""]).has("no-store"), "each line is read by itself");
        for line in ["max-age=\"60\"", "private=\"a, b\\\"\\\\\", x=\"\"", "a\\b, max-age=60"] {
            assert!(!of(&[line]).has("no-store"), "{line}");
        }
    }

    #[test]
    fn pragma_counts_where_a_request_says_nothing_else() {
        let mut headers = HeaderMap::new();
        headers.insert(PRAGMA, HeaderValue::from_static("No-Cache, x"));
        assert!(Directives::of_request(&headers).has("no-cache") && !Directives::of_request(&headers).has("x"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
        assert!(!Directives::of_request(&headers).has("no-cache"));
    }
}
