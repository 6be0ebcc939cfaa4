//! How many bytes, as people write it: [`Size`].

use alloc::format;
use alloc::string::String;
use core::str::FromStr;

/// A number of bytes: `1500`, `64K`, `512M`, `10G`, `1T`, in powers of 1,024.
///
/// ```
/// use hoop_units::Size;
/// assert_eq!("64KiB".parse(), Ok(Size(65_536)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("expected a number of bytes such as 1500, 64K, 512M or 10G, not `{text}`");
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KIB" => 10,
            "M" | "MIB" => 20,
            "G" | "GIB" => 30,
            "T" | "TIB" => 40,
            _ => return Err(error()),
        };
        let number: u64 = digits.parse().map_err(|_| error())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(error)
    }
}
