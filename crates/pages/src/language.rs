//! The reader's language: [`Language`]. Pure.

use http::{HeaderMap, header};

/// A language that the pages speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// English, for whoever asks for none that we have.
    English,
    /// French.
    French,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 2] = [Self::English, Self::French];

    /// The one that the reader likes best among ours.
    pub fn of(headers: &HeaderMap) -> Self {
        match preferred(headers, &Self::ALL.map(Self::tag)) {
            "fr" => Self::French,
            _ => Self::English,
        }
    }

    /// Its tag (BCP 47).
    pub const fn tag(self) -> &'static str {
        self.either("en", "fr")
    }

    /// What is said in this language.
    pub(crate) const fn either<'a>(self, english: &'a str, french: &'a str) -> &'a str {
        match self {
            Self::English => english,
            Self::French => french,
        }
    }
}

/// Which of `ours`, primary tags in lower case (BCP 47), the reader likes best (`Accept-Language`, RFC 9110 §12.5.4); of
/// equals what he names first, and our first if he likes none.
fn preferred<'a>(headers: &HeaderMap, ours: &[&'a str]) -> &'a str {
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
