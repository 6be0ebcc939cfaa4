//! Values of flags and of configuration files: sizes, durations, rates, addresses by hand.

use crate::base::exit::Failure;
use hoop_units::{Bitrate, NoPrefix, Prefix};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, as [`hoop_units::Size`] reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(|hoop_units::Size(bytes)| Self(bytes))
    }
}

/// Less than the least record holds nothing at all: somebody forgot the G.
const ROOM_MIN: u64 = 4 << 10;

/// The bytes on disk that a flag of that name allows, if it was typed.
///
/// # Errors
/// If nothing has room in them.
pub fn room(name: &str, size: Option<Size>) -> Result<Option<u64>, Failure> {
    match size.map(|size| size.0) {
        Some(bytes @ 0..ROOM_MIN) => {
            let failure = Failure::usage(format!("{name} is {bytes} bytes, which is too little"));
            Err(if bytes == 0 { failure } else { failure.hint(format!("write {bytes}G for gibibytes")) })
        }
        bytes => Ok(bytes),
    }
}

/// `9.6 MB`: in powers of 1,000, as networks count.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A time span: `30` and `30s`, `5m`, `12h`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected a time such as 30s, 1.5s, 5m, 12h or 7d, not `{text}`");
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "" | "s" => 1.0,
            "ms" => 0.001,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(error()),
        };
        let number: f64 = digits.parse().map_err(|_| error())?;
        Duration::try_from_secs_f64(number * unit).map(Self).map_err(|_| error())
    }
}

/// A rate: `500kbit`, `1.15Mbit`, `1Gbit`, with or without `/s`; powers of 1,000.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub Bitrate);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected a rate of at least 10kbit, such as 500kbit, 1.15Mbit or 1Gbit, not `{text}`");
        let unit = text.strip_suffix("/s").unwrap_or(text);
        let digits = unit.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let scale = match unit[digits.len()..].to_ascii_lowercase().as_str() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(error()),
        };
        let number: f64 = digits.parse().map_err(|_| error())?;
        let bps = number * scale;
        // Below a modem's rate nothing is delivered before its ticket ends; above, no line.
        (1e4..=1e12).contains(&bps).then_some(Self(Bitrate::bps(bps as u64))).ok_or_else(error)
    }
}

/// An address or a network: `127.0.0.1`, `10.9.2.0/24`, `fd00::/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network(pub Prefix);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: NoPrefix| format!("{error}, not `{text}`"))
    }
}

/// An address given by hand, as for curl: `host:port:address[,address…]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolve {
    host: String,
    port: u16,
    addresses: Vec<IpAddr>,
}

impl FromStr for Resolve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected host:port:address, such as photos.example:443:127.0.0.1, not `{text}`");
        let mut parts = text.splitn(3, ':');
        let (Some(host), Some(port), Some(addresses)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(error());
        };
        let port = port.parse().map_err(|_| error())?;
        let address = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| error());
        let addresses = addresses.split(',').map(address).collect::<Result<_, _>>()?;
        Ok(Self { host: host.to_ascii_lowercase(), port, addresses })
    }
}

/// All addresses given by hand.
pub fn addresses(given: &[Resolve]) -> BTreeMap<(String, u16), Vec<IpAddr>> {
    let mut map = BTreeMap::<_, Vec<IpAddr>>::new();
    for Resolve { host, port, addresses } in given {
        map.entry((host.clone(), *port)).or_default().extend(addresses);
    }
    map
}

/// In a configuration file these are written as on the command line; a bare number is allowed too.
pub fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(deserializer: D) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Text {
        Text(String),
        Number(u64),
    }
    let text = match Text::deserialize(deserializer)? {
        Text::Text(text) => text,
        Text::Number(number) => number.to_string(),
    };
    text.parse().map_err(serde::de::Error::custom)
}

/// Has values of these types read by [`from_text`].
macro_rules! read_from_text {
    ($($value:ty),+) => {$(
        impl<'de> serde::Deserialize<'de> for $value {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::base::values::from_text(deserializer)
            }
        }
    )+};
}
pub(crate) use read_from_text;

read_from_text!(Size, Span, Rate, Network, Resolve);

/// An address of this machine alone.
///
/// # Errors
/// In words: it is none, or others get there.
pub fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().map_err(|_| "an address and a port, such as 127.0.0.1:8080")?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(hoop_http::metrics::NOT_LOOPBACK.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_have_units() {
        assert_eq!("1500".parse(), Ok(Size(1500)));
        assert_eq!("10G".parse(), Ok(Size(10 << 30)));
        assert_eq!("64KiB".parse(), Ok(Size(64 << 10)));
        assert_eq!("5m".parse(), Ok(Span(Duration::from_secs(300))));
        assert_eq!("1.5".parse(), Ok(Span(Duration::from_millis(1500))));
        for wrong in ["", "G", "-1", "1X", "99999999999T"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
        for wrong in ["", "m", "-1s", "1w", "nan", "inf"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_address_by_hand_may_be_of_either_family() {
        let given: Vec<Resolve> =
            ["Photos.example:443:127.0.0.1,[::1]", "photos.example:443:192.0.2.1"].map(|t| t.parse().unwrap()).into();
        let map = addresses(&given);
        assert_eq!(map[&("photos.example".to_owned(), 443)].len(), 3);
        for wrong in ["photos.example", "photos.example:443", "photos.example:x:127.0.0.1", "a:1:b"] {
            assert!(wrong.parse::<Resolve>().is_err(), "{wrong}");
        }
    }
}
