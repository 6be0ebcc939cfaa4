//! The fixed tables: names and values of fields, and the parts of long values.
//!
//! Both only ever grow at their ends: what is written once is read the same for ever.

/// What has an index: RFC 9204 Appendix A (0 to 98), then ours.
#[rustfmt::skip]
const ENTRIES: [(&str, &str); 191] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
    // Ours, from 99 on: names whose values vary.
    ("sec-ch-ua", ""),
    ("content-range", ""),
    ("expires", ""),
    ("cache-status", ""),
    ("proxy-status", ""),
    // Requests of Chromium, Firefox, Safari and common programs.
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"),
    ("accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/jxl,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"),
    ("accept", "image/jxl,image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept", "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"),
    ("accept", "image/webp,image/avif,image/jxl,image/heic,image/heic-sequence,video/*;q=0.8,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"),
    ("accept", "text/css,*/*;q=0.1"),
    ("accept", "application/json"),
    ("accept", "application/json, text/plain, */*"),
    ("accept", "text/event-stream"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-encoding", "gzip, deflate"),
    ("accept-encoding", "deflate, gzip, br, zstd"),
    ("accept-encoding", "gzip"),
    ("accept-encoding", "identity"),
    ("accept-language", "en-US,en;q=0.9"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-language", "*"),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-mobile", "?1"),
    ("sec-ch-ua-platform", "\"Windows\""),
    ("sec-ch-ua-platform", "\"macOS\""),
    ("sec-ch-ua-platform", "\"Linux\""),
    ("sec-ch-ua-platform", "\"Android\""),
    ("sec-fetch-dest", "document"),
    ("sec-fetch-dest", "empty"),
    ("sec-fetch-dest", "image"),
    ("sec-fetch-dest", "script"),
    ("sec-fetch-dest", "style"),
    ("sec-fetch-dest", "font"),
    ("sec-fetch-dest", "iframe"),
    ("sec-fetch-dest", "video"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-mode", "no-cors"),
    ("sec-fetch-mode", "cors"),
    ("sec-fetch-mode", "same-origin"),
    ("sec-fetch-site", "same-origin"),
    ("sec-fetch-site", "same-site"),
    ("sec-fetch-site", "cross-site"),
    ("sec-fetch-site", "none"),
    ("sec-fetch-user", "?1"),
    ("dnt", "1"),
    ("sec-gpc", "1"),
    ("priority", "i"),
    ("priority", "u=0, i"),
    ("priority", "u=1, i"),
    ("priority", "u=2, i"),
    ("priority", "u=4, i"),
    ("priority", "u=5, i"),
    ("priority", "u=1"),
    ("priority", "u=2"),
    ("priority", "u=4"),
    ("priority", "u=6"),
    ("pragma", "no-cache"),
    ("te", "trailers"),
    ("x-requested-with", "XMLHttpRequest"),
    // Responses.
    (":status", "301"),
    (":status", "401"),
    (":status", "502"),
    ("via", "1.1 hoop"),
    ("server", "nginx"),
    ("server", "Apache"),
    ("server", "cloudflare"),
    ("cache-control", "public, max-age=31536000, immutable"),
    ("cache-control", "max-age=31536000"),
    ("cache-control", "no-store, no-cache, must-revalidate"),
    ("content-type", "text/html"),
    ("content-type", "text/html; charset=UTF-8"),
    ("content-type", "application/json; charset=utf-8"),
    ("content-type", "text/javascript"),
    ("content-type", "text/javascript; charset=utf-8"),
    ("content-type", "text/css; charset=utf-8"),
    ("content-type", "text/plain; charset=utf-8"),
    ("content-type", "text/event-stream"),
    ("content-type", "image/webp"),
    ("content-type", "image/avif"),
    ("content-type", "image/svg+xml"),
    ("content-type", "font/woff2"),
    ("content-type", "video/mp4"),
    ("content-type", "application/octet-stream"),
    ("vary", "Accept-Encoding"),
    ("access-control-allow-credentials", "true"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    ("strict-transport-security", "max-age=31536000; includeSubDomains"),
    ("alt-svc", "h3=\":443\"; ma=86400"),
    ("x-frame-options", "SAMEORIGIN"),
];

/// What a byte below 0x20 stands for in a value that is not Huffman-coded; nothing, if it is empty.
static PARTS: [&str; 32] = [
    "",
    "Mozilla/5.0 (",
    "Windows NT 10.0; Win64; x64",
    "Macintosh; Intel Mac OS X 10",
    "X11; Linux x86_64",
    "Linux; Android 1",
    "iPhone; CPU iPhone OS 1",
    ") AppleWebKit/537.36 (KHTML, like Gecko) ",
    ") AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1",
    "", // A tab is a tab.
    "",
    ".0.0.0 Safari/537.36",
    ".0.0.0 Mobile Safari/537.36",
    "",
    " Edg/1",
    "HeadlessChrome/1",
    "; rv:1",
    ".0) Gecko/20100101 Firefox/1",
    ") AppleWebKit/605.1.15 (KHTML, like Gecko) Version/",
    " like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/",
    " Safari/605.1.15",
    " Mobile/15E148 Safari/604.1",
    "\"Chromium\";v=\"1",
    "\"Google Chrome\";v=\"1",
    "\"Microsoft Edge\";v=\"1",
    "\"Not",
    "Brand\";v=\"",
    "\", ",
    "https://",
    "http://",
    "max-age=",
    "",
];

/// The places in [`ENTRIES`], sorted by name, value and place.
static SORTED: [u8; ENTRIES.len()] = sorted();

const fn sorted() -> [u8; ENTRIES.len()] {
    let mut places = [0; ENTRIES.len()];
    let mut len = 0;
    while len < ENTRIES.len() {
        let mut at = len;
        while at > 0 && is_less(ENTRIES[len], ENTRIES[places[at - 1] as usize]) {
            places[at] = places[at - 1];
            at -= 1;
        }
        places[at] = len as u8;
        len += 1;
    }
    places
}

const fn is_less(a: (&str, &str), b: (&str, &str)) -> bool {
    match compare(a.0.as_bytes(), b.0.as_bytes()) {
        0 => compare(a.1.as_bytes(), b.1.as_bytes()) < 0,
        order => order < 0,
    }
}

/// Below zero if `a` comes first, above if `b` does, and zero if they are equal.
const fn compare(a: &[u8], b: &[u8]) -> isize {
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at] != b[at] {
            return a[at] as isize - b[at] as isize;
        }
        at += 1;
    }
    a.len() as isize - b.len() as isize
}

/// Where a field is found in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Its name and value.
    Field(u64),
    /// Its name alone.
    Name(u64),
    /// Nothing of it.
    Nothing,
}

/// The name and value with that index.
pub fn entry(index: u64) -> Option<(&'static str, &'static str)> {
    usize::try_from(index).ok().and_then(|index| ENTRIES.get(index)).copied()
}

/// The lowest index of a field, or else of its name.
pub fn find(name: &[u8], value: &[u8]) -> Found {
    let start = SORTED.partition_point(|place| ENTRIES[usize::from(*place)].0.as_bytes() < name);
    let named = SORTED[start..].iter().take_while(|place| ENTRIES[usize::from(**place)].0.as_bytes() == name);
    let field = named.clone().find(|place| ENTRIES[usize::from(**place)].1.as_bytes() == value);
    match (field, named.min()) {
        (Some(place), _) => Found::Field(u64::from(*place)),
        (None, Some(place)) => Found::Name(u64::from(*place)),
        (None, None) => Found::Nothing,
    }
}

/// The part of a value that a byte stands for.
pub fn part(byte: u8) -> Option<&'static str> {
    PARTS.get(usize::from(byte)).copied().filter(|part| !part.is_empty())
}

/// The longest part that `value` begins with, and the byte for it.
pub fn longest_part(value: &[u8]) -> Option<(u8, &'static str)> {
    let parts = (0..).zip(&PARTS).filter(|(_, part)| !part.is_empty() && value.starts_with(part.as_bytes()));
    parts.max_by_key(|(_, part)| part.len()).map(|(byte, part)| (byte, *part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    #[test]
    fn every_entry_is_found_by_its_lowest_index() {
        for (index, (name, value)) in (0..).zip(ENTRIES) {
            assert_eq!(find(name.as_bytes(), value.as_bytes()), Found::Field(index), "{name}: {value}");
            let lowest = ENTRIES.iter().position(|entry| entry.0 == name).unwrap() as u64;
            assert_eq!(find(name.as_bytes(), b"no value of the table"), Found::Name(lowest));
        }
        assert_eq!(find(b"no-name-of-the-table", b""), Found::Nothing);
        assert_eq!(entry(ENTRIES.len() as u64), None);
    }

    #[test]
    fn the_document_has_both_tables() {
        let document = include_str!("../../../docs/head.md");
        let entries = (0..).zip(ENTRIES).skip(99).map(|(index, (name, value))| {
            let value = if value.is_empty() { String::new() } else { format!("`{value}`") };
            format!("| {index} | `{name}` | {value} |")
        });
        let parts = (0..=u8::MAX).filter_map(|byte| part(byte).map(|part| format!("| {byte:#04x} | `{part:?}` |")));
        for row in entries.chain(parts) {
            assert!(document.lines().any(|line| line == row), "docs/head.md lacks {row}");
        }
    }

    #[test]
    fn an_index_takes_two_bytes_at_most() {
        // A prefix of six bits holds 63 values, and one byte more holds 128 (RFC 7541 §5.1).
        assert!(ENTRIES.len() <= 63 + 128);
    }
}
