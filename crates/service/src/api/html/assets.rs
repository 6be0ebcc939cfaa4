//! Style and scripts of the pages, and the library for the application's own.

use hoop_http::{Body, Code, Problem};
use http::{HeaderMap, Response};

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
    match ASSETS.into_iter().find(|(known, _, _)| *known == path) {
        Some((_, media_type, content)) => hoop_pages::asset(headers, media_type, content),
        None => Problem::new(Code::NotFound, "").into_response(),
    }
}
