//! What the gateway's pages say: [`MonitorWords`].

use super::{Text, Told, told};

words! {
    /// What the gateway's pages say.
    MonitorWords:

    // For programs, and refusals.
    for_programs: Text = "For programs", "Pour les programmes";
    offered_at: Text = "Uploads are offered at", "Les envois se déposent à";
    followed_at: Text = "and followed at the link that is answered.", "et se suivent au lien donné en réponse.";
    unknown_upload: Told =
        told("Nothing is known of this upload", "It may have been forgotten here, a week after it ended; or the link leads to another Hoop box."),
        told("Cet envoi est inconnu", "Il a peut-être été oublié ici, une semaine après sa fin\u{a0}; ou le lien mène à un autre boîtier Hoop.");
    incomplete: Told =
        told("This link is incomplete", "Open it as it was shown to you."),
        told("Ce lien est incomplet", "Ouvrez-le tel qu’il vous a été montré.");
    problem: Told =
        told("This Hoop box has a problem", "Its owner finds the cause in its log."),
        told("Ce boîtier Hoop a un problème", "Son propriétaire en trouve la cause dans son journal.");

    // The link to a page.
    reach_everywhere: Text = "This link works from anywhere.", "Ce lien fonctionne de partout.";
    reach_here: Text = "This link works in this network only.", "Ce lien ne fonctionne que dans ce réseau.";
    link_shows: Text = "Whoever has it sees this page, and nothing more.", "Qui l’a voit cette page, et rien de plus.";
    follow: Text = "Follow it on another device", "Suivre sur un autre appareil";
    link: Text = "Link to this page", "Lien vers cette page";
    copied: Text = "Copied", "Copié";
    copy: Text = "Copy", "Copier";
    share: Text = "Share", "Partager";
    qr_code: Text = "QR code of the link", "Code QR du lien";

    // The whole gateway.
    title: Text = "Drop here, walk away", "Déposez ici, partez";
    what: Text =
        "This is a Hoop box. It takes sealed uploads at the speed of this network and delivers them over the slow line outside, so that devices need not stay. It can neither read nor alter what it carries.",
        "Ceci est un boîtier Hoop. Il prend des envois scellés à la vitesse de ce réseau et les livre par la ligne lente vers l’extérieur, sans que les appareils doivent rester. Il ne peut ni lire ni modifier ce qu’il porte.";
    lost: Text =
        "This page has lost the Hoop box, and shows what it knew last.",
        "Cette page a perdu le boîtier Hoop, et montre ce qu’elle a su en dernier.";
    latest: Text = "Latest uploads", "Derniers envois";
    none_yet: Text = "Nothing has come yet.", "Rien n’est encore venu.";
    hoop_box: Text = "Hoop box", "Boîtier Hoop";
    nothing: Text = "nothing", "rien";
    idle: Text = "idle", "au repos";
    in_use: Text = "in use", "occupés";
    waiting: Text = "Waiting to go out", "À livrer";
    going_out: Text = "Going out", "En sortie";
    room_left: Text = "Room left", "Place libre";
    running_for: Text = "Running for", "En marche depuis";
    just_now: Text = "just now", "à l’instant";
    of: Text = "of", "sur";
    next_try: Text = "Next try", "Prochain essai";

    // One upload.
    stored_here: Text = "Stored on this Hoop box", "Enregistré sur ce boîtier Hoop";
    delivered: Text = "Delivered to the service", "Livré au service";
    lost_receiving: Text =
        "This page has lost the Hoop box. Is this device still in its network?",
        "Cette page a perdu le boîtier Hoop. Cet appareil est-il encore dans son réseau\u{a0}?";
    lost_upload: Text =
        "This page has lost the Hoop box, and shows what it knew last. Your upload goes on without it.",
        "Cette page a perdu le boîtier Hoop, et montre ce qu’elle a su en dernier. Votre envoi continue sans elle.";
    already: fn(&str) -> String =
        |bytes| format!(" · {bytes} at the service already"),
        |bytes| format!(" · {bytes} déjà chez le service");
    to_uploads: Text = "To your uploads at the site", "Vers vos envois sur le site";
    tried_now: Text = "Being tried again now.", "Nouvel essai en cours.";
    attempts: Text = "attempts so far.", "essais jusqu’ici.";
    details: Text = "Technical details", "Détails techniques";
    waits_for_time: Text = "It waits for its time.", "Il attend son heure.";
    goes_on: Text = "Delivery goes on", "La livraison continue";
    received_there: Text = "Received by the service", "Reçu par le service";
    accepted_there: Text = "Accepted by the application", "Accepté par l’application";
    rejected_there: Text = "Refused by the application", "Refusé par l’application";
    answer_lost: Text = "The application’s answer was lost", "La réponse de l’application s’est perdue";
    stopped_there: Text = "Stopped by its owner", "Arrêté par son propriétaire";
    time_over: Text = "Its time was over", "Son délai est dépassé";
    refused_there: Text = "Refused by the service", "Refusé par le service";
    done: Text = "done", "fait";
    now: Text = "now", "en cours";
    to_come: Text = "to come", "à venir";
    being_stored: Text = "Being stored on this Hoop box", "En cours d’enregistrement sur ce boîtier Hoop";
    waits_to_be_sent: Text = "Waits to be sent to the service", "Attend d’être transmis au service";
    waits_for_turn: Text = "Waits for its turn to be sent", "Attend son tour d’être transmis";
    being_sent: Text = "Being sent to the service", "En cours de transmission au service";
    waits_for_you: Text = "Waits for you at the site", "Vous attend sur le site";
    being_handed: Text = "Being handed to the application", "En cours de remise à l’application";
    destination: Text = "For", "Pour";
    size: Text = "Size", "Taille";
    begun: Text = "Begun", "Commencé";
    expires: Text = "Expires", "Expire";
    upload: Text = "Upload", "Envoi";

    // The states of an upload.
    receiving: Told =
        told("Coming in", "Please stay until this page says that you may leave."),
        told("Réception en cours", "Restez jusqu’à ce que cette page dise que vous pouvez partir.");
    stored: Told =
        told("Safe here", "You may leave: this Hoop box has all of it, and delivers it by itself."),
        told("En sécurité ici", "Vous pouvez partir\u{a0}: ce boîtier Hoop a tout, et le livre de lui-même.");
    delivering: Told =
        told("On its way", "You may leave: this Hoop box has all of it, and delivers it by itself."),
        told("En route", "Vous pouvez partir\u{a0}: ce boîtier Hoop a tout, et le livre de lui-même.");
    received: Told =
        told("Arrived", "The service has all of it, and hands it to the application."),
        told("Arrivé", "Le service a tout, et le remet à l’application.");
    held: Told =
        told("Finish it at the site", "The service has all of it, and waits for you: sign in there, and press Finish."),
        told("À terminer sur le site", "Le service a tout, et vous attend\u{a0}: connectez-vous là-bas, et appuyez sur Terminer.");
    accepted: Told =
        told("Done", "The application has accepted your upload."),
        told("Terminé", "L’application a accepté votre envoi.");
    rejected: Told =
        told("Not accepted", "Your upload arrived, and the application did not want it."),
        told("Non accepté", "Votre envoi est arrivé, et l’application n’en a pas voulu.");
    unknown: Told =
        told("Perhaps delivered", "The application was handed all of it, but its answer was lost. Look there before you send it again."),
        told("Peut-être livré", "L’application a tout reçu, mais sa réponse s’est perdue. Vérifiez là-bas avant de renvoyer.");
    stopped: Told =
        told("Stopped", "Its owner stopped this upload at the service."),
        told("Arrêté", "Son propriétaire a arrêté cet envoi auprès du service.");
    expired: Told =
        told("Too late", "It could not be delivered before its time was over."),
        told("Trop tard", "Il n’a pas pu être livré à temps.");
    refused: Told =
        told("Refused by the service", "Sending the same again would not help."),
        told("Refusé par le service", "Renvoyer la même chose n’y changerait rien.");
}
