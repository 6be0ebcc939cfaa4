//! Text into markup, and numbers into text. Pure.

use hoop_pages::shown;
use hoop_pages::words::{ServiceWords, Unit};
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

/// A moment as seen from now, which the script keeps true.
pub fn moment(at: UnixTime, now: UnixTime, words: &ServiceWords) -> Markup {
    time(at, "", &relative(at, now, words))
}

/// The same of what is due: if it has not come to pass by then, it is due now.
pub fn due(at: UnixTime, now: UnixTime, words: &ServiceWords) -> Markup {
    time(at, "due", &relative(at.max(now), now, words))
}

fn time(at: UnixTime, kind: &str, words: &str) -> Markup {
    html! { time datetime=(at) data-relative=(kind) { (words) } }
}

fn relative(at: UnixTime, now: UnixTime, words: &ServiceWords) -> String {
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
    use super::*;
    use hoop_pages::Language;

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
    fn times_read_as_people_write_them() {
        let (english, french) = (ServiceWords::of(Language::English), ServiceWords::of(Language::French));
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
        let (words, now) = (ServiceWords::of(Language::English), UnixTime(1_000));
        let (past, gone) = (due(UnixTime(900), now, words).0, moment(UnixTime(900), now, words).0);
        assert!(past.contains("\">now<") && gone.contains(">1 minute ago<"), "{past} {gone}");
        assert!(due(UnixTime(1_030), now, words).0.contains(">in 30 seconds<"));
    }
}
