//! What an application's answer means: [`Rule`]s in order, the first that fits decides. Pure.
//!
//! A status alone does not tell: MediaWiki reports an expired session with 200, Django with a redirect. So a rule may
//! look at the status, at `Location`, at any field, and into the body.

use hoop_http::{is_elsewhere, is_sign_in};
use serde_json::Value;

/// What an answer means for the upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The application has it.
    Accepted,
    /// It waits for its owner.
    Held(Hold),
    /// The application cannot take it now: try again later.
    Retry,
    /// The application says that it failed: tried again a few times, then held.
    Failed,
    /// Somebody in front of the application speaks for it: it may have taken it, once it was sent all of it.
    Unknown,
    /// The application does not want it.
    Rejected,
}

/// What the application wants of an upload's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// To sign in: the session has gone.
    Session,
    /// Another token in the form, or none that is known to be wrong: the one that came with it was refused.
    Token,
    /// A permission that the user has not got.
    Permission,
}

impl Hold {
    /// What a rule with these conditions means if it does not say: 401 and redirects are about the session.
    pub fn of(when: &[Condition]) -> Self {
        let about_session =
            |(first, last): &(u16, u16)| (*first >= 300 && *last <= 399) || (*first, *last) == (401, 401);
        let session = when.iter().any(|condition| match condition {
            Condition::Status(spans) => spans.iter().all(about_session),
            Condition::Location(_) | Condition::SignIn | Condition::Elsewhere => true,
            Condition::Header(..) | Condition::NoHeader(_) | Condition::Json(..) | Condition::Body(_) => false,
        });
        if session { Self::Session } else { Self::Permission }
    }
}

/// The part of an answer that rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The status.
    pub status: u16,
    /// The fields in order. Names in any case.
    pub fields: &'a [(String, Vec<u8>)],
    /// As much of the body as was kept.
    pub body: &'a [u8],
    /// The authorities of the application: the service's own origin, and how it is called by the service.
    pub own: [&'a str; 2],
}

impl<'a> Seen<'a> {
    fn values(self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }
}

/// Conditions that must all hold, and what it means when they do.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// All of these; none: always.
    pub when: Vec<Condition>,
    /// What it means.
    pub then: Verdict,
}

/// Something that an answer has or has not.
#[derive(Clone, PartialEq, Debug)]
pub enum Condition {
    /// The status lies in one of these spans, both ends included.
    Status(Vec<(u16, u16)>),
    /// `Location` matches this pattern, in which `*` stands for any characters.
    Location(String),
    /// `Location` leads to where one signs in: see [`is_sign_in`].
    SignIn,
    /// `Location` leads to another server: whoever signs people in, as a rule.
    Elsewhere,
    /// The field is there; with a pattern: and one of its values matches.
    Header(String, Option<String>),
    /// The field is not there.
    NoHeader(String),
    /// The body is JSON, and what this pointer (RFC 6901) leads to equals the value.
    Json(String, Value),
    /// The body contains this text.
    Body(String),
}

impl Condition {
    fn holds(&self, seen: Seen<'_>) -> bool {
        match self {
            Self::Status(spans) => spans.iter().any(|(first, last)| (*first..=*last).contains(&seen.status)),
            Self::Location(pattern) => seen.values("location").any(|value| matches(pattern.as_bytes(), value)),
            Self::SignIn => seen.values("location").any(is_sign_in),
            Self::Elsewhere => seen.values("location").any(|location| is_elsewhere(location, seen.own)),
            Self::Header(name, None) => seen.values(name).next().is_some(),
            Self::Header(name, Some(pattern)) => seen.values(name).any(|value| matches(pattern.as_bytes(), value)),
            Self::NoHeader(name) => seen.values(name).next().is_none(),
            Self::Json(pointer, expected) => serde_json::from_slice::<Value>(seen.body)
                .is_ok_and(|value| value.pointer(pointer).is_some_and(|found| found == expected)),
            Self::Body(text) => {
                text.is_empty() || seen.body.windows(text.len()).any(|window| window == text.as_bytes())
            }
        }
    }

    /// Whether it can be judged from the head alone.
    const fn needs_body(&self) -> bool {
        matches!(self, Self::Json(..) | Self::Body(_))
    }
}

/// The first rule that fits; without one, an answer is a refusal.
pub fn judge(rules: &[Rule], seen: Seen<'_>) -> Verdict {
    let rule = rules.iter().find(|rule| rule.when.iter().all(|condition| condition.holds(seen)));
    rule.map_or(Verdict::Rejected, |rule| rule.then)
}

/// The verdict on an answer whose body broke off: `None` if a rule that might decide looks into the body.
pub fn judge_head(rules: &[Rule], seen: Seen<'_>) -> Option<Verdict> {
    for rule in rules {
        let (body, head): (Vec<_>, Vec<_>) = rule.when.iter().partition(|condition| condition.needs_body());
        match (head.iter().all(|condition| condition.holds(seen)), body.is_empty()) {
            (true, true) => return Some(rule.then),
            (true, false) => return None,
            (false, _) => {}
        }
    }
    Some(Verdict::Rejected)
}

/// Whether `text` matches `pattern`, in which `*` stands for any characters. Linear in the text for each `*`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star_p, star_t)) = star {
            star = Some((star_p, star_t + 1));
            (p, t) = (star_p + 1, star_t + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_its_stars_say() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("/login", "/login", true),
            ("/login", "/login/", false),
            ("*/login/*", "https://a.example/admin/login/?next=/x", true),
            ("*wp-login.php*", "/wp-login.php?reauth=1", true),
            ("a*b*c", "aXXbYYbZc", true),
            ("a*b*c", "aXXbYYbZ", false),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_body_that_broke_off_is_judged_only_where_the_head_suffices() {
        let seen = Seen { status: 200, fields: &[], body: b"{\"status\":", own: ["", ""] };
        let by_body = Rule { when: vec![Condition::Body("OK".into())], then: Verdict::Accepted };
        let by_status = Rule { when: vec![Condition::Status(vec![(200, 299)])], then: Verdict::Accepted };
        assert_eq!(judge_head(&[by_body.clone(), by_status.clone()], seen), None);
        assert_eq!(judge_head(&[by_status, by_body], seen), Some(Verdict::Accepted));
        assert_eq!(judge_head(&[], seen), Some(Verdict::Rejected));
    }
}
