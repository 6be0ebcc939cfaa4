//! Style and scripts of the pages, and the library for the application's own.

use hoop_http::{Body, Code, Problem, empty, full};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use ring::digest;

/// Media type and content of the files of our pages, and of the library for the application's own.
const ASSETS: [(&str, &str, &str); 4] = [
    ("/hoop/hoop.js", "text/javascript; charset=utf-8", include_str!("../../../../../web/dist/hoop.js")),
    ("/hoop/hoop-card.js", "text/javascript; charset=utf-8", include_str!("../../../../../web/dist/hoop-card.js")),
    ("/hoop/pages.css", "text/css; charset=utf-8", include_str!("pages.css")),
    ("/hoop/pages.js", "text/javascript; charset=utf-8", include_str!("../../../../../web/dist/pages.js")),
];

/// Whether a path is that of one of these files.
pub fn is_asset(path: &str) -> bool {
    ASSETS.iter().any(|(known, _, _)| *known == path)
}

/// One of these files.
pub fn asset(path: &str, headers: &HeaderMap) -> Response<Body> {
    let Some((_, media_type, content)) = ASSETS.into_iter().find(|(known, _, _)| *known == path) else {
        return Problem::new(Code::NotFound, "").into_response();
    };
    let digest = digest::digest(&digest::SHA256, content.as_bytes());
    let tag: String = digest.as_ref()[..12].iter().map(|octet| format!("{octet:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let fresh = known
        .flat_map(|value| value.split(','))
        .any(|known| matches!(known.trim(), known if known == tag || known == "*"));
    let mut response = Response::new(if fresh { empty() } else { full(content) });
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("digits in quotes are a header's value"));
    // Asked again each time, so that page, style and script are of one version.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn an_asset_that_the_browser_has_is_not_sent_again() {
        for (path, _, _) in ASSETS {
            let first = asset(path, &HeaderMap::new());
            let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
            assert_eq!(first.status(), StatusCode::OK);
            let again = asset(path, &headers(header::IF_NONE_MATCH, &format!("\"x\", {tag}")));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(asset(path, &headers(header::IF_NONE_MATCH, "\"x\"")).status(), StatusCode::OK);
        }
        assert!(!is_asset("/hoop/pages.html"));
    }
}
