//! Text into markup, and numbers into text. Pure.

use super::words::{Unit, Words};
use hoop_pages::shown;
use hoop_units::UnixTime;
use maud::{Markup, html};

/// The most characters that are shown of a name or caption; the middle goes, since the end of a name tells its kind.
const SHOWN_MAX: usize = 140;

/// A name or caption: as text, shortened, and apart from the direction of what stands around it.
pub fn name(raw: &str) -> Markup {
    html! { bdi { (shown(&shortened(raw))) } }
}

/// At most [`SHOWN_MAX`] characters of it.
pub fn shortened(raw: &str) -> String {
    let count = raw.chars().count();
    if count <= SHOWN_MAX {
        return raw.to_owned();
    }
    let half = SHOWN_MAX / 2;
    let (begin, end): (String, String) = (raw.chars().take(half).collect(), raw.chars().skip(count - half).collect());
    format!("{begin}…{end}")
}

/// A size for people, in powers of a thousand.
pub fn size(bytes: u64, words: &Words) -> String {
    let [bytes_unit, kilo, mega, giga] = words.size_units;
    let rounded = |unit: u64| bytes.saturating_add(unit / 2) / unit;
    let tenths = |unit: u64, name: &str| {
        let tenths = rounded(unit / 10);
        format!("{}{}{}\u{a0}{name}", tenths / 10, words.decimal, tenths % 10)
    };
    // What would round up to a thousand of one unit is one of the next.
    match bytes {
        0..1_000 => format!("{bytes}\u{a0}{bytes_unit}"),
        1_000..999_500 => format!("{}\u{a0}{kilo}", rounded(1_000)),
        999_500..999_950_000 => tenths(1_000_000, mega),
        _ => tenths(1_000_000_000, giga),
    }
}

/// A moment as seen from now, which the script keeps true.
pub fn moment(at: UnixTime, now: UnixTime, words: &Words) -> Markup {
    time(at, "", &relative(at, now, words))
}

/// The same of what is due: if it has not come to pass by then, it is due now.
pub fn due(at: UnixTime, now: UnixTime, words: &Words) -> Markup {
    time(at, "due", &relative(at.max(now), now, words))
}

fn time(at: UnixTime, kind: &str, words: &str) -> Markup {
    html! { time datetime=(at) data-relative=(kind) { (words) } }
}

fn relative(at: UnixTime, now: UnixTime, words: &Words) -> String {
    let (past, secs) = (at <= now, u64::from(at.0.abs_diff(now.0)));
    let (count, unit) = match secs {
        0 => return words.now.to_owned(),
        1..60 => (secs, Unit::Second),
        60..3_600 => (secs / 60, Unit::Minute),
        3_600..86_400 => (secs / 3_600, Unit::Hour),
        _ => (secs / 86_400, Unit::Day),
    };
    if past { (words.ago)(count, unit) } else { (words.within)(count, unit) }
}

#[cfg(test)]
mod tests {
    use super::super::words::Language;
    use super::*;

    #[test]
    fn no_character_of_a_name_leaves_its_place() {
        let hostile = "a\"><script>'&\u{202e}gpj.\u{0}exe\nb\u{2066}";
        let shown = name(hostile).into_string();
        assert_eq!(shown, "<bdi>a&quot;&gt;&lt;script&gt;'&amp;\u{fffd}gpj.\u{fffd}exe b\u{fffd}</bdi>");
    }

    #[test]
    fn a_long_name_is_shown_by_its_beginning_and_end() {
        let shown = shortened(&format!("begin{}é.jpg", "x".repeat(5_000)));
        assert!(shown.starts_with("begin") && shown.ends_with("é.jpg") && shown.chars().count() == SHOWN_MAX + 1);
    }

    #[test]
    fn sizes_and_times_read_as_people_write_them() {
        let (english, french) = (Language::English.words(), Language::French.words());
        for (bytes, en, fr) in [
            (0, "0 bytes", "0 octets"),
            (999, "999 bytes", "999 octets"),
            (31_999, "32 kB", "32 ko"),
            (999_499, "999 kB", "999 ko"),
            (999_500, "1.0 MB", "1,0 Mo"),
            (999_950_000, "1.0 GB", "1,0 Go"),
            (3_145_902, "3.1 MB", "3,1 Mo"),
            (10_737_418_240, "10.7 GB", "10,7 Go"),
        ] {
            assert_eq!(
                (size(bytes, english), size(bytes, french)),
                (en.replace(' ', "\u{a0}"), fr.replace(' ', "\u{a0}"))
            );
        }
        let now = UnixTime(1_000_000);
        for (at, en, fr) in [
            (1_000_000, "now", "maintenant"),
            (999_999, "1 second ago", "il y a 1 seconde"),
            (1_000_042, "in 42 seconds", "dans 42 secondes"),
            (992_700, "2 hours ago", "il y a 2 heures"),
            (1_172_900, "in 2 days", "dans 2 jours"),
        ] {
            assert_eq!(
                (relative(UnixTime(at), now, english), relative(UnixTime(at), now, french)),
                (en.into(), fr.into())
            );
        }
    }

    #[test]
    fn a_due_time_is_never_shown_as_past() {
        let (words, now) = (Language::English.words(), UnixTime(1_000));
        let (past, gone) = (due(UnixTime(900), now, words).0, moment(UnixTime(900), now, words).0);
        assert!(past.contains("\">now<") && gone.contains(">1 minute ago<"), "{past} {gone}");
        assert!(due(UnixTime(1_030), now, words).0.contains(">in 30 seconds<"));
    }
}
