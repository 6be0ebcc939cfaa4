//! What pages may ask of a gateway (`docs/protocol.md`, "Pages at a gateway"): [`Cors`].
//!
//! A browser lends every page that it shows its place on the LAN. So a page gets at what concerns the service that it came
//! from, and at nothing else; and only with a header that no form, beacon or image can send, so that the browser asks
//! first. Everything here follows from the request's head alone; that an upload is for the page's own service, where
//! its id alone is named, is left to [`Page::check_upload`].

use super::host_check::{Hosts, authority};
use super::representation::Representation;
use crate::core::wire::{RESOURCES, dest_of};
use hoop_http::{Body, Code, Origin, Problem, empty};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use url::Url;

const VERSION: HeaderName = HeaderName::from_static("hoop-version");

/// How long a browser remembers a preflight's answer, in seconds: as long as the usual upload takes, and shorter than a change
/// of rules may go unnoticed.
const PREFLIGHT_SECS: u64 = 600;

const ALLOW_HEADERS: &str = "Content-Type, Content-Range, Hoop-Prelude, Hoop-Permit, Hoop-Deadline, Hoop-Version, \
     Upload-Complete, Upload-Draft-Interop-Version, Upload-Incomplete, Upload-Length, Upload-Offset";
const EXPOSE_HEADERS: &str = "Hoop-Upload-Id, Hoop-State, Hoop-Total, Hoop-Missing, Hoop-Receipt, Location, Retry-After, \
     Upload-Complete, Upload-Incomplete, Upload-Length, Upload-Limit, Upload-Offset";

/// A page of another origin that is let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    origin: Origin,
}

/// Who asks, and what becomes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// A program, a person, or a page of the gateway's own.
    Own,
    /// A page, for what it may use.
    Page(Page),
    /// A browser asks whether a page may use these methods here.
    Preflight(Page, &'static str),
    /// A page, which may read why it gets nothing.
    Refused(Page, Problem),
}

/// The rules of one gateway.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    hosts: Hosts,
    public: Option<Origin>,
}

impl Cors {
    /// With the names that the operator lists, and where people reach the gateway.
    pub fn new(hosts: &[String], public_url: Option<&Url>) -> Self {
        Self { hosts: Hosts::new(hosts, public_url), public: public_url.and_then(|url| Origin::of(url).ok()) }
    }

    /// By which names this gateway may be called.
    pub const fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Judges a request by its head.
    ///
    /// # Errors
    /// `host-forbidden` and `origin-forbidden`, which no page must be able to read.
    pub fn admit(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Admission, Problem> {
        self.hosts.check(headers)?;
        if !headers.contains_key(header::ORIGIN) {
            return Ok(Admission::Own);
        }
        let origin = origin(headers).ok_or_else(|| forbidden("no page of that origin may use a gateway"))?;
        if self.is_own(&origin, headers) {
            return Ok(Admission::Own);
        }
        // Browsers, too, take plain http from this machine for safe.
        if !origin.is_https() && !origin.is_loopback() {
            return Err(forbidden("pages must have come over https"));
        }
        let page = Page { origin };
        let methods = page.methods(path, query);
        if methods.is_empty() {
            return Err(forbidden("pages may use what concerns uploads to their own origin"));
        }
        if method == Method::OPTIONS {
            return Ok(Admission::Preflight(page, methods));
        }
        let offered = methods.split(", ").any(|offered| offered == method.as_str());
        if !offered || (path == "/monitor" && Representation::of(headers) == Representation::Html) {
            return Err(forbidden("pages may not use this resource so"));
        }
        if headers.get_all(VERSION).iter().map(HeaderValue::as_bytes).ne([b"1".as_slice()]) {
            let problem = Problem::new(Code::RequestInvalid, "pages say `Hoop-Version: 1`").field("Hoop-Version");
            return Ok(Admission::Refused(page, problem));
        }
        Ok(Admission::Page(page))
    }

    /// Whether a page was served by this gateway. Its name has been checked by now: one that anyone could point at us makes
    /// no page ours.
    fn is_own(&self, origin: &Origin, headers: &HeaderMap) -> bool {
        let called = authority(headers).and_then(|url| Origin::of(&url).ok());
        self.public.as_ref() == Some(origin) || called.as_ref() == Some(origin)
    }
}

impl Page {
    /// The methods that the page may use on a resource, as a header has them; empty for none. They depend on the URL alone, so
    /// that one preflight serves every request to it.
    fn methods(&self, path: &str, query: Option<&str>) -> &'static str {
        let named = dest_of(query);
        let own = named.as_ref().is_ok_and(|dest| self.is_of(dest));
        let unnamed = named.is_err_and(|problem| problem.code == Code::DestMissing);
        match path {
            "/test" | "/monitor" => "GET",
            "/offload" if own => "POST",
            // Its dest is known to us alone, and whoever knows the path has begun it.
            _ if path.starts_with(RESOURCES) => "HEAD, PATCH, DELETE",
            _ if !path.starts_with("/offload/") => "",
            _ if own => "PUT, HEAD",
            _ if unnamed => "HEAD",
            _ => "",
        }
    }

    /// Whether a destination is of the page's own origin.
    fn is_of(&self, dest: &str) -> bool {
        Url::parse(dest).ok().and_then(|dest| Origin::of(&dest).ok()).is_some_and(|origin| origin == self.origin)
    }

    /// Whether the page may know of an upload to `dest`.
    ///
    /// # Errors
    /// `origin-forbidden`, which the page must not be able to read.
    pub fn check_upload(&self, dest: &str) -> Result<(), Problem> {
        match self.is_of(dest) {
            true => Ok(()),
            false => Err(forbidden("the upload is for another origin")),
        }
    }

    /// Answers a preflight.
    pub fn preflight(&self, methods: &'static str) -> Response<Body> {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.allow_origin());
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOW_HEADERS));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECS.into());
        response
    }

    /// The answer to the page: it may read it, refusals too, unless it has no business with the upload.
    pub fn answer(&self, answered: Result<Response<Body>, Problem>) -> Response<Body> {
        let foreign = answered.as_ref().is_err_and(|problem| problem.code == Code::OriginForbidden);
        let mut response = answered.unwrap_or_else(Problem::into_response);
        if !foreign {
            self.expose(response.headers_mut());
        }
        response
    }

    fn expose(&self, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.allow_origin());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSE_HEADERS));
    }

    fn allow_origin(&self) -> HeaderValue {
        HeaderValue::try_from(self.origin.as_str()).expect("an origin is ASCII")
    }
}

/// Every answer depends on who asks, so a cache must keep them apart; also those that no page may read.
pub fn vary(headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(Code::OriginForbidden, detail).field("Origin")
}

/// The one origin that a request names, spelled as browsers do (RFC 6454 §6.2). `null`, another scheme, several or anything else:
/// none.
fn origin(headers: &HeaderMap) -> Option<Origin> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(text), None) = (origins.next(), origins.next()) else { return None };
    let text = text.to_str().ok()?;
    text.parse().ok().filter(|origin: &Origin| origin.as_str() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "/offload/01010101010101010101010101010101";
    const RESOURCE: &str = "/offload/r/AAAAAAAAAAAAAAAAAAAAAA";
    const OWN: Option<&str> = Some("dest=https%3A%2F%2Fphotos.example%2Fhoop%2Fpost");
    const FOREIGN: Option<&str> = Some("dest=https%3A%2F%2Fevil.example%2Fhoop%2Fpost");

    fn headers(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("hoop.local:4667"));
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            headers.append(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    /// What becomes of a request, in a word or two.
    fn verdict(method: &str, path: &str, query: Option<&str>, lines: &[&str]) -> String {
        let cors = Cors::new(&[], Some(&Url::parse("https://box.example/").unwrap()));
        match cors.admit(&method.parse().unwrap(), path, query, &headers(lines)) {
            Ok(Admission::Own) => "own".to_owned(),
            Ok(Admission::Page(page)) => format!("page {}", page.origin),
            Ok(Admission::Preflight(_, methods)) => format!("preflight {methods}"),
            Ok(Admission::Refused(_, problem)) => format!("{}, readable", problem.code),
            Err(problem) => problem.code.to_string(),
        }
    }

    const ORIGIN: &str = "Origin: https://photos.example";
    const VERSION: &str = "Hoop-Version: 1";
    const JSON: &str = "Accept: application/json";

    #[test]
    fn a_page_may_use_what_concerns_its_own_origin_and_nothing_else() {
        let page = "page https://photos.example";
        for (method, path, query, lines, expected) in [
            ("GET", "/test", None, &[ORIGIN, VERSION][..], page),
            ("POST", "/offload", OWN, &[ORIGIN, VERSION], page),
            ("PUT", ID, OWN, &[ORIGIN, VERSION], page),
            ("HEAD", ID, None, &[ORIGIN, VERSION], page),
            ("HEAD", ID, OWN, &[ORIGIN, VERSION], page),
            ("PATCH", RESOURCE, None, &[ORIGIN, VERSION], page),
            ("HEAD", RESOURCE, None, &[ORIGIN, VERSION], page),
            ("DELETE", RESOURCE, None, &[ORIGIN, VERSION], page),
            ("GET", "/monitor", Some("ID=1"), &[ORIGIN, VERSION, JSON], page),
            ("GET", "/monitor", Some("ID=1"), &[ORIGIN, VERSION, "Accept: text/event-stream"], page),
            // Another origin's, or nobody's.
            ("POST", "/offload", FOREIGN, &[ORIGIN, VERSION], "origin-forbidden"),
            ("PUT", ID, FOREIGN, &[ORIGIN, VERSION], "origin-forbidden"),
            ("HEAD", ID, FOREIGN, &[ORIGIN, VERSION], "origin-forbidden"),
            ("POST", "/offload", None, &[ORIGIN, VERSION], "origin-forbidden"),
            ("PUT", ID, None, &[ORIGIN, VERSION], "origin-forbidden"),
            ("PUT", ID, Some("dest=x"), &[ORIGIN, VERSION], "origin-forbidden"),
            (
                "PUT",
                ID,
                Some("dest=https://photos.example/p&dest=https://evil.example/p"),
                &[ORIGIN, VERSION],
                "origin-forbidden",
            ),
            ("PUT", ID, Some("dest=http://photos.example/p"), &[ORIGIN, VERSION], "origin-forbidden"),
            ("PUT", ID, Some("dest=https://photos.example:444/p"), &[ORIGIN, VERSION], "origin-forbidden"),
            ("PUT", ID, Some("dest=https://photos.example@evil.example/p"), &[ORIGIN, VERSION], "origin-forbidden"),
            ("PUT", ID, Some("dest=https://photos.example:443/p"), &[ORIGIN, VERSION], page),
            // What is for people and programs.
            ("GET", "/", None, &[ORIGIN, VERSION, JSON], "origin-forbidden"),
            ("GET", "/bridge", None, &[ORIGIN, VERSION], "origin-forbidden"),
            ("GET", "/bridge.js", None, &[ORIGIN, VERSION], "origin-forbidden"),
            ("GET", "/nothing", None, &[ORIGIN, VERSION], "origin-forbidden"),
            ("GET", "/monitor", Some("ID=1"), &[ORIGIN, VERSION], "origin-forbidden"),
            (
                "GET",
                "/monitor",
                Some("ID=1"),
                &[ORIGIN, VERSION, "Accept: text/html, application/json"],
                "origin-forbidden",
            ),
            ("POST", "/test", None, &[ORIGIN, VERSION], "origin-forbidden"),
            ("DELETE", ID, OWN, &[ORIGIN, VERSION], "origin-forbidden"),
            ("PATCH", ID, OWN, &[ORIGIN, VERSION], "origin-forbidden"),
            ("PATCH", "/offload", OWN, &[ORIGIN, VERSION], "origin-forbidden"),
            ("POST", RESOURCE, OWN, &[ORIGIN, VERSION], "origin-forbidden"),
        ] {
            assert_eq!(verdict(method, path, query, lines), expected, "{method} {path} {query:?} {lines:?}");
        }
    }

    #[test]
    fn without_the_header_that_forces_a_preflight_a_page_gets_nothing() {
        for (method, path, query) in [
            ("GET", "/test", None),
            ("POST", "/offload", OWN),
            ("PUT", ID, OWN),
            ("HEAD", ID, None),
            ("PATCH", RESOURCE, None),
        ] {
            for version in [
                &[ORIGIN][..],
                &[ORIGIN, "Hoop-Version: 2"],
                &[ORIGIN, VERSION, VERSION],
                &[ORIGIN, "Hoop-Version: 1, 1"],
            ] {
                assert_eq!(
                    verdict(method, path, query, version),
                    "request-invalid, readable",
                    "{method} {path} {version:?}"
                );
            }
        }
    }

    #[test]
    fn a_preflight_says_what_the_url_is_good_for() {
        let asks = "Access-Control-Request-Method: PUT";
        for (path, query, expected) in [
            ("/test", None, "preflight GET"),
            ("/monitor", Some("ID=1"), "preflight GET"),
            ("/offload", OWN, "preflight POST"),
            (ID, OWN, "preflight PUT, HEAD"),
            (ID, None, "preflight HEAD"),
            (RESOURCE, None, "preflight HEAD, PATCH, DELETE"),
            (ID, FOREIGN, "origin-forbidden"),
            ("/offload", FOREIGN, "origin-forbidden"),
            ("/offload", None, "origin-forbidden"),
            ("/", None, "origin-forbidden"),
            ("/bridge", None, "origin-forbidden"),
        ] {
            assert_eq!(verdict("OPTIONS", path, query, &[ORIGIN, asks]), expected, "{path} {query:?}");
        }
    }

    #[test]
    fn an_origin_that_is_not_one_safe_site_is_forbidden() {
        for origin in ["null", "", "*", "photos.example", "https://", "http://photos.example", "ftp://photos.example"]
            .into_iter()
            .chain([
                "https://photos.example/",
                "https://photos.example/x",
                "https://Photos.example",
                "https://photos.example:443",
            ])
            .chain([
                "https://u@photos.example",
                "https://photos.example, https://photos.example",
                "http://192.168.1.1",
                "file://",
            ])
            .chain(["http://hoop.local", "chrome-extension://abcdef", "http://localhost.evil.example"])
        {
            let line = format!("Origin: {origin}");
            for method in ["GET", "OPTIONS"] {
                assert_eq!(verdict(method, "/test", None, &[&line, VERSION]), "origin-forbidden", "{method} {origin}");
            }
        }
        assert_eq!(verdict("GET", "/test", None, &[ORIGIN, ORIGIN, VERSION]), "origin-forbidden", "twice");
        for origin in ["http://127.0.0.1:8000", "http://localhost:3000", "http://app.localhost", "http://[::1]:1"] {
            assert_eq!(
                verdict("GET", "/test", None, &[&format!("Origin: {origin}"), VERSION]),
                format!("page {origin}")
            );
        }
    }

    #[test]
    fn the_gateways_own_pages_and_programs_need_no_leave() {
        for lines in [&[][..], &["Origin: http://hoop.local:4667"], &["Origin: https://box.example"]] {
            assert_eq!(verdict("PUT", ID, FOREIGN, lines), "own", "{lines:?}");
            assert_eq!(verdict("GET", "/bridge", None, lines), "own", "{lines:?}");
        }
        let mut headers = headers(&["Origin: http://evil.example"]);
        headers.insert(header::HOST, HeaderValue::from_static("evil.example"));
        let problem = Cors::default().admit(&Method::GET, "/test", None, &headers).unwrap_err();
        assert_eq!(problem.code, Code::HostForbidden);
    }
}
