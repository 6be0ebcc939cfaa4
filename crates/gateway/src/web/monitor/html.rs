//! The frame of a page, and the small parts that pages share.

use super::words::Lang;
use hoop_http::page::text;
use hoop_http::{Body, empty, full};
use hoop_units::UnixTime;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use qrcodegen::{QrCode, QrCodeEcc};
use serde::Serialize;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("../../../../../web/dist/monitor.js");

/// A ring, which is what a hoop is.
const LOGO: &str = "<svg viewBox='0 0 24 24' aria-hidden=true><circle cx=12 cy=12 r=9 /></svg>";

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
pub fn page(lang: Lang, live: &Live, events: Option<&str>, rest: &str) -> String {
    let Live { title, html, .. } = live;
    let (tag, title) = (lang.tag(), text(title));
    let events = events.map(|events| format!(" data-events=\"{}\"", text(events))).unwrap_or_default();
    // Whoever has the script needs no reload.
    let refresh = match events.is_empty() {
        true => String::new(),
        false => format!("<noscript><meta http-equiv=refresh content={REFRESH_SECS}></noscript>"),
    };
    format!(
        "<!doctype html>\n<html lang={tag}>\n<head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\"><meta name=color-scheme content=\"light dark\">\
         {refresh}<title>{title}</title><link rel=icon href=\"data:,\"><link rel=stylesheet href=/monitor.css>\
         <script type=module src=/monitor.js></script></head>\n\
         <body><header><a href=/>{LOGO}Hoop</a></header>\n<main{events}>{html}</main>\n{rest}\
         <p id=said class=unseen role=status></p></body>\n</html>\n"
    )
}

/// The answer that carries a page.
pub fn answer(status: StatusCode, page: String) -> Response<Body> {
    let mut response = Response::new(full(page));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Language"));
    // Style and script are our own files, nothing comes from elsewhere, and nobody may frame the page.
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                  form-action 'none'; frame-ancestors 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// `/monitor.js`.
pub fn script(headers: &HeaderMap) -> Response<Body> {
    asset(headers, "text/javascript; charset=utf-8", SCRIPT)
}

/// `/monitor.css`.
pub fn style(headers: &HeaderMap) -> Response<Body> {
    asset(headers, "text/css; charset=utf-8", STYLE)
}

/// A file of ours. A browser may keep it, and asks each time whether it is still the same.
pub fn asset(headers: &HeaderMap, kind: &'static str, text: &'static str) -> Response<Body> {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let known = known.is_some_and(|known| known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag));
    let mut response = Response::new(if known { empty() } else { full(text) });
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("hexadecimal digits in quotes"));
    response
}

/// A ring that is full to so many of a hundred, with `middle` in it. `label` names it to those who do not see it.
pub fn ring(percent: Option<u64>, middle: &str, label: &str) -> String {
    let (role, full) = match percent {
        Some(percent) => {
            let label = text(label);
            let value = format!("aria-valuenow={percent} aria-valuemin=0 aria-valuemax=100");
            (format!("role=progressbar aria-label=\"{label}\" {value}"), percent)
        }
        None => ("aria-hidden=true".to_owned(), 100),
    };
    // Round ends would make a dot of nothing.
    let arc = if full == 0 {
        String::new()
    } else {
        format!("<circle class=arc cx=60 cy=60 r=52 pathLength=100 stroke-dasharray=\"{full} 100\" />")
    };
    format!(
        "<div class=ring {role}><svg viewBox='0 0 120 120' aria-hidden=true><circle class=track cx=60 cy=60 r=52 />{arc}</svg>\
         <span aria-hidden=true>{middle}</span></div>"
    )
}

/// A link to a page, to be copied or scanned.
pub fn share(lang: Lang, place: &Place, path: &str) -> String {
    let url = format!("{}{path}", place.base);
    let title = lang.text("Follow it on another device", "Suivre sur un autre appareil");
    let reach = match place.everywhere {
        true => lang.text("This link works from anywhere.", "Ce lien fonctionne de partout."),
        false => lang.text("This link works in this network only.", "Ce lien ne fonctionne que dans ce réseau."),
    };
    let (copy, copied) = (lang.text("Copy", "Copier"), lang.text("Copied", "Copié"));
    let (send, link) = (lang.text("Share", "Partager"), lang.text("Link to this page", "Lien vers cette page"));
    let note =
        lang.text("Whoever has it sees this page, and nothing more.", "Qui l’a voit cette page, et rien de plus.");
    let code = qr(&url, lang.text("QR code of the link", "Code QR du lien")).unwrap_or_default();
    let url = text(&url);
    format!(
        "<section class=share><div><h2>{title}</h2><p>{reach} {note}</p><div class=link>\
         <input readonly value=\"{url}\" aria-label=\"{link}\">\
         <button id=copy hidden data-done=\"{copied}\">{copy}</button><button id=share hidden>{send}</button></div></div>{code}</section>\n"
    )
}

/// A QR code as SVG, dark on light with the quiet zone that scanners need, in every colour scheme. `None` if it is too
/// long for one.
fn qr(url: &str, label: &str) -> Option<String> {
    const QUIET: i32 = 4;
    let code = QrCode::encode_text(url, QrCodeEcc::Medium).ok()?;
    let (size, side) = (code.size(), code.size() + 2 * QUIET);
    let mut path = String::new();
    for y in 0..size {
        for x in (0..size).filter(|x| code.get_module(*x, y)) {
            let _ = write!(path, "M{} {}h1v1h-1z", x + QUIET, y + QUIET);
        }
    }
    Some(format!(
        "<svg class=qr viewBox='0 0 {side} {side}' role=img aria-label=\"{}\" shape-rendering=crispEdges>\
         <path fill=#fff d='M0 0h{side}v{side}H0z' /><path fill=#000 d='{path}' /></svg>",
        text(label)
    ))
}

/// A time in the past or future, in words.
pub fn time(at: u32, words: &str) -> String {
    format!("<time datetime={}>{words}</time>", UnixTime(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_no_qr_code_holds_has_none() {
        assert!(qr("http://192.168.1.1:4667/monitor?ID=x", "a").is_some());
        assert!(qr(&"x".repeat(4_000), "a").is_none());
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = script(&HeaderMap::new());
        let tag = first.headers()[header::ETAG].clone();
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, tag);
        assert_eq!((first.status(), script(&headers).status()), (StatusCode::OK, StatusCode::NOT_MODIFIED));
        assert_eq!(style(&headers).status(), StatusCode::OK, "another file has another tag");
    }
}
