//! What an application's page says: attributes of its elements, members of its JSON, and cookies.
//!
//! A page may be a stranger's text, so each of these reads it once from its begin to its end.

use bytes::Bytes;
use serde_json::Value;

/// A page that the application gave.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its bytes.
    pub body: Bytes,
    /// Whether it says that it is HTML: a browser shows no form in anything else.
    pub is_html: bool,
}

impl Page {
    /// A page with this `Content-Type`.
    pub fn new(content_type: &str, body: Bytes) -> Self {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        let is_html = ["text/html", "application/xhtml+xml"].iter().any(|html| media.eq_ignore_ascii_case(html));
        Self { body, is_html }
    }
}

/// The longest JSON that is read, in bytes: as values in memory it takes some seventy times as much.
const JSON_MAX: usize = 64 * 1024;

/// The longest reference that is read, from `&` to `;`, in bytes.
const REFERENCE_MAX: usize = 9;

/// The text that a pointer leads to, in JSON of at most [`JSON_MAX`] bytes.
pub fn of_json(body: &[u8], pointer: &str) -> Option<String> {
    let body = Some(body).filter(|body| body.len() <= JSON_MAX)?;
    let document: Value = serde_json::from_slice(body).ok()?;
    document.pointer(pointer)?.as_str().map(str::to_owned)
}

/// The attribute `wanted` of the first element of that tag that has this name.
pub fn attribute(body: &[u8], tag: &str, name: &str, wanted: &str) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let mut rest = &*text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let is_tag = rest.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
        let ends = rest.as_bytes().get(tag.len()).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b'/');
        if is_tag && ends {
            let (named, found);
            ([named, found], rest) = attributes(&rest[tag.len()..], ["name", wanted]);
            if named.is_some_and(|value| unescaped(value) == name) {
                return found.map(unescaped);
            }
        }
    }
    None
}

/// The values of the attributes `wanted` up to the end of a tag, of each its first, and what follows what was read. A quote that nothing closes holds all of the rest.
fn attributes<'a>(text: &'a str, wanted: [&str; 2]) -> ([Option<&'a str>; 2], &'a str) {
    let mut found = [None; 2];
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|letter: char| letter.is_ascii_whitespace() || letter == '/');
        let end = rest.find(|letter: char| letter.is_ascii_whitespace() || matches!(letter, '=' | '>' | '/'));
        let Some(end) = end.filter(|end| *end > 0) else { return (found, rest) };
        let (name, after) = rest.split_at(end);
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('=').map(str::trim_start) {
            None => ("", after),
            Some(value) => match value.chars().next().filter(|letter| matches!(letter, '"' | '\'')) {
                Some(quote) => match value[1..].split_once(quote) {
                    Some(two) => two,
                    None => return (found, ""),
                },
                None => {
                    let end = value.find(|letter: char| letter.is_ascii_whitespace() || letter == '>');
                    value.split_at(end.unwrap_or(value.len()))
                }
            },
        };
        for (wanted, found) in wanted.iter().zip(&mut found) {
            if name.eq_ignore_ascii_case(wanted) {
                found.get_or_insert(value);
            }
        }
        rest = after;
    }
}

/// A text without the references that occur in tokens.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(REFERENCE_MAX).position(|byte| byte == b';');
        let reference = end.map(|end| (&rest[1..end], end + 1));
        match reference.and_then(|(name, len)| Some((letter(name)?, len))) {
            Some((letter, len)) => {
                out.push(letter);
                rest = &rest[len..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

fn letter(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "lt" => Some('<'),
        "gt" => Some('>'),
        _ => {
            let number = name.strip_prefix('#')?;
            let number = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(number)
        }
    }
}

/// The value of a cookie, with percent-encoding taken off.
pub fn cookie(cookies: &str, name: &str) -> Option<String> {
    let value = cookies.split(';').find_map(|pair| pair.trim().split_once('=').filter(|(own, _)| *own == name))?.1;
    // A form's way of writing has `+` for a space, which no cookie has.
    let pair = format!("v={}", value.trim_matches('"').replace('+', "%2B"));
    url::form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned())
}

/// `Cookie` with what a `Set-Cookie` sets: a page's token belongs to the cookies that come with it.
pub fn with_cookie(cookies: &str, set: &str) -> String {
    let pair = set.split(';').next().unwrap_or_default().trim();
    let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return cookies.to_owned();
    };
    if !pair.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b',') {
        return cookies.to_owned();
    }
    let others = cookies.split(';').map(str::trim).filter(|other| !other.is_empty());
    let mut kept: Vec<&str> = others.filter(|other| other.split('=').next() != Some(name)).collect();
    if !value.is_empty() {
        kept.push(pair);
    }
    kept.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_the_elements_of_applications() {
        let of = |body: &str, tag, name, wanted| attribute(body.as_bytes(), tag, name, wanted);
        let django = r#"<p>5 < 6<input type="hidden" name="csrfmiddlewaretoken" value="aB3">"#;
        assert_eq!(of(django, "input", "csrfmiddlewaretoken", "value").as_deref(), Some("aB3"));
        let rails = "<META content='a&amp;b==' NAME=\"csrf-token\" />";
        assert_eq!(of(rails, "meta", "csrf-token", "content").as_deref(), Some("a&b=="));
        let mediawiki = "<input id=\"wpEditToken\" type=\"hidden\" value=\"7d+\\\" name=\"wpEditToken\"/>";
        assert_eq!(of(mediawiki, "input", "wpEditToken", "value").as_deref(), Some("7d+\\"));
        assert_eq!(of("<input disabled name=t value=x&#43;>", "input", "t", "value").as_deref(), Some("x+"));
        for other in
            ["<inputs name=t value=x>", "<input name=t2 value=x>", "<input name=\"t", "<input name=t>", "<", ""]
        {
            assert_eq!(of(other, "input", "t", "value"), None, "{other}");
        }
    }

    /// Shapes that had each `<` or `&` read all that follows it: a megabyte of them took minutes.
    #[test]
    fn a_hostile_page_is_read_once() {
        let shapes =
            ["<", "<meta ", "<meta a=", "<meta a=\"", "<meta a='\"", "<meta name=x a", "a='<meta b=\" ", "&", "&#"];
        let whole = ["<meta name=\"x\" content=\"", "<meta name='", ""];
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for (shape, begin) in shapes.iter().flat_map(|shape| whole.map(|begin| (shape, begin))) {
                let page = [begin, &shape.repeat((1 << 20) / shape.len()), "\" x='' y=\"\" name=z content=z>"].concat();
                let found = attribute(page.as_bytes(), "meta", "t", "content");
                tell.send((*shape, begin, found)).unwrap();
            }
        });
        for _ in 0..shapes.len() * whole.len() {
            let (shape, begin, found) = told.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends");
            assert_eq!(found, None, "{begin}{shape}…");
        }
    }

    #[test]
    fn only_html_is_html() {
        let is_html = |content_type| Page::new(content_type, Bytes::new()).is_html;
        assert!(is_html("text/html") && is_html("Text/HTML; charset=utf-8") && is_html("application/xhtml+xml"));
        assert!(!["", "text/plain", "text/htmlx", "application/json", "x; text/html"].map(is_html).contains(&true));
    }

    #[test]
    fn long_json_is_not_read() {
        let json = |len: usize| format!("{{\"t\":\"abc\",\"x\":\"{}\"}}", "x".repeat(len)).into_bytes();
        assert_eq!(of_json(&json(JSON_MAX - 100), "/t").as_deref(), Some("abc"));
        assert_eq!(of_json(&json(JSON_MAX), "/t"), None);
    }

    #[test]
    fn a_set_cookie_replaces_the_old_one() {
        let cookies = "session=1; XSRF-TOKEN=eyJ%3D+; theme=dark";
        assert_eq!(cookie(cookies, "XSRF-TOKEN").as_deref(), Some("eyJ=+"));
        assert_eq!(cookie(cookies, "XSRF"), None);
        assert_eq!(with_cookie(cookies, "session=2; Path=/; HttpOnly"), "XSRF-TOKEN=eyJ%3D+; theme=dark; session=2");
        assert_eq!(with_cookie("a=1", "a=; Max-Age=0"), "");
        for odd in ["", "x", "=1", "a=b\r\nX: y", "a=b c"] {
            assert_eq!(with_cookie("k=1", odd), "k=1", "{odd}");
        }
    }
}
