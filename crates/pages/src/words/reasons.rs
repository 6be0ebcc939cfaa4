//! What is in an upload's way: [`reason`].

use super::Text;
use crate::language::Language;
use hoop_http::Code;

/// What is in an upload's way, in a sentence for people. `code` is a code's name.
pub fn reason(language: Language, code: &str) -> Text {
    let unknown = ("Something is in the way.", "Quelque chose s’y oppose.");
    let (english, french) = Code::by_name(code).map_or(unknown, both);
    language.either(english, french)
}

const fn both(code: Code) -> (Text, Text) {
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
    fn every_code_has_a_sentence_in_each_language() {
        for code in Code::ALL {
            let [english, french] = Language::ALL.map(|language| reason(language, code.name()));
            assert!(english.ends_with('.') && french.ends_with('.') && english != french, "{code}");
        }
    }
}
