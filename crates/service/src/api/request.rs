//! What requests of pages have in common: reading their bodies, forms, and which form of an answer they want.

use hoop_http::{Body, Code, Problem, ReadError, empty, read_limited};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use std::time::Duration;

/// How long a short request may take to come in.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The body of a request, at most `limit` bytes.
///
/// # Errors
/// `request-timeout`, `request-invalid`, or `length-required`: whether a client is behind shows by how much of a known length has come,
/// and one that is makes way for others.
pub async fn read(body: Incoming, limit: usize) -> Result<bytes::Bytes, Problem> {
    if body.size_hint().exact().is_none() {
        return Err(Problem::new(Code::LengthRequired, "this request needs a Content-Length"));
    }
    let body = tokio::time::timeout(TIMEOUT, read_limited(body, limit)).await;
    let body = body.map_err(|_| Problem::new(Code::RequestTimeout, "the request did not come in 15 s"))?;
    body.map_err(|error| match error {
        ReadError::TooLong { .. } => Problem::new(Code::RequestInvalid, error).field("body"),
        ReadError::Broken(_) => Problem::new(Code::RequestInvalid, "the request broke off"),
    })
}

/// The media type of a body, in lower case, without parameters.
pub fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Sends a page that sent a form to where it is to go next.
pub fn back_to(path: &'static str) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(path));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The representation of a resource that an answer has (RFC 9110 §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Representation {
    /// A document for programs.
    Json,
    /// A page for people.
    Html,
    /// A stream of events.
    Events,
}

impl Representation {
    /// By `Accept`: whichever of the three it names first, JSON if none. Browsers name pages first when a person goes there.
    pub fn by(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut media = values.flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
        let named = media.find_map(|media| match media.trim().to_ascii_lowercase().as_str() {
            "application/json" => Some(Self::Json),
            "text/html" => Some(Self::Html),
            "text/event-stream" => Some(Self::Events),
            _ => None,
        });
        named.unwrap_or(Self::Json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_chooses_between_a_page_events_and_json() {
        let wanted =
            |accept: &str| Representation::by(&[(header::ACCEPT, accept.parse().unwrap())].into_iter().collect());
        assert_eq!(wanted("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), Representation::Html);
        assert_eq!(wanted("text/event-stream"), Representation::Events);
        assert_eq!(wanted("application/json, text/html"), Representation::Json);
        assert_eq!(
            (wanted("*/*"), Representation::by(&HeaderMap::new())),
            (Representation::Json, Representation::Json)
        );
    }
}
