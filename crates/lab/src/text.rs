//! Quantities as people write them: `1.15 Mbit/s`, `10 ms`, `256 KiB`, `2 %`.
//!
//! A number, a blank or none, and a unit. There is no default unit: `30` alone is refused, and the error names the
//! form. Binary and decimal prefixes are what they say (`KiB` is 1024, `kB` is 1000).

use hoop_netem::{Probability, ProbabilityError};
use hoop_units::Bitrate;
use std::time::Duration;

/// The text is no quantity of the kind that was expected.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum QuantityError {
    /// It does not begin with a decimal number.
    #[error("`{text}` does not begin with a number; expected {expected}")]
    Number {
        /// The text as given.
        text: String,
        /// The form expected.
        expected: &'static str,
    },
    /// The unit is missing, or not one of these.
    #[error("`{text}` has no known unit; expected {expected}")]
    Unit {
        /// The text as given.
        text: String,
        /// The form expected.
        expected: &'static str,
    },
    /// More than can be counted.
    #[error("`{text}` is too much")]
    TooMuch {
        /// The text as given.
        text: String,
    },
    /// Not between 0 and 100 %.
    #[error(transparent)]
    Probability(#[from] ProbabilityError),
}

/// A rate: `1.15 Mbit/s`, `30Mbit`, `64 kbit/s`, `1 Gbit/s`, `9600 bit/s`.
///
/// # Errors
/// If the text is not of the form, or the rate does not fit in 64 bits.
pub fn parse_bitrate(text: &str) -> Result<Bitrate, QuantityError> {
    const EXPECTED: &str = "a rate such as `1.15 Mbit/s` (bit, kbit, Mbit or Gbit, with or without `/s`)";
    let scale = |unit: &str| match unit.strip_suffix("/s").unwrap_or(unit) {
        "bit" => Some(1.0),
        "kbit" => Some(1e3),
        "Mbit" => Some(1e6),
        "Gbit" => Some(1e9),
        _ => None,
    };
    quantity(text, EXPECTED, scale).map(Bitrate::bps)
}

/// A duration: `10 ms`, `1.5 s`, `200 us`, `2 min`, `1 h`; zero may stand without a unit.
///
/// # Errors
/// If the text is not of the form, or lies past 584 years.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    const EXPECTED: &str = "a duration such as `10 ms` (ns, us, ms, s, min or h)";
    let scale = |unit: &str| match unit {
        "ns" => Some(1.0),
        "us" | "µs" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        "min" => Some(60e9),
        "h" => Some(3_600e9),
        _ => None,
    };
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    quantity(text, EXPECTED, scale).map(Duration::from_nanos)
}

/// A number of bytes: `1500 B`, `64 kB`, `256 KiB`, `1 MiB`.
///
/// # Errors
/// If the text is not of the form, or does not fit into memory's addresses.
pub fn parse_bytes(text: &str) -> Result<usize, QuantityError> {
    const EXPECTED: &str = "a size such as `256 KiB` (B, kB, KiB, MB or MiB)";
    let scale = |unit: &str| match unit {
        "B" => Some(1.0),
        "kB" => Some(1e3),
        "KiB" => Some(1_024.0),
        "MB" => Some(1e6),
        "MiB" => Some(1_048_576.0),
        _ => None,
    };
    let bytes = quantity(text, EXPECTED, scale)?;
    usize::try_from(bytes).map_err(|_| QuantityError::TooMuch { text: text.to_owned() })
}

/// A share: `2 %`, `0.5%`.
///
/// # Errors
/// If the text is not of the form, or not between 0 and 100 %.
pub fn parse_percent(text: &str) -> Result<Probability, QuantityError> {
    const EXPECTED: &str = "a share such as `2 %`";
    let (number, unit) = split(text, EXPECTED)?;
    match unit {
        "%" => Ok(Probability::new(number / 100.0)?),
        _ => Err(QuantityError::Unit { text: text.to_owned(), expected: EXPECTED }),
    }
}

/// The number times the unit's scale, rounded to a whole.
fn quantity(text: &str, expected: &'static str, scale: impl Fn(&str) -> Option<f64>) -> Result<u64, QuantityError> {
    let (number, unit) = split(text, expected)?;
    let scale = scale(unit).ok_or_else(|| QuantityError::Unit { text: text.to_owned(), expected })?;
    let value = (number * scale).round();
    // Past 2^53 a float no longer counts in ones; nobody means such a rate or time.
    if value > (1u64 << 53) as f64 {
        return Err(QuantityError::TooMuch { text: text.to_owned() });
    }
    Ok(value as u64)
}

/// A decimal number without sign or exponent, and what stands after it.
fn split<'a>(text: &'a str, expected: &'static str) -> Result<(f64, &'a str), QuantityError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    match number.parse() {
        Ok(number) => Ok((number, unit.trim_start())),
        Err(_) => Err(QuantityError::Number { text: text.to_owned(), expected }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, bps) in [
            ("1.15 Mbit/s", 1_150_000),
            ("30Mbit", 30_000_000),
            (" 64 kbit/s ", 64_000),
            ("0.5 Gbit/s", 500_000_000),
            ("9600 bit/s", 9_600),
            ("0 bit/s", 0),
        ] {
            assert_eq!(parse_bitrate(text), Ok(Bitrate::bps(bps)), "{text}");
        }
    }

    #[test]
    fn a_rate_that_could_be_misread_is_refused() {
        // Bytes or bits? Milli or mega?
        for text in
            ["30", "30 MB/s", "30 mbit", "30 Mbps", "-1 Mbit", "1e3 bit", "Mbit/s", "", "1.2.3 Mbit", "9999999 Gbit/s"]
        {
            assert!(parse_bitrate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, micros) in
            [("10 ms", 10_000), ("1.5s", 1_500_000), ("200 us", 200), ("200 µs", 200), ("2 min", 120_000_000), ("0", 0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["10", "10 m", "ten ms", "-1 ms"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_shares_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("256 KiB"), Ok(262_144));
        assert_eq!(parse_bytes("64kB"), Ok(64_000));
        assert!(parse_bytes("64 kb").is_err());
        assert_eq!(parse_percent("2 %"), Ok(Probability::percent(2)));
        assert!(parse_percent("0.02").is_err());
        assert!(parse_percent("101 %").is_err());
    }

    #[test]
    fn an_error_says_what_was_expected() {
        let error = parse_bitrate("30 Mbps").unwrap_err().to_string();
        assert!(error.contains("`30 Mbps`") && error.contains("`1.15 Mbit/s`"), "{error}");
    }
}
