//! What the pages say, in each language: [`Words`]. A text that is missing in one does not compile.

use hoop_http::page::preferred;
use http::HeaderMap;

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
    #[cfg(test)]
    pub const ALL: [Self; 2] = [Self::English, Self::French];

    /// The one that the browser prefers among ours.
    pub fn of(headers: &HeaderMap) -> Self {
        match preferred(headers, &["en", "fr"]) {
            "fr" => Self::French,
            _ => Self::English,
        }
    }

    /// What it says.
    pub const fn words(self) -> &'static Words {
        match self {
            Self::English => &ENGLISH,
            Self::French => &FRENCH,
        }
    }
}

/// A unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

/// The words for one state.
pub struct Standing {
    /// Two or three words.
    pub label: &'static str,
    /// A sentence on what that means for whoever reads it; may be empty.
    pub meaning: &'static str,
}

/// The words for one policy.
pub struct Choice {
    pub label: &'static str,
    pub meaning: &'static str,
}

/// Everything that the pages say. None of it is markup; all of it is escaped like what others wrote.
pub struct Words {
    /// `lang`, and what the script gives to `Intl`.
    pub tag: &'static str,

    // Sizes, times, numbers.
    pub size_units: [&'static str; 4],
    pub decimal: &'static str,
    pub now: &'static str,
    pub ago: fn(u64, Unit) -> String,
    pub within: fn(u64, Unit) -> String,

    // Both pages.
    pub uploads: &'static str,
    pub settings: &'static str,
    pub back: fn(&str) -> String,
    pub saved: &'static str,
    pub footer: &'static str,

    // The list.
    pub intro: &'static str,
    pub empty: &'static str,
    pub empty_how: &'static str,
    pub by_hand: &'static str,
    pub look_again: &'static str,
    pub summary_moving: fn(usize) -> String,
    pub summary_held: fn(usize) -> String,
    pub summary_quiet: &'static str,
    pub earlier: fn(usize) -> String,
    pub capped: fn(usize) -> String,
    pub sign_in_title: &'static str,
    pub sign_in_why: &'static str,
    pub sign_in: &'static str,
    pub sign_in_elsewhere: &'static str,

    // One upload.
    pub unnamed: &'static str,
    pub and_others: fn(usize) -> String,
    pub files: fn(usize) -> String,
    pub more_files: fn(usize) -> String,
    pub sent_to: fn(&str) -> String,
    pub progress: fn(&str, &str) -> String,
    pub attempt: fn(u32) -> String,
    pub tried_again: &'static str,
    pub kept_until: &'static str,
    pub kept_again: &'static str,
    pub ends_soon: &'static str,
    pub receipt: &'static str,
    pub answer_said: &'static str,
    pub monitor: &'static str,
    pub monitor_local: &'static str,
    pub announced: Standing,
    pub receiving: Standing,
    pub received: Standing,
    pub accepted: Standing,
    pub rejected: Standing,
    pub held: Standing,
    pub unknown: Standing,
    pub stopped: Standing,
    pub expired: Standing,
    pub paused: Standing,

    // What is in the way.
    pub unreachable: &'static str,
    pub busy: &'static str,
    pub broken: &'static str,
    pub other_reason: &'static str,

    // What a held upload waits for.
    pub held_session: &'static str,
    pub held_token: &'static str,
    pub held_permission: &'static str,
    pub held_failed: &'static str,

    // Buttons. `name` tells those of one upload from those of another, for whoever hears the page.
    pub pause: &'static str,
    pub resume: &'static str,
    pub stop: &'static str,
    pub stop_ask: &'static str,
    pub stop_sure: &'static str,
    pub finish: &'static str,
    pub finish_signed_out: &'static str,
    pub again: &'static str,
    pub twice_ask: &'static str,
    pub twice_sure: &'static str,
    pub delete: &'static str,
    pub delete_ask: &'static str,
    pub delete_sure: &'static str,

    // What the script says.
    pub working: &'static str,
    pub failed: &'static str,
    pub offline: &'static str,
    pub live: &'static str,

    // Settings.
    pub settings_intro: &'static str,
    pub policy: &'static str,
    pub always: Choice,
    pub ask: Choice,
    pub never: Choice,
    pub min_size: &'static str,
    pub min_size_unit: &'static str,
    pub min_size_help: &'static str,
    pub by_kind: &'static str,
    pub by_kind_help: &'static str,
    pub pictures: &'static str,
    pub videos: &'static str,
    pub sound: &'static str,
    pub another_kind: &'static str,
    pub another_kind_help: &'static str,
    pub as_above: &'static str,
    pub save: &'static str,
    pub for_session: &'static str,
    pub not_saved_yet: &'static str,

    // A form that was refused.
    pub refused: &'static str,
    pub refused_late: &'static str,
    pub refused_owner: &'static str,
    pub refused_gone: &'static str,
    pub refused_origin: &'static str,
    pub refused_form: &'static str,
    pub refused_else: &'static str,
    pub to_uploads: &'static str,
}

/// A count and its noun, in English.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn english_span(count: u64, unit: Unit) -> String {
    match unit {
        Unit::Second => counted(count, "second", "seconds"),
        Unit::Minute => counted(count, "minute", "minutes"),
        Unit::Hour => counted(count, "hour", "hours"),
        Unit::Day => counted(count, "day", "days"),
    }
}

/// As in English, but none is singular.
fn compte(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count < 2 { one } else { many })
}

fn french_span(count: u64, unit: Unit) -> String {
    match unit {
        Unit::Second => compte(count, "seconde", "secondes"),
        Unit::Minute => compte(count, "minute", "minutes"),
        Unit::Hour => compte(count, "heure", "heures"),
        Unit::Day => compte(count, "jour", "jours"),
    }
}

static ENGLISH: Words = Words {
    tag: "en",
    size_units: ["bytes", "kB", "MB", "GB"],
    decimal: ".",
    now: "now",
    ago: |count, unit| format!("{} ago", english_span(count, unit)),
    within: |count, unit| format!("in {}", english_span(count, unit)),

    uploads: "My uploads",
    settings: "Settings",
    back: |site| format!("Back to {site}"),
    saved: "Saved.",
    footer: "Hoop carries uploads sealed: on their way, only this site can open them.",

    intro: "What you handed to a Hoop box, and where it is now.",
    empty: "Nothing here yet",
    empty_how: "When you upload through a Hoop box, you may leave as soon as it has your files. What becomes of them afterwards, you see here.",
    by_hand: "This page does not change by itself while scripts are off.",
    look_again: "Look again",
    summary_moving: |count| format!("{count} on the way"),
    summary_held: |count| if count == 1 { "1 waits for you".to_owned() } else { format!("{count} wait for you") },
    summary_quiet: "Everything has come to its end.",
    earlier: |count| format!("Earlier ({count})"),
    capped: |count| format!("These are the latest {count}."),
    sign_in_title: "Please sign in",
    sign_in_why: "This site does not know who you are at the moment. Your uploads are safe: they are shown, and go on, once you have signed in.",
    sign_in: "Sign in",
    sign_in_elsewhere: "Sign in to the site as usual, then come back to this page.",

    unnamed: "An upload",
    and_others: |count| format!("and {}", counted(count as u64, "other", "others")),
    files: |count| counted(count as u64, "file", "files"),
    more_files: |count| format!("and {count} more"),
    sent_to: |path| format!("for {path}"),
    progress: |done, total| format!("{done} of {total}"),
    attempt: |count| if count == 1 { "tried once".to_owned() } else { format!("tried {count} times") },
    tried_again: "Next try",
    kept_until: "It is kept for you, and deleted",
    kept_again: "You can hand it over again. For that it is kept, and deleted",
    ends_soon: "Its time is running out: it is given up",
    receipt: "Receipt",
    answer_said: "In detail:",
    monitor: "The Hoop box’s page",
    monitor_local: "on its network",
    announced: Standing {
        label: "On its way",
        meaning: "The Hoop box carries it here. Nothing of it has arrived yet.",
    },
    receiving: Standing { label: "Arriving", meaning: "" },
    received: Standing { label: "Arrived", meaning: "It is being handed to the site." },
    accepted: Standing { label: "Delivered", meaning: "" },
    rejected: Standing { label: "Refused", meaning: "The site did not take it." },
    held: Standing { label: "Waits for you", meaning: "It is here in full." },
    unknown: Standing {
        label: "Please check",
        meaning: "The site was given all of it, but its answer was lost. Look whether it is there before you upload it again.",
    },
    stopped: Standing { label: "Stopped", meaning: "You stopped it. What had arrived was deleted." },
    expired: Standing {
        label: "Too late",
        meaning: "It did not arrive in time and was deleted. Please upload it again.",
    },
    paused: Standing { label: "Paused", meaning: "It stays where it is until you let it go on." },

    unreachable: "The site cannot be reached at the moment.",
    busy: "The site is busy and asks to come back later.",
    broken: "The site broke off in the middle of its answer.",
    other_reason: "Something is in the way:",

    held_session: "When it arrived you were no longer signed in, so the site did not take it.",
    held_token: "The site did not take it, as its form had become too old. It can be sent once more.",
    held_permission: "The site did not let you do that. It can be sent once more, when you are signed in as somebody who may.",
    held_failed: "The site failed at it several times. It can be sent once more.",

    pause: "Pause",
    resume: "Resume",
    stop: "Stop",
    stop_ask: "It will not be delivered, and what has arrived is deleted.",
    stop_sure: "Stop for good",
    finish: "Finish",
    finish_signed_out: "Sign in, then finish it here with one click.",
    again: "Hand it over again",
    twice_ask: "The site may have it already, and would then have it twice. Look there first.",
    twice_sure: "Hand it over all the same",
    delete: "Delete",
    delete_ask: "What is kept of it is deleted, and it cannot be handed over again.",
    delete_sure: "Delete for good",

    working: "Just a moment…",
    failed: "That did not work. Please try again.",
    offline: "Connection lost; what you see may be old. Trying again…",
    live: "This page is up to date again.",

    settings_intro: "Shall uploads go through a Hoop box, if there is one nearby? This holds for uploads to this site.",
    policy: "Uploads go through the Hoop box",
    always: Choice { label: "Always", meaning: "Whenever a Hoop box is nearby, without asking." },
    ask: Choice { label: "Ask me", meaning: "You are asked at each upload." },
    never: Choice { label: "Never", meaning: "Everything is sent directly; you wait until it has been sent." },
    min_size: "Send directly what is smaller than",
    min_size_unit: "MB",
    min_size_help: "Small uploads are often as quick without a Hoop box. 0: none is too small.",
    by_kind: "By kind of file",
    by_kind_help: "If an upload has files of several kinds, the most cautious choice holds.",
    pictures: "Pictures",
    videos: "Videos",
    sound: "Sound",
    another_kind: "Another kind",
    another_kind_help: "A media type, such as application/pdf or text/*. Empty: none.",
    as_above: "As above",
    save: "Save",
    for_session: "This site does not tell Hoop who you are, so these settings last until you sign out.",
    not_saved_yet: "You have not chosen anything yet; this is what holds until you do.",

    refused: "That was not done",
    refused_late: "It was too late: the upload has moved on in the meantime.",
    refused_owner: "This upload belongs to somebody else, or you have signed in anew since.",
    refused_gone: "This upload is not known here any more.",
    refused_origin: "The request came from another site, so it was not done. Please do it here.",
    refused_form: "Something in the form was not right:",
    refused_else: "Something went wrong:",
    to_uploads: "To my uploads",
};

static FRENCH: Words = Words {
    tag: "fr",
    size_units: ["octets", "ko", "Mo", "Go"],
    decimal: ",",
    now: "maintenant",
    ago: |count, unit| format!("il y a {}", french_span(count, unit)),
    within: |count, unit| format!("dans {}", french_span(count, unit)),

    uploads: "Mes envois",
    settings: "Réglages",
    back: |site| format!("Retour à {site}"),
    saved: "Enregistré.",
    footer: "Hoop transporte les envois scellés\u{a0}: en chemin, seul ce site peut les ouvrir.",

    intro: "Ce que vous avez confié à un boîtier Hoop, et où cela se trouve.",
    empty: "Rien pour l’instant",
    empty_how: "Quand vous envoyez par un boîtier Hoop, vous pouvez partir dès qu’il a vos fichiers. Leur suite s’affiche ici.",
    by_hand: "Sans scripts, cette page ne change pas d’elle-même.",
    look_again: "Actualiser",
    summary_moving: |count| format!("{count} en chemin"),
    summary_held: |count| if count < 2 { format!("{count} vous attend") } else { format!("{count} vous attendent") },
    summary_quiet: "Tout est terminé.",
    earlier: |count| format!("Plus anciens ({count})"),
    capped: |count| format!("Voici les {count} derniers."),
    sign_in_title: "Connectez-vous",
    sign_in_why: "Pour le moment, ce site ne sait pas qui vous êtes. Vos envois sont en sûreté\u{a0}: ils s’affichent et continuent dès que vous êtes connecté.",
    sign_in: "Se connecter",
    sign_in_elsewhere: "Connectez-vous au site comme d’habitude, puis revenez à cette page.",

    unnamed: "Un envoi",
    and_others: |count| format!("et {}", compte(count as u64, "autre", "autres")),
    files: |count| compte(count as u64, "fichier", "fichiers"),
    more_files: |count| format!("et {count} de plus"),
    sent_to: |path| format!("pour {path}"),
    progress: |done, total| format!("{done} sur {total}"),
    attempt: |count| if count < 2 { "essayé une fois".to_owned() } else { format!("essayé {count} fois") },
    tried_again: "Prochain essai",
    kept_until: "Il est gardé pour vous, puis effacé",
    kept_again: "Vous pouvez le remettre à nouveau. Il est gardé pour cela, puis effacé",
    ends_soon: "Son délai touche à sa fin\u{a0}: il sera abandonné",
    receipt: "Reçu",
    answer_said: "En détail\u{a0}:",
    monitor: "Page du boîtier Hoop",
    monitor_local: "sur son réseau",
    announced: Standing {
        label: "En chemin", meaning: "Le boîtier Hoop l’apporte. Rien n’est encore arrivé ici."
    },
    receiving: Standing { label: "En train d’arriver", meaning: "" },
    received: Standing { label: "Arrivé", meaning: "Il est en cours de remise au site." },
    accepted: Standing { label: "Remis", meaning: "" },
    rejected: Standing { label: "Refusé", meaning: "Le site ne l’a pas accepté." },
    held: Standing { label: "Vous attend", meaning: "Il est ici en entier." },
    unknown: Standing {
        label: "À vérifier",
        meaning: "Le site l’a reçu en entier, mais sa réponse s’est perdue. Regardez s’il y est avant de l’envoyer à nouveau.",
    },
    stopped: Standing { label: "Arrêté", meaning: "Vous l’avez arrêté. Ce qui était arrivé est effacé." },
    expired: Standing {
        label: "Trop tard",
        meaning: "Il n’est pas arrivé à temps et a été effacé. Envoyez-le à nouveau.",
    },
    paused: Standing { label: "En pause", meaning: "Il reste où il est jusqu’à ce que vous le repreniez." },

    unreachable: "Le site est injoignable pour le moment.",
    busy: "Le site est occupé et demande de revenir plus tard.",
    broken: "Le site s’est interrompu au milieu de sa réponse.",
    other_reason: "Quelque chose fait obstacle\u{a0}:",

    held_session: "À son arrivée vous n’étiez plus connecté, et le site ne l’a pas pris.",
    held_token: "Le site ne l’a pas pris, car son formulaire était devenu trop ancien. Il peut être envoyé à nouveau.",
    held_permission: "Le site ne vous l’a pas permis. Il peut être envoyé à nouveau, quand vous êtes connecté avec les droits voulus.",
    held_failed: "Le site a échoué plusieurs fois. Il peut être envoyé à nouveau.",

    pause: "Pause",
    resume: "Reprendre",
    stop: "Arrêter",
    stop_ask: "Il ne sera pas remis, et ce qui est arrivé sera effacé.",
    stop_sure: "Arrêter définitivement",
    finish: "Terminer",
    finish_signed_out: "Connectez-vous, puis terminez-le ici en un clic.",
    again: "Remettre à nouveau",
    twice_ask: "Le site l’a peut-être déjà, et l’aurait alors deux fois. Vérifiez d’abord là-bas.",
    twice_sure: "Le remettre quand même",
    delete: "Effacer",
    delete_ask: "Ce qui en est gardé est effacé\u{a0}: il ne pourra plus être remis.",
    delete_sure: "Effacer définitivement",

    working: "Un instant…",
    failed: "Cela n’a pas marché. Essayez encore.",
    offline: "Connexion perdue\u{a0}; ce que vous voyez est peut-être ancien. Nouvel essai…",
    live: "Cette page est de nouveau à jour.",

    settings_intro: "Les envois doivent-ils passer par un boîtier Hoop, s’il y en a un à proximité\u{a0}? Cela vaut pour les envois à ce site.",
    policy: "Les envois passent par le boîtier Hoop",
    always: Choice { label: "Toujours", meaning: "Dès qu’un boîtier Hoop est à proximité, sans demander." },
    ask: Choice { label: "Me demander", meaning: "La question vous est posée à chaque envoi." },
    never: Choice { label: "Jamais", meaning: "Tout part directement\u{a0}; vous attendez que ce soit envoyé." },
    min_size: "Envoyer directement ce qui fait moins de",
    min_size_unit: "Mo",
    min_size_help: "Les petits envois vont souvent aussi vite sans boîtier Hoop. 0\u{a0}: aucun n’est trop petit.",
    by_kind: "Selon le type de fichier",
    by_kind_help: "Si un envoi a des fichiers de plusieurs types, le choix le plus prudent l’emporte.",
    pictures: "Images",
    videos: "Vidéos",
    sound: "Sons",
    another_kind: "Un autre type",
    another_kind_help: "Un type de média, comme application/pdf ou text/*. Vide\u{a0}: aucun.",
    as_above: "Comme ci-dessus",
    save: "Enregistrer",
    for_session: "Ce site ne dit pas à Hoop qui vous êtes\u{a0}: ces réglages durent jusqu’à votre déconnexion.",
    not_saved_yet: "Vous n’avez encore rien choisi\u{a0}; voici ce qui vaut en attendant.",

    refused: "Cela n’a pas été fait",
    refused_late: "Trop tard\u{a0}: l’envoi a avancé entre-temps.",
    refused_owner: "Cet envoi est à quelqu’un d’autre, ou vous vous êtes reconnecté depuis.",
    refused_gone: "Cet envoi n’est plus connu ici.",
    refused_origin: "La demande venait d’un autre site et n’a pas été suivie. Faites-la ici.",
    refused_form: "Quelque chose n’allait pas dans le formulaire\u{a0}:",
    refused_else: "Quelque chose s’est mal passé\u{a0}:",
    to_uploads: "Vers mes envois",
};
