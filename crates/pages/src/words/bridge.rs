//! What the bridge says: [`BridgeWords`].

use super::Text;

words! {
    /// What the bridge says. Its script (`web/src/bridge.ts`) has the same names.
    BridgeWords:

    title: Text = "Handing your upload to the Hoop box", "Remise de votre envoi au boîtier Hoop";
    what: Text =
        "This window takes what the page hands it, sealed, to the Hoop box on your network, which delivers it. The Hoop box cannot read it.",
        "Cette fenêtre remet ce que la page lui confie, scellé, au boîtier Hoop de votre réseau, qui le livre. Le boîtier ne peut pas le lire.";
    no_script: Text =
        "This window needs JavaScript. Close it; the page can upload without it.",
        "Cette fenêtre a besoin de JavaScript. Fermez-la\u{a0}; la page peut envoyer sans elle.";
    /// `{site}` stands for the page's site.
    site: Text = "For {site}", "Pour {site}";
    waiting: Text =
        "Waiting for the page that opened this window.",
        "En attente de la page qui a ouvert cette fenêtre.";
    working: Text = "Handing over.", "Remise en cours.";
    retrying: Text = "The Hoop box does not answer. It is tried again.", "Le boîtier Hoop ne répond pas. Nouvel essai.";
    idle: Text = "Waiting for the page.", "En attente de la page.";
    left: Text =
        "The page closed before it had handed everything over. Open it again with the same file, and it goes on.",
        "La page a été fermée avant d’avoir tout remis. Rouvrez-la avec le même fichier\u{a0}: elle continuera.";
    done: Text =
        "Done. The Hoop box has all of it. The page says whether you may leave.",
        "Terminé. Le boîtier Hoop a tout\u{a0}; la page dit si vous pouvez partir.";
    failed: Text =
        "This could not be handed over. Open the page again with the same file, and it goes on.",
        "La remise a échoué. Rouvrez la page avec le même fichier\u{a0}: elle continuera.";
    stopped: Text = "Stopped.", "Arrêté.";
    keep: Text =
        "Keep this window open; it closes itself. If you close it, the rest is not handed over.",
        "Laissez cette fenêtre ouverte\u{a0}; elle se fermera seule. Si vous la fermez, le reste n’est pas remis.";
    alone: Text =
        "The page has closed. What it left here is still handed over: keep this window open, it closes itself.",
        "La page est fermée. Ce qu’elle a laissé est encore remis\u{a0}: laissez cette fenêtre ouverte, elle se fermera seule.";
    orphan: Text =
        "No page has opened this window, so there is nothing to hand over. If one has, its site cuts the tie (Cross-Origin-Opener-Policy: same-origin).",
        "Aucune page n’a ouvert cette fenêtre\u{a0}: il n’y a rien à remettre. Si c’est pourtant le cas, le site coupe le lien (Cross-Origin-Opener-Policy: same-origin).";
    stop: Text = "Stop", "Arrêter";
    close: Text = "Close", "Fermer";
}
