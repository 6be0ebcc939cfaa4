//! Whom a request came from, by what web servers in front wrote: [`Forwarded`].

use crate::Prefix;
use alloc::borrow::ToOwned as _;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// Of a chain so many are read and passed on, the last: far more than there are servers in front. A client may write
/// tens of thousands before them, which would be kept with its request.
pub const FORWARDED_MAX: usize = 32;

/// The addresses that forwarding fields name, the farthest first, as they were written. At most [`FORWARDED_MAX`],
/// the last. A text with anything but visible ASCII is `unknown`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Forwarded {
    /// What stands there, which may be made up as far as a client has written it.
    pub chain: Vec<String>,
}

impl Forwarded {
    /// Reads the lines of `X-Forwarded-For`, or those of `Forwarded` (RFC 7239) where there are none. A proxy writes
    /// one of the two and passes the other on from its client: a client's own `Forwarded` must not replace the
    /// proxy's word.
    pub fn new<'a>(
        x_forwarded_for: impl IntoIterator<Item = &'a [u8]>,
        forwarded: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let mut lines = x_forwarded_for.into_iter().peekable();
        let mut chain: Vec<String> = if lines.peek().is_some() {
            // What a client writes before what the proxy adds may be any bytes.
            lines
                .flat_map(|line| String::from_utf8_lossy(line).split(',').map(str::to_owned).collect::<Vec<_>>())
                .collect()
        } else {
            forwarded.into_iter().flat_map(|line| forwarded_for(&String::from_utf8_lossy(line))).collect()
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let name = |text: &str| if is_plain(text) { text.to_owned() } else { "unknown".to_owned() };
        let last = chain.split_off(chain.len().saturating_sub(FORWARDED_MAX));
        Self { chain: last.iter().map(|text| name(text.trim())).collect() }
    }

    /// The client: the right-most address that is none of `trusted`, the operator's own servers, which write last. A
    /// text that is no address ends the search, since what stands left of it may be made up.
    pub fn client(&self, trusted: &[Prefix]) -> Option<IpAddr> {
        let mut addresses = self.chain.iter().rev().map_while(|text| address(text));
        addresses.find(|address| !trusted.iter().any(|prefix| prefix.contains(*address)))
    }
}

/// An address as proxies write them: with a port or without, IPv6 in brackets or without.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

/// The `for` of each element of a line of `Forwarded` (RFC 7239 §4), empty where an element has none. A line with an
/// unclosed quotation is one element that says nothing: otherwise a client could hide in it what the proxy has added.
fn forwarded_for(line: &str) -> Vec<String> {
    let Some(elements) = outside_quotes(line, ',') else { return alloc::vec!["unknown".to_string()] };
    let node = |element: &str| {
        let pairs = outside_quotes(element, ';').unwrap_or_default();
        let mut nodes = pairs.iter().filter_map(|pair| pair.split_once('='));
        let node = nodes.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
        node.map_or_else(String::new, |(_, node)| node.trim().trim_matches('"').to_owned())
    };
    elements.iter().map(|element| node(element)).collect()
}

/// The parts of a text between `separator`s that stand in no quoted string (RFC 9110 §5.6.4); none if one does not end.
fn outside_quotes(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if letter == separator && !quoted => {
                parts.push(&text[begin..at]);
                begin = at + letter.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    (!quoted).then_some(parts)
}
