//! Words for people: sizes, rates, times.

pub use crate::base::values::bytes;
use hoop_units::{UnixTime, plain};

/// `11.2 MB/s`.
pub fn rate(count: u64, millis: u64) -> String {
    format!("{}/s", bytes(count.saturating_mul(1000) / millis.max(1)))
}

/// `0.9 s`, `3 min 20 s`.
pub fn millis(millis: u64) -> String {
    match millis {
        0..60_000 => format!("{:.1} s", millis as f64 / 1000.0),
        _ => format!("{} min {} s", millis / 60_000, millis / 1000 % 60),
    }
}

/// `2026-11-20 15:46:34Z`.
pub fn time(unix: u32) -> String {
    UnixTime(unix).to_string().replacen('T', " ", 1)
}

/// The beginning of a body in words, at most `limit` characters; control characters do nothing to a terminal.
pub fn beginning(body: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(body);
    let mut shown = String::new();
    for letter in text.chars().take(limit) {
        match letter {
            '\n' | '\t' => shown.push(letter),
            '\r' => {}
            letter => plain::push(&mut shown, letter),
        }
    }
    if text.chars().nth(limit).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_that_people_know() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(9_600_000), "9.6 MB");
        assert_eq!(bytes(999_999), "1.0 MB");
        assert_eq!(bytes(u64::MAX), "18446.7 PB");
        assert_eq!(rate(10_000_000, 800), "12.5 MB/s");
        assert_eq!(millis(940), "0.9 s");
        assert_eq!(millis(200_000), "3 min 20 s");
    }

    #[test]
    fn a_date_and_its_time_of_day_stand_apart() {
        assert_eq!(time(1_795_000_000), "2026-11-18 11:06:40Z");
    }

    #[test]
    fn an_answer_cannot_command_the_terminal() {
        assert_eq!(beginning(b"a\x1b[2Jb\r\nc\xff", 80), "a\\u001b[2Jb\nc\u{fffd}");
        assert_eq!(beginning("ääää".as_bytes(), 3), "äää…");
    }
}
