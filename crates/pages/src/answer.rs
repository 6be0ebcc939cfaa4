//! A page as an answer: [`answer`].

use hoop_http::{Body, in_pieces};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use maud::Markup;

/// A page as an answer that nobody keeps, with further `headers` of its own.
pub fn answer(status: StatusCode, page: Markup, headers: &[(HeaderName, &'static str)]) -> Response<Body> {
    let mut response = Response::new(in_pieces(page.into_string()));
    *response.status_mut() = status;
    let ours = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in ours.iter().chain(headers) {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
