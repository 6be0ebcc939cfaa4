//! Numbers and times as people write them. Pure. Spaces are such that no line breaks at them.

use crate::language::Language;

impl Language {
    /// Its units of size, each a thousand times the one before.
    pub const fn size_units(self) -> [&'static str; 5] {
        match self {
            Self::English => ["bytes", "kB", "MB", "GB", "TB"],
            Self::French => ["octets", "ko", "Mo", "Go", "To"],
        }
    }

    /// What stands before the tenths.
    pub const fn decimal(self) -> &'static str {
        self.either(".", ",")
    }

    /// `3.1 MB`: whole below a megabyte, tenths above.
    pub fn size(self, bytes: u64) -> String {
        let [single, kilo, mega, giga, tera] = self.size_units();
        let rounded = |unit: u64| bytes.saturating_add(unit / 2) / unit;
        let tenths = |unit: u64, name: &str| {
            let tenths = rounded(unit / 10);
            format!("{}{}{}\u{a0}{name}", tenths / 10, self.decimal(), tenths % 10)
        };
        // What would round up to a thousand of one unit is one of the next.
        match bytes {
            0..1_000 => format!("{bytes}\u{a0}{single}"),
            1_000..999_500 => format!("{}\u{a0}{kilo}", rounded(1_000)),
            999_500..999_950_000 => tenths(1_000_000, mega),
            999_950_000..999_950_000_000 => tenths(1_000_000_000, giga),
            _ => tenths(1_000_000_000_000, tera),
        }
    }

    /// `1.2 Mbit/s`.
    pub fn rate(self, bps: u64) -> String {
        match bps {
            0..1_000_000 => self.number(bps as f64 / 1e3, 0, "kbit/s"),
            _ => self.number(bps as f64 / 1e6, 1, "Mbit/s"),
        }
    }

    fn number(self, number: f64, digits: usize, unit: &str) -> String {
        let number = format!("{number:.digits$}");
        format!("{}\u{a0}{unit}", number.replace('.', self.decimal()))
    }

    /// A length of time in its two largest units.
    pub fn span(self, secs: u64) -> String {
        let (mins, hours, days) = (secs / 60, secs / 3_600, secs / 86_400);
        let day = self.either("day", "jour");
        match secs {
            0..60 => format!("{secs}\u{a0}s"),
            60..600 if !secs.is_multiple_of(60) => format!("{mins}\u{a0}min {}\u{a0}s", secs % 60),
            60..3_600 => format!("{mins}\u{a0}min"),
            3_600..86_400 if !mins.is_multiple_of(60) => format!("{hours}\u{a0}h {}\u{a0}min", mins % 60),
            3_600..86_400 => format!("{hours}\u{a0}h"),
            86_400..172_800 => format!("1\u{a0}{day}"),
            _ => format!("{days}\u{a0}{day}s"),
        }
    }

    /// A length of time in its largest unit, a minute at least.
    pub fn rough(self, secs: u64) -> String {
        match secs {
            0..60 => self.span(60),
            60..3_600 => self.span(secs / 60 * 60),
            _ => self.span(secs / 3_600 * 3_600),
        }
    }

    /// That something takes about so long from now on.
    pub fn left(self, span: &str) -> String {
        match self {
            Self::English => format!("about {span} to go"),
            Self::French => format!("encore {span} environ"),
        }
    }

    /// How long ago something was.
    pub fn ago(self, secs: u64) -> String {
        match (self, secs) {
            (Self::English, 0..5) => "just now".to_owned(),
            (Self::French, 0..5) => "à l’instant".to_owned(),
            (Self::English, _) => format!("{} ago", self.span(secs)),
            (Self::French, _) => format!("il y a {}", self.span(secs)),
        }
    }

    /// In how long something will be.
    pub fn within(self, secs: u64) -> String {
        match (self, secs) {
            (_, 0) => self.either("now", "maintenant").to_owned(),
            (Self::English, _) => format!("in {}", self.span(secs)),
            (Self::French, _) => format!("dans {}", self.span(secs)),
        }
    }

    /// `1 upload`, `7 uploads`.
    pub fn uploads(self, count: u64) -> String {
        format!(
            "{count}\u{a0}{}",
            if count == 1 { self.either("upload", "envoi") } else { self.either("uploads", "envois") }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (bytes, en, fr) in [
            (0, "0 bytes", "0 octets"),
            (999, "999 bytes", "999 octets"),
            (31_999, "32 kB", "32 ko"),
            (999_499, "999 kB", "999 ko"),
            (999_500, "1.0 MB", "1,0 Mo"),
            (999_950_000, "1.0 GB", "1,0 Go"),
            (3_145_902, "3.1 MB", "3,1 Mo"),
            (10_737_418_240, "10.7 GB", "10,7 Go"),
            (999_950_000_000, "1.0 TB", "1,0 To"),
        ] {
            let written = Language::ALL.map(|language| language.size(bytes).replace('\u{a0}', " "));
            assert_eq!(written, [en, fr]);
        }
    }

    #[test]
    fn rates_and_times_are_written_as_the_language_does() {
        let (english, french) = (Language::English, Language::French);
        assert_eq!(french.rate(1_250_000), "1,2\u{a0}Mbit/s");
        assert_eq!(english.span(90), "1\u{a0}min 30\u{a0}s");
        assert_eq!(french.within(3 * 86_400), "dans 3\u{a0}jours");
        assert_eq!(
            (english.span(7_260), english.span(86_399)),
            ("2\u{a0}h 1\u{a0}min".into(), "23\u{a0}h 59\u{a0}min".into())
        );
        assert_eq!((english.within(0), french.ago(0)), ("now".into(), "à l’instant".into()));
    }
}
