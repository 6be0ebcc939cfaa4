//! Names that a program leaves to the relay: [`RemoteNames`].
//!
//! A program looks a name up, and then connects to an address. With `hoop run --remote-dns` the library in the program (`crates/hoop/preload/preload.c`) asks here instead of a
//! name server, and gets an address that stands for the name. If the program connects to that address, the relay gets the name, and looks it up.

use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The longest name of a host, in bytes: as much as a flow's service has room for. The DNS has room for 253.
const NAME_MAX: usize = 241;

/// Where the addresses begin that stand for names: 198.18.0.0/15 is for benchmarks (RFC 2544, appendix C.2.2), so that no host of the internet has one.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// How many addresses there are.
const COUNT: u32 = 1 << 17;

/// Names that are known at once, some 5 MB at most: more than programs ask for between two connections. Those go first that were asked for once, and long ago. An address is given away again only after
/// all others.
const KEPT: usize = 16_384;

/// Whether this is a host's name: letters, digits, hyphens, underscores and dots, of 241 bytes at most. Names in other letters come in their ASCII form (RFC 5891 §4.4).
pub fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| !label.is_empty() && label.len() <= 63;
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let labels = name.strip_suffix('.').unwrap_or(name);
    let is_name = labels.len() <= NAME_MAX && labels.split('.').all(is_label) && name.bytes().all(is_of_name);
    // Some resolvers take `10.1`, `0x7f.1` and `2130706433` for addresses (inet_aton): the relay's rules are for what was written.
    let last = labels.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") || last.starts_with("0X");
    is_name && !is_number
}

#[derive(Debug)]
struct Name {
    text: Arc<str>,
    /// It was asked for again since it was last spared.
    is_wanted: bool,
}

#[derive(Debug, Default)]
struct Known {
    names: HashMap<u32, Name>,
    numbers: HashMap<Arc<str>, u32>,
    /// In the order in which they were first asked for, or spared.
    order: VecDeque<u32>,
    /// The last number that was given away.
    last: u32,
}

/// Addresses that stand for names.
#[derive(Debug, Default)]
pub(crate) struct RemoteNames(Mutex<Known>);

impl Known {
    /// Forgets the oldest that was not asked for again. Each is spared once for that.
    fn forget(&mut self) {
        while let Some(oldest) = self.order.pop_front() {
            let is_spared = self.names.get_mut(&oldest).is_some_and(|name| std::mem::take(&mut name.is_wanted));
            if is_spared {
                self.order.push_back(oldest);
                continue;
            }
            if let Some(name) = self.names.remove(&oldest) {
                self.numbers.remove(&name.text);
            }
            return;
        }
    }
}

impl RemoteNames {
    /// The address that stands for a name. None: it is no [host's name](is_host_name).
    pub(crate) fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        if !is_host_name(name) {
            return None;
        }
        let name: Arc<str> = name.to_ascii_lowercase().into();
        let known = &mut *self.0.lock();
        if let Some(number) = known.numbers.get(&name).copied() {
            known.names.entry(number).and_modify(|name| name.is_wanted = true);
            return Some((FIRST + number).into());
        }
        if known.order.len() == KEPT {
            known.forget();
        }
        // The first address of a network and its last are no host's.
        let next = |number| number % (COUNT - 2) + 1;
        let mut number = next(known.last);
        while known.names.contains_key(&number) {
            number = next(number);
        }
        known.last = number;
        known.order.push_back(number);
        known.names.insert(number, Name { text: name.clone(), is_wanted: false });
        known.numbers.insert(name, number);
        Some((FIRST + number).into())
    }

    /// `HOST:PORT` with the name that its address stands for, or as it is.
    pub(crate) fn destination<'a>(&self, destination: &'a str) -> Cow<'a, str> {
        let Ok(address) = destination.parse::<SocketAddr>() else { return destination.into() };
        let IpAddr::V4(ip) = address.ip().to_canonical() else { return destination.into() };
        let number = u32::from(ip).wrapping_sub(FIRST);
        match self.0.lock().names.get(&number) {
            Some(name) => format!("{}:{}", name.text, address.port()).into(),
            None => destination.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stands_for_one_name_however_it_is_written() {
        let names = RemoteNames::default();
        let address = names.address_of("Web.example").unwrap();
        assert_eq!(names.address_of("web.EXAMPLE"), Some(address));
        assert_ne!(names.address_of("other.example"), Some(address));
        assert_eq!(address, Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(names.destination("198.18.0.1:80"), "web.example:80");
        assert_eq!(names.destination("[::ffff:198.18.0.1]:443"), "web.example:443");
        for other in ["198.18.0.9:80", "10.9.1.1:80", "[2001:db8::1]:80", "web.example:80"] {
            assert_eq!(names.destination(other), other);
        }
        for wrong in ["", "a b.example", "a:1", "10.1", "2130706433", "caf\u{e9}.example", "a..b"] {
            assert_eq!(names.address_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_oldest_name_is_forgotten_and_its_address_is_nobodys_for_long() {
        let names = RemoteNames::default();
        let first = names.address_of("first.example").unwrap();
        let mut seen = std::collections::HashSet::from([first]);
        for count in 0..COUNT - 3 {
            let address = names.address_of(&format!("{count}.example")).unwrap();
            assert!(seen.insert(address), "{address} for the {count}th");
        }
        let old = format!("{first}:80");
        assert_eq!(names.destination(&old), old);
        assert_eq!(names.address_of("next.example"), Some(first), "after all others");
        let known = names.0.lock();
        assert_eq!((known.names.len(), known.numbers.len(), known.order.len()), (KEPT, KEPT, KEPT));
    }

    #[test]
    fn a_name_that_is_asked_for_again_is_kept_while_others_come() {
        let names = RemoteNames::default();
        let wanted = names.address_of("wanted.example").unwrap();
        for count in 0..2 * COUNT {
            assert_ne!(names.address_of(&format!("{count}.example")), Some(wanted), "the {count}th");
            if count % 1_000 == 0 {
                assert_eq!(names.address_of("wanted.example"), Some(wanted), "after {count}");
            }
        }
        assert_eq!(names.destination(&format!("{wanted}:80")), "wanted.example:80");
    }
}
