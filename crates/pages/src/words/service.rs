//! What the service's pages say: [`ServiceWords`].

use super::{Text, Told, told};
use crate::language::Language;

/// A unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each name says what it is")]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
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

words! {
    /// What the service's pages say.
    ServiceWords:

    language: Language = Language::English, Language::French;

    // Times.
    now: Text = "now", "maintenant";
    ago: fn(u64, Unit) -> String =
        |count, unit| format!("{} ago", english_span(count, unit)),
        |count, unit| format!("il y a {}", french_span(count, unit));
    within: fn(u64, Unit) -> String =
        |count, unit| format!("in {}", english_span(count, unit)),
        |count, unit| format!("dans {}", french_span(count, unit));

    // Both pages.
    uploads: Text = "My uploads", "Mes envois";
    settings: Text = "Settings", "Réglages";
    back: fn(&str) -> String = |site| format!("Back to {site}"), |site| format!("Retour à {site}");
    saved: Text = "Saved.", "Enregistré.";
    footer: Text =
        "Hoop carries uploads sealed: on their way, only this site can open them.",
        "Hoop transporte les envois scellés\u{a0}: en chemin, seul ce site peut les ouvrir.";

    // The list.
    intro: Text =
        "What you handed to a Hoop box, and where it is now.",
        "Ce que vous avez confié à un boîtier Hoop, et où cela se trouve.";
    empty: Text = "Nothing here yet", "Rien pour l’instant";
    empty_how: Text =
        "When you upload through a Hoop box, you may leave as soon as it has your files. What becomes of them afterwards, you see here.",
        "Quand vous envoyez par un boîtier Hoop, vous pouvez partir dès qu’il a vos fichiers. Leur suite s’affiche ici.";
    by_hand: Text =
        "This page does not change by itself while scripts are off.",
        "Sans scripts, cette page ne change pas d’elle-même.";
    look_again: Text = "Look again", "Actualiser";
    summary_moving: fn(usize) -> String = |count| format!("{count} on the way"), |count| format!("{count} en chemin");
    summary_held: fn(usize) -> String =
        |count| if count == 1 { "1 waits for you".to_owned() } else { format!("{count} wait for you") },
        |count| if count < 2 { format!("{count} vous attend") } else { format!("{count} vous attendent") };
    summary_quiet: Text = "Everything has come to its end.", "Tout est terminé.";
    earlier: fn(usize) -> String = |count| format!("Earlier ({count})"), |count| format!("Plus anciens ({count})");
    capped: fn(usize) -> String =
        |count| format!("These are the latest {count}."),
        |count| format!("Voici les {count} derniers.");
    sign_in_title: Text = "Please sign in", "Connectez-vous";
    sign_in_why: Text =
        "This site does not know who you are at the moment. Your uploads are safe: they are shown, and go on, once you have signed in.",
        "Pour le moment, ce site ne sait pas qui vous êtes. Vos envois sont en sûreté\u{a0}: ils s’affichent et continuent dès que vous êtes connecté.";
    sign_in: Text = "Sign in", "Se connecter";
    sign_in_elsewhere: Text =
        "Sign in to the site as usual, then come back to this page.",
        "Connectez-vous au site comme d’habitude, puis revenez à cette page.";

    // One upload.
    unnamed: Text = "An upload", "Un envoi";
    and_others: fn(usize) -> String =
        |count| format!("and {}", counted(count as u64, "other", "others")),
        |count| format!("et {}", compte(count as u64, "autre", "autres"));
    files: fn(usize) -> String =
        |count| counted(count as u64, "file", "files"),
        |count| compte(count as u64, "fichier", "fichiers");
    more_files: fn(usize) -> String = |count| format!("and {count} more"), |count| format!("et {count} de plus");
    sent_to: fn(&str) -> String = |path| format!("for {path}"), |path| format!("pour {path}");
    progress: fn(&str, &str) -> String =
        |done, total| format!("{done} of {total}"),
        |done, total| format!("{done} sur {total}");
    attempt: fn(u32) -> String =
        |count| if count == 1 { "tried once".to_owned() } else { format!("tried {count} times") },
        |count| if count < 2 { "essayé une fois".to_owned() } else { format!("essayé {count} fois") };
    tried_again: Text = "Next try", "Prochain essai";
    kept_until: Text = "It is kept for you, and deleted", "Il est gardé pour vous, puis effacé";
    kept_again: Text =
        "You can hand it over again. For that it is kept, and deleted",
        "Vous pouvez le remettre à nouveau. Il est gardé pour cela, puis effacé";
    ends_soon: Text = "Its time is running out: it is given up", "Son délai touche à sa fin\u{a0}: il sera abandonné";
    receipt: Text = "Receipt", "Reçu";
    answer_said: Text = "In detail:", "En détail\u{a0}:";
    monitor: Text = "The Hoop box’s page", "Page du boîtier Hoop";
    monitor_local: Text = "on its network", "sur son réseau";
    announced: Told =
        told("On its way", "The Hoop box carries it here. Nothing of it has arrived yet."),
        told("En chemin", "Le boîtier Hoop l’apporte. Rien n’est encore arrivé ici.");
    receiving: Told = told("Arriving", ""), told("En train d’arriver", "");
    received: Told =
        told("Arrived", "It is being handed to the site."),
        told("Arrivé", "Il est en cours de remise au site.");
    accepted: Told = told("Delivered", ""), told("Remis", "");
    rejected: Told = told("Refused", "The site did not take it."), told("Refusé", "Le site ne l’a pas accepté.");
    held: Told = told("Waits for you", "It is here in full."), told("Vous attend", "Il est ici en entier.");
    unknown: Told =
        told("Please check", "The site was given all of it, but its answer was lost. Look whether it is there before you upload it again."),
        told("À vérifier", "Le site l’a reçu en entier, mais sa réponse s’est perdue. Regardez s’il y est avant de l’envoyer à nouveau.");
    stopped: Told =
        told("Stopped", "You stopped it. What had arrived was deleted."),
        told("Arrêté", "Vous l’avez arrêté. Ce qui était arrivé est effacé.");
    expired: Told =
        told("Too late", "It did not arrive in time and was deleted. Please upload it again."),
        told("Trop tard", "Il n’est pas arrivé à temps et a été effacé. Envoyez-le à nouveau.");
    paused: Told =
        told("Paused", "It stays where it is until you let it go on."),
        told("En pause", "Il reste où il est jusqu’à ce que vous le repreniez.");

    // What is in the way.
    unreachable: Text = "The site cannot be reached at the moment.", "Le site est injoignable pour le moment.";
    busy: Text = "The site is busy and asks to come back later.", "Le site est occupé et demande de revenir plus tard.";
    broken: Text =
        "The site broke off in the middle of its answer.",
        "Le site s’est interrompu au milieu de sa réponse.";
    other_reason: Text = "Something is in the way:", "Quelque chose fait obstacle\u{a0}:";

    // What a held upload waits for.
    held_session: Text =
        "When it arrived you were no longer signed in, so the site did not take it.",
        "À son arrivée vous n’étiez plus connecté, et le site ne l’a pas pris.";
    held_token: Text =
        "The site did not take it, as its form had become too old. It can be sent once more.",
        "Le site ne l’a pas pris, car son formulaire était devenu trop ancien. Il peut être envoyé à nouveau.";
    held_permission: Text =
        "The site did not let you do that. It can be sent once more, when you are signed in as somebody who may.",
        "Le site ne vous l’a pas permis. Il peut être envoyé à nouveau, quand vous êtes connecté avec les droits voulus.";
    held_failed: Text =
        "The site failed at it several times. It can be sent once more.",
        "Le site a échoué plusieurs fois. Il peut être envoyé à nouveau.";

    // Buttons. `name` tells those of one upload from those of another, for whoever hears the page.
    pause: Text = "Pause", "Pause";
    resume: Text = "Resume", "Reprendre";
    stop: Text = "Stop", "Arrêter";
    stop_ask: Text =
        "It will not be delivered, and what has arrived is deleted.",
        "Il ne sera pas remis, et ce qui est arrivé sera effacé.";
    stop_sure: Text = "Stop for good", "Arrêter définitivement";
    finish: Text = "Finish", "Terminer";
    finish_signed_out: Text =
        "Sign in, then finish it here with one click.",
        "Connectez-vous, puis terminez-le ici en un clic.";
    again: Text = "Hand it over again", "Remettre à nouveau";
    twice_ask: Text =
        "The site may have it already, and would then have it twice. Look there first.",
        "Le site l’a peut-être déjà, et l’aurait alors deux fois. Vérifiez d’abord là-bas.";
    twice_sure: Text = "Hand it over all the same", "Le remettre quand même";
    delete: Text = "Delete", "Effacer";
    delete_ask: Text =
        "What is kept of it is deleted, and it cannot be handed over again.",
        "Ce qui en est gardé est effacé\u{a0}: il ne pourra plus être remis.";
    delete_sure: Text = "Delete for good", "Effacer définitivement";

    // What the script says.
    working: Text = "Just a moment…", "Un instant…";
    failed: Text = "That did not work. Please try again.", "Cela n’a pas marché. Essayez encore.";
    offline: Text =
        "Connection lost; what you see may be old. Trying again…",
        "Connexion perdue\u{a0}; ce que vous voyez est peut-être ancien. Nouvel essai…";
    live: Text = "This page is up to date again.", "Cette page est de nouveau à jour.";

    // Settings.
    settings_intro: Text =
        "Shall uploads go through a Hoop box, if there is one nearby? This holds for uploads to this site.",
        "Les envois doivent-ils passer par un boîtier Hoop, s’il y en a un à proximité\u{a0}? Cela vaut pour les envois à ce site.";
    policy: Text = "Uploads go through the Hoop box", "Les envois passent par le boîtier Hoop";
    always: Told =
        told("Always", "Whenever a Hoop box is nearby, without asking."),
        told("Toujours", "Dès qu’un boîtier Hoop est à proximité, sans demander.");
    ask: Told =
        told("Ask me", "You are asked at each upload."),
        told("Me demander", "La question vous est posée à chaque envoi.");
    never: Told =
        told("Never", "Everything is sent directly; you wait until it has been sent."),
        told("Jamais", "Tout part directement\u{a0}; vous attendez que ce soit envoyé.");
    min_size: Text = "Send directly what is smaller than", "Envoyer directement ce qui fait moins de";
    min_size_unit: Text = "MB", "Mo";
    min_size_help: Text =
        "Small uploads are often as quick without a Hoop box. 0: none is too small.",
        "Les petits envois vont souvent aussi vite sans boîtier Hoop. 0\u{a0}: aucun n’est trop petit.";
    by_kind: Text = "By kind of file", "Selon le type de fichier";
    by_kind_help: Text =
        "If an upload has files of several kinds, the most cautious choice holds.",
        "Si un envoi a des fichiers de plusieurs types, le choix le plus prudent l’emporte.";
    pictures: Text = "Pictures", "Images";
    videos: Text = "Videos", "Vidéos";
    sound: Text = "Sound", "Sons";
    another_kind: Text = "Another kind", "Un autre type";
    another_kind_help: Text =
        "A media type, such as application/pdf or text/*. Empty: none.",
        "Un type de média, comme application/pdf ou text/*. Vide\u{a0}: aucun.";
    as_above: Text = "As above", "Comme ci-dessus";
    save: Text = "Save", "Enregistrer";
    for_session: Text =
        "This site does not tell Hoop who you are, so these settings last until you sign out.",
        "Ce site ne dit pas à Hoop qui vous êtes\u{a0}: ces réglages durent jusqu’à votre déconnexion.";
    not_saved_yet: Text =
        "You have not chosen anything yet; this is what holds until you do.",
        "Vous n’avez encore rien choisi\u{a0}; voici ce qui vaut en attendant.";

    // A form that was refused.
    refused: Text = "That was not done", "Cela n’a pas été fait";
    refused_late: Text =
        "It was too late: the upload has moved on in the meantime.",
        "Trop tard\u{a0}: l’envoi a avancé entre-temps.";
    refused_owner: Text =
        "This upload belongs to somebody else, or you have signed in anew since.",
        "Cet envoi est à quelqu’un d’autre, ou vous vous êtes reconnecté depuis.";
    refused_gone: Text = "This upload is not known here any more.", "Cet envoi n’est plus connu ici.";
    refused_origin: Text =
        "The request came from another site, so it was not done. Please do it here.",
        "La demande venait d’un autre site et n’a pas été suivie. Faites-la ici.";
    refused_form: Text = "Something in the form was not right:", "Quelque chose n’allait pas dans le formulaire\u{a0}:";
    refused_else: Text = "Something went wrong:", "Quelque chose s’est mal passé\u{a0}:";
    to_uploads: Text = "To my uploads", "Vers mes envois";
}
