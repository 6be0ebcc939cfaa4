//! The bridge (`docs/protocol.md`, "Bridge"): a small window for browsers that do not let a page talk to the LAN. What it does is in `web/src/bridge.ts`.

use super::monitor::POLICY;
use hoop_http::Body;
use hoop_pages::words::BridgeWords;
use hoop_pages::{Language, answer, asset};
use http::{HeaderMap, Response, StatusCode, header};
use maud::{DOCTYPE, Markup, html};

/// The script, made by `web/build.mjs`.
const SCRIPT: &str = include_str!("../../../../web/dist/bridge.js");
const STYLE: &str = include_str!("bridge.css");

/// `GET /bridge`. There is no `Cross-Origin-Opener-Policy`: it would part the window from its opener.
pub fn page(request: &HeaderMap) -> Response<Body> {
    let language = Language::of(request);
    let headers = [
        (header::CONTENT_LANGUAGE, language.tag()),
        (header::VARY, "Accept-Language"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    answer(StatusCode::OK, html(language), &headers)
}

/// `GET /bridge.js`.
pub fn script(request: &HeaderMap) -> Response<Body> {
    asset(request, "text/javascript; charset=utf-8", SCRIPT)
}

/// `GET /bridge.css`.
pub fn style(request: &HeaderMap) -> Response<Body> {
    asset(request, "text/css; charset=utf-8", STYLE)
}

fn html(language: Language) -> Markup {
    let words = BridgeWords::of(language);
    html! {
        (DOCTYPE)
        html lang=(language.tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Hoop" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/bridge.css";
                script type="module" src="/bridge.js" {}
            }
            body data-version=(env!("CARGO_PKG_VERSION"))
                data-site=(words.site) data-waiting=(words.waiting) data-working=(words.working)
                data-retrying=(words.retrying) data-idle=(words.idle) data-left=(words.left)
                data-done=(words.done) data-failed=(words.failed) data-stopped=(words.stopped)
                data-keep=(words.keep) data-alone=(words.alone) data-orphan=(words.orphan)
                data-stop=(words.stop) data-close=(words.close) {
                main {
                    h1 { (words.title) }
                    p #site hidden {}
                    p #what { (words.what) }
                    progress #progress aria-labelledby="amount" hidden {}
                    p #amount hidden {}
                    p #status role="status" hidden {}
                    p #hint hidden {}
                    noscript { p.why { (words.no_script) } }
                    button #stop type="button" hidden {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_neither_script_nor_style_within() {
        for language in Language::ALL {
            let page = html(language).into_string();
            assert!(page.contains("<script type=\"module\" src=\"/bridge.js\"></script>"), "{page}");
            assert!(
                page.matches("<script").count() == 1 && !page.contains("<style") && !page.contains(" style="),
                "{page}"
            );
        }
    }
}
