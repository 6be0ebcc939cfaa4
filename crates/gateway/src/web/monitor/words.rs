//! What the pages say, in [`Lang`]: every text stands beside its translation, so that none can be missing.

use hoop_http::Code;
use hoop_http::page::preferred;
use http::HeaderMap;

/// A language of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lang {
    En,
    Fr,
}

impl Lang {
    /// The one that the reader likes best.
    pub fn of(headers: &HeaderMap) -> Self {
        match preferred(headers, &["en", "fr"]) {
            "fr" => Self::Fr,
            _ => Self::En,
        }
    }

    /// Its tag (BCP 47).
    pub const fn tag(self) -> &'static str {
        self.text("en", "fr")
    }

    /// The text in this language.
    pub const fn text<'a>(self, english: &'a str, french: &'a str) -> &'a str {
        match self {
            Self::En => english,
            Self::Fr => french,
        }
    }

    /// `3.1 MB`. Spaces here and below are such that no line breaks at them.
    pub fn size(self, bytes: u64) -> String {
        let unit = |prefix: &str| format!("{prefix}{}", self.text("B", "o"));
        match bytes {
            0..1_000 => format!("{bytes}\u{a0}{}", self.text("bytes", "octets")),
            1_000..1_000_000 => self.number(bytes as f64 / 1e3, 0, &unit("k")),
            1_000_000..1_000_000_000 => self.number(bytes as f64 / 1e6, 1, &unit("M")),
            1_000_000_000..1_000_000_000_000 => self.number(bytes as f64 / 1e9, 1, &unit("G")),
            _ => self.number(bytes as f64 / 1e12, 1, &unit("T")),
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
        format!("{}\u{a0}{unit}", number.replace('.', self.text(".", ",")))
    }

    /// A length of time in its two largest units.
    pub fn span(self, secs: u64) -> String {
        let (mins, hours, days) = (secs / 60, secs / 3_600, secs / 86_400);
        let day = self.text("day", "jour");
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
            Self::En => format!("about {span} to go"),
            Self::Fr => format!("encore {span} environ"),
        }
    }

    /// How long ago something was.
    pub fn ago(self, secs: u64) -> String {
        match (self, secs) {
            (Self::En, 0..5) => "just now".to_owned(),
            (Self::Fr, 0..5) => "à l’instant".to_owned(),
            (Self::En, _) => format!("{} ago", self.span(secs)),
            (Self::Fr, _) => format!("il y a {}", self.span(secs)),
        }
    }

    /// In how long something will be.
    pub fn within(self, secs: u64) -> String {
        match (self, secs) {
            (_, 0) => self.text("now", "maintenant").to_owned(),
            (Self::En, _) => format!("in {}", self.span(secs)),
            (Self::Fr, _) => format!("dans {}", self.span(secs)),
        }
    }

    /// `1 upload`, `7 uploads`.
    pub fn uploads(self, count: u64) -> String {
        format!(
            "{count}\u{a0}{}",
            if count == 1 { self.text("upload", "envoi") } else { self.text("uploads", "envois") }
        )
    }

    /// What is in an upload's way, in a sentence for people.
    pub fn reason(self, code: &str) -> &'static str {
        let Some(code) = Code::by_name(code) else {
            return self.text("Something is in the way.", "Quelque chose s’y oppose.");
        };
        let (english, french) = reason(code);
        match self {
            Self::En => english,
            Self::Fr => french,
        }
    }
}

const fn reason(code: Code) -> (&'static str, &'static str) {
    match code {
        Code::DestUnreachable => (
            "The service cannot be reached from here at the moment.",
            "Le service est injoignable d’ici pour le moment.",
        ),
        Code::DestNotHoop => (
            "What answers at the service’s address does not behave like a Hoop service.",
            "Ce qui répond à l’adresse du service ne se comporte pas comme un service Hoop.",
        ),
        Code::DestForbidden | Code::DestMissing | Code::DestInvalid => (
            "This Hoop box may not deliver to that address. The box’s owner can allow it.",
            "Ce boîtier Hoop n’a pas le droit de livrer à cette adresse. Le propriétaire du boîtier peut l’autoriser.",
        ),
        Code::UpstreamUnreachable | Code::UpstreamBusy | Code::UpstreamBroken => (
            "The service has it, but its application does not answer at the moment.",
            "Le service l’a reçu, mais son application ne répond pas pour le moment.",
        ),
        Code::UpstreamFailed => (
            "The service has it, but its application failed at it.",
            "Le service l’a reçu, mais son application a échoué.",
        ),
        Code::FormTokenRefused => (
            "The application found that the form had become too old.",
            "L’application a trouvé que le formulaire était devenu trop ancien.",
        ),
        Code::NotPermitted => (
            "The application did not let whoever sent it do that.",
            "L’application ne l’a pas permis à la personne qui l’a envoyé.",
        ),
        Code::TwicePossible => ("The application may have it already.", "L’application l’a peut-être déjà."),
        Code::UploadPaused => ("Whoever sent it has paused it.", "La personne qui l’a envoyé l’a mis en pause."),
        Code::UploadStopped => ("Whoever sent it has stopped it.", "La personne qui l’a envoyé l’a arrêté."),
        Code::SignInRequired | Code::NotOwner => (
            "The service waits until whoever sent it has signed in again.",
            "Le service attend que la personne qui l’a envoyé se reconnecte.",
        ),
        Code::RecordCorrupt | Code::BodyTruncated | Code::BodyNotSealed => (
            "A part arrived damaged and has to be sent again.",
            "Une partie est arrivée endommagée et doit être renvoyée.",
        ),
        Code::UploadExpired | Code::TicketExpired => ("Its time is over.", "Son délai est dépassé."),
        Code::TicketEarly => (
            "The service finds that it is too early: one of the clocks is wrong.",
            "Le service trouve qu’il est trop tôt\u{a0}: une des horloges n’est pas à l’heure.",
        ),
        Code::TooLarge => ("It is larger than the service allows.", "Il est plus gros que ce que le service permet."),
        Code::TicketForeign
        | Code::TokenInvalid
        | Code::TokenMismatch
        | Code::RouteMismatch
        | Code::HeadInvalid
        | Code::LengthMismatch
        | Code::UploadConflict => ("The service does not take this upload.", "Le service ne prend pas cet envoi."),
        Code::Rejected => ("The application did not want it.", "L’application n’en a pas voulu."),
        Code::PermitRequired | Code::PermitInvalid | Code::GatewayForbidden => (
            "The service does not take uploads from this Hoop box without its permission.",
            "Le service n’accepte pas d’envois de ce boîtier Hoop sans sa permission.",
        ),
        Code::PermitUnverifiable => (
            "The service’s keys cannot be fetched at the moment.",
            "Les clés du service ne peuvent pas être obtenues pour le moment.",
        ),
        Code::UploadDone => ("The application has it already.", "L’application l’a déjà."),
        Code::AnswerLost => ("The application’s answer was lost.", "La réponse de l’application s’est perdue."),
        Code::TooManyRequests | Code::HeadTooLarge | Code::RequestTimeout | Code::SpoolFull => {
            ("The service has too much to do at the moment.", "Le service est débordé pour le moment.")
        }
        Code::UploadUnknown | Code::NotFound => {
            ("The service knows nothing of it.", "Le service n’en a pas connaissance.")
        }
        Code::SpoolFailed => (
            "The Hoop box’s disk cannot be used at the moment.",
            "Le disque du boîtier Hoop est inutilisable pour le moment.",
        ),
        Code::SpoolDamaged => (
            "A part was damaged on the Hoop box’s disk and has to be sent again.",
            "Une partie a été endommagée sur le disque du boîtier Hoop et doit être renvoyée.",
        ),
        Code::Internal => (
            "Something failed inside the Hoop box or the service.",
            "Quelque chose a échoué dans le boîtier Hoop ou le service.",
        ),
        Code::RequestInvalid
        | Code::MethodNotAllowed
        | Code::LengthRequired
        | Code::OriginForbidden
        | Code::HostForbidden
        | Code::PreludeNeeded
        | Code::OffsetMismatch
        | Code::LengthInconsistent
        | Code::MediaTypeUnsupported
        | Code::RangeInvalid
        | Code::RangeOffGrid
        | Code::RangeTooMany => {
            ("The service did not understand the Hoop box.", "Le service n’a pas compris le boîtier Hoop.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_written_as_the_language_does() {
        assert_eq!(Lang::En.size(3_146_021), "3.1\u{a0}MB");
        assert_eq!(Lang::Fr.size(3_146_021), "3,1\u{a0}Mo");
        assert_eq!(Lang::Fr.rate(1_250_000), "1,2\u{a0}Mbit/s");
        assert_eq!(Lang::En.span(90), "1\u{a0}min 30\u{a0}s");
        assert_eq!(Lang::Fr.within(3 * 86_400), "dans 3\u{a0}jours");
        assert_eq!(
            (Lang::En.span(7_260), Lang::En.span(86_399)),
            ("2\u{a0}h 1\u{a0}min".into(), "23\u{a0}h 59\u{a0}min".into())
        );
        assert_eq!((Lang::En.within(0), Lang::Fr.ago(0)), ("now".into(), "à l’instant".into()));
    }

    #[test]
    fn every_code_has_a_sentence_in_each_language() {
        for code in Code::ALL {
            let (english, french) = (Lang::En.reason(code.name()), Lang::Fr.reason(code.name()));
            assert!(english.ends_with('.') && french.ends_with('.') && english != french, "{code}");
        }
    }
}
