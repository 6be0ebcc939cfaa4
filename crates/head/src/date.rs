//! Dates of HTTP (IMF-fixdate, RFC 9110 §5.6.7) as seconds since 1970-01-01T00:00:00Z, and back.

const DAY: u32 = 24 * 60 * 60;

/// The first is the weekday of day 0.
const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// How a date is written: `Sun, 06 Nov 1994 08:49:37 GMT`.
const FORM: &[u8; LEN] = b"___, __ ___ ____ __:__:__ GMT";

/// How many bytes a date has.
pub const LEN: usize = 29;

/// The seconds of a date that is written as [`written`] writes it, the weekday included. None: it is another text, or after 2106.
pub fn seconds(text: &[u8]) -> Option<u32> {
    if text.len() != LEN || !text.ends_with(b" GMT") {
        return None;
    }
    let month = MONTHS.iter().position(|month| **month == text[8..11])?;
    let (day, year) = (number(&text[5..7])?, number(&text[12..16])?);
    let (hour, minute, second) = (number(&text[17..19])?, number(&text[20..22])?, number(&text[23..25])?);
    let days = days_before(year.checked_sub(1970)?, month).checked_add(day.checked_sub(1)?)?;
    let seconds = days.checked_mul(DAY)?.checked_add(hour * 3_600 + minute * 60 + second)?;
    (written(seconds)[..] == *text).then_some(seconds)
}

/// The date of a number of seconds.
pub fn written(seconds: u32) -> [u8; LEN] {
    let (days, time) = (seconds / DAY, seconds % DAY);
    let mut year = days / 366;
    while days_before(year + 1, 0) <= days {
        year += 1;
    }
    let month = (1..MONTHS.len()).take_while(|month| days_before(year, *month) <= days).count();
    let mut text = *FORM;
    text[..3].copy_from_slice(WEEKDAYS[(days % 7) as usize]);
    put(days - days_before(year, month) + 1, &mut text[5..7]);
    text[8..11].copy_from_slice(MONTHS[month]);
    put(1970 + year, &mut text[12..16]);
    put(time / 3_600, &mut text[17..19]);
    put(time / 60 % 60, &mut text[20..22]);
    put(time % 60, &mut text[23..25]);
    text
}

/// How many days lie between 1970-01-01 and the first day of a month, 0 to 11, of a year that is counted from 1970.
const fn days_before(year: u32, month: usize) -> u32 {
    const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    // Of the years that 32 bits of seconds have, 2000 is a leap year, and 2100 is none.
    let leap_days = (year + 1) / 4 - (year > 130) as u32;
    let is_leap = (year + 2).is_multiple_of(4) && year != 130;
    year * 365 + leap_days + BEFORE[month] + (is_leap && month > 1) as u32
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')))
}

fn put(mut number: u32, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_until_2106_comes_back() {
        let mut last = *b"Wed, 31 Dec 1969";
        for day in 0..=u32::MAX / DAY {
            let at = (day * DAY).saturating_add(day % DAY);
            let text = written(at);
            assert_eq!(seconds(&text), Some(at));
            assert_ne!(text[..16], last, "each day is another one");
            last.copy_from_slice(&text[..16]);
        }
    }

    #[test]
    fn known_dates_are_written_as_in_the_standard() {
        for (at, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (u32::MAX, "Sun, 07 Feb 2106 06:28:15 GMT"),
        ] {
            assert_eq!(written(at), text.as_bytes(), "{text}");
            assert_eq!(seconds(text.as_bytes()), Some(at));
        }
    }

    #[test]
    fn what_is_not_written_so_is_no_date() {
        for text in [
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 gmt",
            "Sun,  6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sun, 07 Feb 2106 06:28:16 GMT",
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "0",
            "",
        ] {
            assert_eq!(seconds(text.as_bytes()), None, "{text}");
        }
    }
}
