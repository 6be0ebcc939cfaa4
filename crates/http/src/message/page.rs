//! What the pages of both servers need: text made safe, and the reader's language. Pure.

use http::{HeaderMap, header};

/// What others wrote, as text of a page or value of a quoted attribute. What would turn the text around it over, or is
/// no character at all (a name that reads `gpj.exe` backwards), is replaced.
pub fn text(raw: &str) -> String {
    let mut escaped = String::with_capacity(raw.len());
    for character in raw.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(' '),
            character if character.is_control() || turns(character) => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Marks, embeddings, overrides and isolates of direction (UAX #9), line ends in disguise, and what shows as nothing.
fn turns(character: char) -> bool {
    matches!(character, '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Which of `ours`, primary tags in lower case (BCP 47), the reader likes best (`Accept-Language`, RFC 9110 §12.5.4); of
/// equals what he names first, and our first if he likes none.
///
/// # Panics
/// If `ours` is empty.
pub fn preferred<'a>(headers: &HeaderMap, ours: &[&'a str]) -> &'a str {
    let mut best = (0, ours[0]);
    let ranges = headers.get_all(header::ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
    for range in ranges.flat_map(|value| value.split(',')) {
        let (tag, weight) = range.split_once(';').unwrap_or((range, ""));
        let primary = tag.trim().split('-').next().unwrap_or_default();
        let Some(language) = ours.iter().find(|ours| ours.eq_ignore_ascii_case(primary)) else { continue };
        let weight = thousandths(weight.trim());
        if weight > best.0 {
            best = (weight, language);
        }
    }
    best.1
}

/// A weight, `q=0.8`, in thousandths; what is none weighs nothing, and nothing weighs all.
fn thousandths(weight: &str) -> u32 {
    if weight.is_empty() {
        return 1_000;
    }
    let value =
        weight.strip_prefix("q=").or_else(|| weight.strip_prefix("Q=")).and_then(|text| text.parse::<f32>().ok());
    value.filter(|value| (0.0..=1.0).contains(value)).map_or(0, |value| (value * 1_000.0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_of_what_others_wrote_leaves_its_place() {
        let hostile = "a\"><script>'&\u{202e}gpj.\u{0}exe\nb\u{2066}";
        assert_eq!(text(hostile), "a&quot;&gt;&lt;script&gt;&#39;&amp;\u{fffd}gpj.\u{fffd}exe b\u{fffd}");
    }

    #[test]
    fn the_preferred_language_wins_and_our_first_is_for_all_others() {
        let of = |accepts: &str| {
            preferred(&[(header::ACCEPT_LANGUAGE, accepts.parse().unwrap())].into_iter().collect(), &["en", "fr"])
        };
        for french in ["fr", "fr-CA,fr;q=0.9,en;q=0.8", "de-DE, FR;q=0.5", "en;q=0.5, de, FR;q=0.7"] {
            assert_eq!(of(french), "fr", "{french}");
        }
        for english in [
            "en-GB,en;q=0.9,fr;q=0.8",
            "en-GB,fr",
            "fr;q=0.3, en;q=0.4",
            "fr;q=0",
            "fr;q=nan, de",
            "fr;q=x",
            "frr",
            "frisian",
            "de, *",
            "",
        ] {
            assert_eq!(of(english), "en", "{english}");
        }
        assert_eq!(preferred(&HeaderMap::new(), &["en", "fr"]), "en");
    }
}
