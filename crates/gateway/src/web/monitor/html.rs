//! The frame of a page, and the small parts that pages share.

use hoop_http::Body;
use hoop_pages::words::MonitorWords;
use hoop_pages::{Language, asset, shown};
use hoop_units::UnixTime;
use http::{HeaderMap, Response, StatusCode, header};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use qrcodegen::{QrCode, QrCodeEcc};
use serde::Serialize;
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("../../../../../web/dist/monitor.js");

/// Style and script are our own files, nothing comes from elsewhere, and nobody may frame the page.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'";

/// Seconds between two loads of a page whose reader has no script.
const REFRESH_SECS: u32 = 5;

/// What of a page changes while it is open; also what its script is sent.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Live {
    /// The window's title.
    pub title: String,
    /// What is read aloud when it changes.
    pub said: String,
    /// The contents of `main`.
    pub html: String,
}

/// Where a page is reached, for links to it.
#[derive(Clone, Debug)]
pub struct Place {
    /// Without a slash at the end.
    pub base: String,
    /// Whether it works outside the gateway's network.
    pub everywhere: bool,
}

/// A whole page: what changes, where its events come from (`None`: nothing will change), and what stays.
pub fn page(lang: Language, live: &Live, events: Option<&str>, rest: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang=(lang.tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Whoever has the script needs no reload.
                @if events.is_some() { noscript { meta http-equiv="refresh" content=(REFRESH_SECS); } }
                title { (live.title) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/monitor.css";
                script type="module" src="/monitor.js" {}
            }
            body {
                // A ring, which is what a hoop is.
                header { a href="/" { svg viewBox="0 0 24 24" aria-hidden="true" { circle cx="12" cy="12" r="9" {} } "Hoop" } }
                main data-events=[events] { (PreEscaped(&live.html)) }
                (rest)
                p #said.unseen role="status" {}
            }
        }
    }
}

/// The answer that carries a page.
pub fn answer(status: StatusCode, page: Markup) -> Response<Body> {
    let headers = [
        (header::VARY, "Accept, Accept-Language"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    hoop_pages::answer(status, page, &headers)
}

/// `/monitor.js`.
pub fn script(headers: &HeaderMap) -> Response<Body> {
    asset(headers, "text/javascript; charset=utf-8", SCRIPT)
}

/// `/monitor.css`.
pub fn style(headers: &HeaderMap) -> Response<Body> {
    asset(headers, "text/css; charset=utf-8", STYLE)
}

/// A ring that is full to so many of a hundred, with `middle` in it. `label` names it to those who do not see it.
pub fn ring(percent: Option<u64>, middle: &Markup, label: &str) -> Markup {
    let full = percent.unwrap_or(100);
    let known = percent.is_some();
    html! {
        div.ring role=[known.then_some("progressbar")] aria-label=[known.then_some(label)] aria-valuenow=[percent]
            aria-valuemin=[known.then_some(0)] aria-valuemax=[known.then_some(100)] aria-hidden=[(!known).then_some("true")] {
            svg viewBox="0 0 120 120" aria-hidden="true" {
                circle.track cx="60" cy="60" r="52" {}
                // Round ends would make a dot of nothing.
                @if full > 0 {
                    circle.arc cx="60" cy="60" r="52" pathLength="100" stroke-dasharray={ (full) " 100" } {}
                }
            }
            span aria-hidden="true" { (middle) }
        }
    }
}

/// A link to a page, to be copied or scanned.
pub fn share(lang: Language, place: &Place, path: &str) -> Markup {
    let words = MonitorWords::of(lang);
    let url = format!("{}{path}", place.base);
    let reach = match place.everywhere {
        true => words.reach_everywhere,
        false => words.reach_here,
    };
    let note = words.link_shows;
    html! {
        section.share {
            div {
                h2 { (words.follow) }
                p { (reach) " " (note) }
                div.link {
                    input readonly value=(shown(&url)) aria-label=(words.link);
                    button #copy hidden data-done=(words.copied) { (words.copy) }
                    button #share hidden { (words.share) }
                }
            }
            @if let Some(code) = qr(&url, words.qr_code) { (code) }
        }
    }
}

/// A QR code as SVG, dark on light with the quiet zone that scanners need, in every colour scheme. `None` if it is too
/// long for one.
fn qr(url: &str, label: &str) -> Option<Markup> {
    const QUIET: i32 = 4;
    let code = QrCode::encode_text(url, QrCodeEcc::Medium).ok()?;
    let (size, side) = (code.size(), code.size() + 2 * QUIET);
    let mut path = String::new();
    for y in 0..size {
        for x in (0..size).filter(|x| code.get_module(*x, y)) {
            let _ = write!(path, "M{} {}h1v1h-1z", x + QUIET, y + QUIET);
        }
    }
    Some(html! {
        svg.qr viewBox={ "0 0 " (side) " " (side) } role="img" aria-label=(label) shape-rendering="crispEdges" {
            path fill="#fff" d={ "M0 0h" (side) "v" (side) "H0z" } {}
            path fill="#000" d=(path) {}
        }
    })
}

/// A time in the past or future, in words.
pub fn time(at: u32, words: &str) -> Markup {
    html! { time datetime=(UnixTime(at)) { (words) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_no_qr_code_holds_has_none() {
        assert!(qr("http://192.168.1.1:4667/monitor?ID=x", "a").is_some());
        assert!(qr(&"x".repeat(4_000), "a").is_none());
    }
}
