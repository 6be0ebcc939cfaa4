//! Refusals that cross the wire: [`Problem`] (RFC 9457) and the one table of [`Code`]s.

use crate::message::body::{Body, full};
use hoop_units::plain;
use http::{HeaderMap, Response, StatusCode, header};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, SystemTime};

/// Makes the enum, its names on the wire, statuses, finality and meanings from one table.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:literal, $last:ident, $title:literal;)*) => {
        /// What went wrong, as it is named on the wire. `docs/protocol.md` has the same table.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Code { $(#[doc = $title] $variant,)* }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The code's name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The status that carries it.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => match StatusCode::from_u16($status) {
                    Ok(status) => status,
                    Err(_) => panic!("a status has three digits"),
                },)* }
            }

            /// What it means, as half a sentence.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// Whether sending the same again is pointless, so that a gateway gives the upload up.
            pub const fn is_final(self) -> bool {
                match self { $(Self::$variant => codes!(@$last),)* }
            }
        }
    };
    (@last) => { true };
    (@again) => { false };
}

codes! {
    // Requests in general.
    RequestInvalid = "request-invalid", 400, again, "the request is malformed";
    NotFound = "not-found", 404, again, "there is nothing here";
    MethodNotAllowed = "method-not-allowed", 405, again, "this resource does not take that method";
    RequestTimeout = "request-timeout", 408, again, "the request's bytes stopped coming";
    LengthRequired = "length-required", 411, again, "the length must be known beforehand";
    TooManyRequests = "too-many-requests", 429, again, "too much at once from this sender";
    HeadTooLarge = "head-too-large", 431, again, "the request's head is too long";
    Internal = "internal", 500, again, "something broke here";
    // The gateway.
    DestMissing = "dest-missing", 400, again, "the query parameter `dest` is missing";
    DestInvalid = "dest-invalid", 400, again, "`dest` is not an https URL of a service's post path";
    DestForbidden = "dest-forbidden", 403, again, "this gateway does not deliver to that address";
    DestNotHoop = "dest-not-hoop", 422, again, "the destination does not take sealed uploads";
    DestUnreachable = "dest-unreachable", 502, again, "the destination cannot be reached now";
    OriginForbidden = "origin-forbidden", 403, again, "pages of that origin may not use this resource";
    HostForbidden = "host-forbidden", 421, again, "this server is not known by that name";
    UploadUnknown = "upload-unknown", 404, again, "no upload of that id is known here";
    UploadConflict = "upload-conflict", 409, last, "another prelude, total or destination is known under this id";
    PreludeNeeded = "prelude-needed", 428, again, "records are taken here with their prelude only";
    OffsetMismatch = "offset-mismatch", 409, again, "the part does not begin where the upload ends so far";
    LengthInconsistent = "length-inconsistent", 400, again, "the upload's length is told in two ways that differ";
    MediaTypeUnsupported = "media-type-unsupported", 415, again, "this resource does not take that media type";
    SpoolFull = "spool-full", 507, again, "there is no room to store it now";
    SpoolFailed = "spool-failed", 503, again, "the gateway's disk cannot be written or read now";
    SpoolDamaged = "spool-damaged", 500, again, "some of it was spoilt on the gateway's disk, and is missing again";
    // Permits: a service's consent to a gateway's disk being filled, and to a gateway.
    PermitRequired = "permit-required", 403, again, "this needs the service's permit";
    PermitInvalid = "permit-invalid", 403, again, "the permit is not this upload's, or not of that service";
    PermitUnverifiable = "permit-unverifiable", 503, again, "the service's keys cannot be had now";
    GatewayForbidden = "gateway-forbidden", 403, again, "the service does not take uploads from this gateway";
    // Sealed bodies and ranges.
    BodyNotSealed = "body-not-sealed", 422, last, "the body is not a sealed upload";
    BodyTruncated = "body-truncated", 422, again, "the body ended before its announced length";
    RangeInvalid = "range-invalid", 400, again, "the range is malformed or contradicts itself";
    RangeOffGrid = "range-off-grid", 416, again, "the range is not cut at record borders";
    RangeTooMany = "range-too-many", 429, again, "the upload has too many gaps to keep track of";
    TooLarge = "too-large", 413, last, "the upload is larger than allowed";
    RecordCorrupt = "record-corrupt", 422, again, "a record does not open";
    // Tickets, tokens, plaintext.
    TicketForeign = "ticket-foreign", 403, last, "the ticket was not issued by this service, or was altered";
    TicketExpired = "ticket-expired", 410, last, "the ticket has expired";
    TicketEarly = "ticket-early", 403, again, "the ticket is not valid yet";
    TokenInvalid = "token-invalid", 403, last, "the token is missing, altered or expired";
    TokenMismatch = "token-mismatch", 403, last, "the token belongs to another upload";
    RouteMismatch = "route-mismatch", 403, last, "the ticket was issued for another route";
    HeadInvalid = "head-invalid", 422, last, "the sealed request's head is malformed";
    LengthMismatch = "length-mismatch", 422, last, "the sealed request's length differs from its Content-Length";
    // The service and the application behind it.
    UploadDone = "upload-done", 409, last, "the application has it already";
    UploadPaused = "upload-paused", 423, again, "its owner has paused the upload";
    UploadStopped = "upload-stopped", 410, last, "its owner has stopped the upload";
    UploadExpired = "upload-expired", 410, last, "the upload has expired";
    NotOwner = "not-owner", 403, again, "only whoever fetched the ticket may do that";
    SignInRequired = "sign-in-required", 401, again, "this needs a signed-in user";
    UpstreamUnreachable = "upstream-unreachable", 502, again, "the application cannot be reached";
    UpstreamBusy = "upstream-busy", 503, again, "the application asks to come back later";
    UpstreamBroken = "upstream-broken", 502, again, "the application's answer was cut off or is no HTTP";
    UpstreamFailed = "upstream-failed", 502, again, "the application said that it failed";
    FormTokenRefused = "form-token-refused", 403, again, "the application refused the form's token";
    NotPermitted = "not-permitted", 403, again, "the application did not let this user do that";
    TwicePossible = "twice-possible", 409, again, "the application may have it already, and would have it twice";
    AnswerLost = "answer-lost", 500, last, "the application was handed the whole request, and its answer was lost";
    Rejected = "rejected", 422, last, "the application refused the upload";
}

impl Code {
    /// The code of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A refusal as `application/problem+json` (RFC 9457): the code, a sentence on this occurrence, and what is at fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What went wrong.
    pub code: Code,
    /// This occurrence, in words: what was expected and what came. Holds no secret.
    pub detail: String,
    /// The query parameter, header or member at fault.
    pub field: Option<String>,
    /// After how long it is worth coming back (`Retry-After`, RFC 9110 §10.2.3).
    pub retry_after: Option<Duration>,
}

/// A problem document as it stands on the wire.
#[derive(Serialize, Deserialize)]
struct Document {
    #[serde(rename = "type", default)]
    kind: String,
    code: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

impl Problem {
    /// The media type of problem documents.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A refusal with its code and a sentence on this occurrence.
    pub fn new(code: Code, detail: impl fmt::Display) -> Self {
        Self { code, detail: detail.to_string(), field: None, retry_after: None }
    }

    /// The same, naming the query parameter, header or member at fault.
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The same, saying when to come back.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The document's bytes.
    pub fn to_json(&self) -> Vec<u8> {
        let document = Document {
            kind: format!("urn:hoop:error:{}", self.code),
            code: self.code.name().to_owned(),
            title: self.code.title().to_owned(),
            status: self.code.status().as_u16(),
            detail: self.detail.clone(),
            field: self.field.clone(),
        };
        serde_json::to_vec(&document).expect("a document of strings and a number has a JSON form")
    }

    /// Reads a document that another end sent; `None` if it is none, or has a code that this version does not know. Its texts are
    /// made [safe to show](hoop_units::plain).
    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        let document: Document = serde_json::from_slice(bytes).ok()?;
        let code = Code::by_name(&document.code)?;
        let (detail, field) = (plain::line(&document.detail), document.field.as_deref().map(plain::line));
        Some(Self { code, detail, field, retry_after: None })
    }

    /// The answer that carries it.
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(full(self.to_json()));
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, const { http::HeaderValue::from_static(Self::MEDIA_TYPE) });
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, const { http::HeaderValue::from_static("nosniff") });
        headers.insert(header::CACHE_CONTROL, const { http::HeaderValue::from_static("no-store") });
        if let Some(wait) = self.retry_after {
            // Rounded up: coming back a second early is a second refusal.
            let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, secs.into());
        }
        response
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.is_empty() {
            true => write!(f, "{} ({})", self.code.title(), self.code),
            false => write!(f, "{}: {} ({})", self.code.title(), self.detail, self.code),
        }
    }
}

impl std::error::Error for Problem {}

/// The wait that `Retry-After` asks for (RFC 9110 §10.2.3), in seconds or as a date; `None` if absent or unreadable.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = value.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_in_the_protocol_with_its_status_and_meaning() {
        let page = include_str!("../../../../docs/protocol.md");
        let table: String = Code::ALL
            .iter()
            .map(|code| {
                let last = if code.is_final() { "yes" } else { "" };
                format!("| `{code}` | {} | {last} | {} |\n", code.status().as_u16(), code.title())
            })
            .collect();
        assert!(page.contains(&table), "docs/protocol.md should end with this table:\n{table}");
    }

    #[test]
    fn a_problem_survives_its_document() {
        let problem = Problem::new(Code::DestInvalid, "`ftp:` is not https").field("dest");
        assert_eq!(Problem::from_json(&problem.to_json()), Some(problem));
        assert_eq!(Problem::from_json(b"<html>"), None);
        assert_eq!(Problem::from_json(br#"{"code":"of-tomorrow"}"#), None);
    }

    #[test]
    fn the_texts_of_a_document_command_no_terminal_and_have_a_bound() {
        let long = "x".repeat(100_000);
        let hostile =
            Problem::new(Code::DestInvalid, format!("\u{1b}[2J\nhoop: you may leave{long}")).field("a\u{202e}b");
        let read = Problem::from_json(&hostile.to_json()).unwrap();
        assert!(read.detail.starts_with("\\u001b[2J\\u000ahoop") && read.detail.chars().count() == plain::LINE_MAX);
        assert_eq!(read.field.as_deref(), Some("a\\u202eb"));
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 60);
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(of("120"), Some(Duration::from_secs(120)));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(of("Wed, 06 Nov 1974 08:49:37 GMT"), Some(Duration::ZERO), "a past date means now");
        assert_eq!(of("soon"), None);
        assert_eq!(of("-1"), None);
    }
}
