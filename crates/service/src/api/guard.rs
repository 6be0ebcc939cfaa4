//! Keeps pages of other origins from using a signed-in user's browser: [`own_page`] and [`hoop_version`].

use hoop_http::{Code, Origin, Problem};
use http::{HeaderMap, header};

/// Refuses a request that a page of another origin made: by `Origin` (RFC 6454 §7), and by `Sec-Fetch-Site`, which
/// browsers set where `Origin` is left out. Programs set neither.
///
/// # Errors
/// `origin-forbidden`.
pub fn own_page(headers: &HeaderMap, origin: &Origin) -> Result<(), Problem> {
    for value in headers.get_all(header::ORIGIN) {
        if value.as_bytes() != origin.as_str().as_bytes() {
            let detail = format!("only pages of {origin} may");
            return Err(Problem::new(Code::OriginForbidden, detail).field("Origin"));
        }
    }
    for value in headers.get_all("sec-fetch-site") {
        if !matches!(value.as_bytes(), b"same-origin" | b"none") {
            return Err(Problem::new(Code::OriginForbidden, "the page is of another site").field("Sec-Fetch-Site"));
        }
    }
    Ok(())
}

/// Demands the `Origin` of our own pages, of a form that a page sent without script.
///
/// # Errors
/// `origin-forbidden`.
pub fn own_form(headers: &HeaderMap, origin: &Origin) -> Result<(), Problem> {
    match headers.contains_key(header::ORIGIN) {
        true => own_page(headers, origin),
        false => Err(Problem::new(Code::OriginForbidden, "a form must say where it comes from").field("Origin")),
    }
}

/// Demands `Hoop-Version: 1`, which no page of another origin can send without our leave (Fetch, "CORS-safelisted
/// request-header"), and we give none.
///
/// # Errors
/// `request-invalid`.
pub fn hoop_version(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get("hoop-version").map(|value| value.as_bytes()) {
        Some(b"1") => Ok(()),
        _ => Err(Problem::new(Code::RequestInvalid, "expected `Hoop-Version: 1`").field("Hoop-Version")),
    }
}
