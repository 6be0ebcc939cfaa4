//! Which requests an answer is for: [`Asker`] and [`Selector`] (RFC 9111 §2 and §4.1). Pure.
//!
//! An answer is found under its whole URI. One that is *shared* is for all devices, and one that is *own* for one device and its credentials alone: what it sent as `Cookie` and
//! `Authorization`. The fields that `Vary` names must be as they were. So must all others but a few ([`UNKEYED`]): a server may look at `X-Forwarded-Host`, or at `Accept`, and not say so.
//! Then one device could choose what another gets.

use hoop_endpoint::DeviceId;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, SET_COOKIE, VARY};
use http::uri::Uri;
use http::{HeaderMap, request};
use ring::digest::{Context, SHA256};

/// Fields by which nobody asks for anything else, though each program sends its own. Those that are about caches or connections are among them.
const UNKEYED: [&str; 16] = [
    "user-agent",
    "referer",
    "priority",
    "cache-control",
    "pragma",
    "via",
    "te",
    "content-length",
    // A request that has one of these is not kept.
    "host",
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "max-forwards",
];

/// A longer value of an unkeyed field might make a server answer with an error, which would be kept for others. Such a value counts as part of the key, in bytes.
const UNKEYED_MAX: usize = 512;

/// Names that `Vary` may have: each is looked at for each request.
const VARY_MAX: usize = 32;

/// The first half of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(super) struct Digest(pub [u8; 16]);

impl Digest {
    /// Of parts, none of which runs into the next.
    pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut context = Context::new(&SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut half = [0; 16];
        half.copy_from_slice(&context.finish().as_ref()[..16]);
        Self(half)
    }
}

/// Whose an answer is, if it is one device's alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Owner {
    pub device: DeviceId,
    /// What it had sent as credentials.
    pub credentials: Digest,
}

/// Who asks for what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asker {
    /// The URI.
    pub target: Digest,
    /// All fields that count besides.
    pub fields: Digest,
    pub owner: Owner,
    has_cookie: bool,
    has_authorization: bool,
}

impl Asker {
    pub(super) fn of(request: &request::Parts, device: DeviceId) -> Self {
        let headers = &request.headers;
        let keyed: Vec<_> = headers.keys().filter(|name| is_keyed(headers, name)).cloned().collect();
        let credentials = values([COOKIE, AUTHORIZATION].iter(), headers);
        Self {
            target: target(&request.uri),
            fields: values(sorted(keyed).iter(), headers),
            owner: Owner { device, credentials },
            has_cookie: headers.contains_key(COOKIE),
            has_authorization: headers.contains_key(AUTHORIZATION),
        }
    }

    /// Whether it sends what says who it is.
    pub(super) const fn has_credentials(&self) -> bool {
        self.has_cookie || self.has_authorization
    }

    /// Whether an answer to this request may be for others, too: `Authorization` needs `public` (RFC 9111 §3.5), and with a cookie none is.
    pub(super) const fn may_share(&self, is_public: bool) -> bool {
        !self.has_cookie && (!self.has_authorization || is_public)
    }
}

/// The URI as a digest, with the port that its scheme has by default.
pub(super) fn target(uri: &Uri) -> Digest {
    let scheme = uri.scheme_str().unwrap_or("http");
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Digest::of([scheme.as_bytes(), host.as_bytes(), &port.to_le_bytes(), path.as_bytes()])
}

fn is_keyed(headers: &HeaderMap, name: &HeaderName) -> bool {
    let is_plain = |value: &http::HeaderValue| {
        value.len() <= UNKEYED_MAX && value.as_bytes().iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'<')
    };
    let is_unkeyed = UNKEYED.contains(&name.as_str());
    // Credentials have their own part of the key.
    let has_own_part = name == COOKIE || name == AUTHORIZATION;
    !(has_own_part || (is_unkeyed && headers.get_all(name).iter().all(is_plain)))
}

/// What these fields have, each with how often it is there.
fn values<'a>(names: impl Iterator<Item = &'a HeaderName>, headers: &'a HeaderMap) -> Digest {
    let mut parts = Vec::new();
    for name in names {
        parts.push(name.as_str().as_bytes().to_vec());
        parts.push(headers.get_all(name).iter().count().to_le_bytes().to_vec());
        parts.extend(headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()));
    }
    Digest::of(parts.iter().map(Vec::as_slice))
}

fn sorted(mut names: Vec<HeaderName>) -> Vec<HeaderName> {
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    names
}

/// Which requests a stored answer is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Selector {
    pub target: Digest,
    pub fields: Digest,
    /// None: it is shared.
    pub owner: Option<Owner>,
    /// Whether it says that it is for all, also for those who sign on.
    pub is_public: bool,
    /// What `Vary` names, and what the request had.
    pub vary: Vec<HeaderName>,
    pub values: Digest,
}

/// Why an answer is for nobody later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ForNobody;

impl Selector {
    /// That of an answer to this request. `is_private`, `is_public`: as its `Cache-Control` says.
    ///
    /// # Errors
    /// [`ForNobody`]: `Vary` is `*`, or malformed, or too long; or the answer sets a cookie, which is for one program.
    pub(super) fn of(
        asker: &Asker,
        request: &HeaderMap,
        answer: &HeaderMap,
        is_private: bool,
        is_public: bool,
    ) -> Result<Self, ForNobody> {
        if answer.contains_key(SET_COOKIE) || answer.contains_key("set-cookie2") {
            return Err(ForNobody);
        }
        let vary = vary(answer).ok_or(ForNobody)?;
        let is_shared = !is_private && asker.may_share(is_public);
        Ok(Self {
            target: asker.target,
            fields: asker.fields,
            owner: (!is_shared).then_some(asker.owner),
            is_public,
            values: values(vary.iter(), request),
            vary,
        })
    }

    /// Whether the answer is for this request.
    pub(super) fn selects(&self, asker: &Asker, request: &HeaderMap) -> bool {
        let is_theirs = self.owner.map_or_else(|| asker.may_share(self.is_public), |owner| owner == asker.owner);
        is_theirs
            && (self.target, self.fields) == (asker.target, asker.fields)
            && self.values == values(self.vary.iter(), request)
    }

    /// The name of the answer: a later one with the same name takes its place.
    pub(super) fn id(&self) -> Digest {
        let owner = self.owner.map(|owner| [&owner.device.0[..], &owner.credentials.0].concat()).unwrap_or_default();
        let vary = self.vary.iter().map(|name| name.as_str().as_bytes());
        Digest::of([&self.target.0[..], &self.fields.0, &owner, &self.values.0].into_iter().chain(vary))
    }
}

/// The names that `Vary` has, in order and in lower case. None: there are too many, or one is `*`, or none.
fn vary(answer: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for line in answer.get_all(VARY) {
        for name in line.to_str().ok()?.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "*" || names.len() >= VARY_MAX {
                return None;
            }
            names.push(HeaderName::try_from(name).ok()?);
        }
    }
    Some(sorted(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const ONE: DeviceId = DeviceId([1; 20]);
    const OTHER: DeviceId = DeviceId([2; 20]);

    fn request(uri: &str, fields: &[(&str, &str)]) -> request::Parts {
        let request = fields.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        request("http://a/", fields).headers
    }

    /// Whether what `first` got is for `second`.
    fn is_for(
        first: (DeviceId, &[(&str, &str)]),
        second: (DeviceId, &[(&str, &str)]),
        answer: &[(&str, &str)],
    ) -> bool {
        let [asked, asks] = [first.1, second.1].map(|fields| request("http://a.example/x", fields));
        let is = |directive| answer.iter().any(|(_, value)| *value == directive);
        let asker = Asker::of(&asked, first.0);
        let Ok(selector) = Selector::of(&asker, &asked.headers, &headers(answer), is("private"), is("public")) else {
            return false;
        };
        selector.selects(&Asker::of(&asks, second.0), &asks.headers)
    }

    #[test]
    fn credentials_of_one_device_reach_no_other_and_no_others_of_its_own() {
        let (a, b) = (&[("cookie", "a=1")][..], &[("cookie", "a=2")][..]);
        let basic = &[("authorization", "Basic eA==")][..];
        let (private, public) = (&[("cache-control", "private")][..], &[("cache-control", "public")][..]);
        for (first, second, answer, expected) in [
            ((ONE, a), (ONE, a), &[][..], true),
            ((ONE, a), (ONE, b), &[], false),
            ((ONE, a), (OTHER, a), &[], false),
            ((ONE, a), (OTHER, a), public, false),
            ((ONE, a), (OTHER, &[]), public, false),
            ((ONE, &[]), (OTHER, a), public, false),
            ((ONE, basic), (ONE, basic), &[], true),
            ((ONE, basic), (OTHER, basic), &[], false),
            ((ONE, basic), (OTHER, &[]), &[], false),
            ((ONE, basic), (OTHER, &[]), public, true),
            ((ONE, &[]), (OTHER, basic), public, true),
            ((ONE, &[]), (OTHER, basic), &[], false),
            ((ONE, &[]), (OTHER, &[]), &[], true),
            ((ONE, &[]), (OTHER, &[]), private, false),
            ((ONE, &[]), (ONE, &[]), private, true),
            ((ONE, &[]), (ONE, &[]), &[("set-cookie", "a=1")], false),
        ] {
            assert_eq!(is_for(first, second, answer), expected, "{first:?} {second:?} {answer:?}");
        }
    }

    #[test]
    fn a_field_that_a_server_may_look_at_is_part_of_the_key() {
        let long = "x".repeat(UNKEYED_MAX + 1);
        for (first, second, expected) in [
            (&[("x-forwarded-host", "evil.example")][..], &[][..], false),
            (&[("accept", "text/html")], &[("accept", "image/png")], false),
            (&[("accept", "text/html")], &[("accept", "text/html")], true),
            (&[("x-a", "1"), ("x-b", "2")], &[("x-b", "2"), ("x-a", "1")], true),
            (&[("x-a", "1"), ("x-a", "2")], &[("x-a", "1, 2")], false),
            (&[("user-agent", "one")], &[("user-agent", "two")], true),
            (&[("user-agent", "<script>")], &[("user-agent", "two")], false),
            (&[("referer", &long)], &[], false),
            (&[("priority", "u=1"), ("if-none-match", "\"a\"")], &[], true),
            (&[("sec-fetch-mode", "cors")], &[], false),
            (&[("upgrade-insecure-requests", "1")], &[], false),
        ] {
            assert_eq!(is_for((ONE, first), (OTHER, second), &[]), expected, "{first:?} {second:?}");
        }
    }

    #[test]
    fn what_vary_names_is_as_it_was_or_nothing_is_selected() {
        let vary = |names| [("vary", names)];
        let (one, two) = (&[("user-agent", "one")][..], &[("user-agent", "two")][..]);
        for (first, second, names, expected) in [
            (one, one, "User-Agent", true),
            (one, two, "User-Agent", false),
            (one, two, "Referer, USER-AGENT", false),
            (one, two, "referer", true),
            (one, &[][..], "user-agent", false),
            (&[][..], &[][..], "user-agent", true),
            (one, one, "*", false),
            (one, one, "user-agent, *", false),
            (one, one, "a b", false),
        ] {
            assert_eq!(is_for((ONE, first), (OTHER, second), &vary(names)), expected, "{first:?} {second:?} {names}");
        }
        let many = vec!["a"; VARY_MAX + 1].join(",");
        assert!(!is_for((ONE, one), (ONE, one), &vary(&many)));
    }

    #[test]
    fn a_uri_has_one_key_and_another_has_another() {
        let of = |uri: &str| target(&uri.parse().unwrap());
        assert_eq!(of("http://A.example:80/x"), of("http://a.example/x"));
        for other in ["http://a.example/X", "http://a.example/x?", "http://a.example:81/x", "https://a.example/x"] {
            assert_ne!(of(other), of("http://a.example/x"), "{other}");
        }
    }
}
