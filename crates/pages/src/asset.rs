//! Styles and scripts: [`asset`].

use hoop_http::{Body, empty, full};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use ring::digest;

/// A file of ours. A browser may keep it, and asks each time whether it is still the same, so that page, style and
/// script are of one version.
pub fn asset(request: &HeaderMap, media_type: &'static str, content: &'static str) -> Response<Body> {
    let digest = digest::digest(&digest::SHA256, content.as_bytes());
    let tag = format!("\"{}\"", hex::encode(&digest.as_ref()[..12]));
    let known = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|value| value.split(',')).map(|known| known.trim().trim_start_matches("W/"));
    let fresh = known.any(|known| known == tag || known == "*");
    let mut response = Response::new(if fresh { empty() } else { full(content) });
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("digits in quotes are a header's value"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let asked = |known: &str| {
            let headers = [(header::IF_NONE_MATCH, known.parse().unwrap())].into_iter().collect();
            asset(&headers, "text/css", "a {}").status()
        };
        let first = asset(&HeaderMap::new(), "text/css", "a {}");
        let tag = first.headers()[header::ETAG].to_str().unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        for known in [tag, &format!("\"x\", {tag}"), &format!("W/{tag}"), "*"] {
            assert_eq!(asked(known), StatusCode::NOT_MODIFIED, "{known}");
        }
        assert_eq!(asked("\"x\""), StatusCode::OK);
        assert_ne!(asset(&HeaderMap::new(), "text/css", "b {}").headers()[header::ETAG], tag, "another file");
    }
}
