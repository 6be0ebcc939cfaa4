//! The bridge (`docs/protocol.md`, "Bridge"): a small window for browsers that do not let a page talk to the LAN. Here are its words, in the
//! reader's language; what it does is in `web/src/bridge.ts`.

use super::monitor::{Lang, POLICY};
use hoop_http::Body;
use hoop_pages::{answer, asset};
use http::{HeaderMap, Response, StatusCode, header};
use maud::{DOCTYPE, Markup, html};

/// The script, made by `web/build.mjs`.
const SCRIPT: &str = include_str!("../../../../web/dist/bridge.js");
const STYLE: &str = include_str!("bridge.css");

/// What the window says. `{site}` stands for the page's site.
struct Words {
    title: &'static str,
    what: &'static str,
    no_script: &'static str,
    // What the script says, by its names.
    site: &'static str,
    waiting: &'static str,
    working: &'static str,
    retrying: &'static str,
    idle: &'static str,
    left: &'static str,
    done: &'static str,
    failed: &'static str,
    stopped: &'static str,
    keep: &'static str,
    alone: &'static str,
    orphan: &'static str,
    stop: &'static str,
    close: &'static str,
}

const ENGLISH: Words = Words {
    title: "Handing your upload to the Hoop box",
    what: "This window takes what the page hands it, sealed, to the Hoop box on your network, which delivers it. The Hoop \
           box cannot read it.",
    no_script: "This window needs JavaScript. Close it; the page can upload without it.",
    site: "For {site}",
    waiting: "Waiting for the page that opened this window.",
    working: "Handing over.",
    retrying: "The Hoop box does not answer. It is tried again.",
    idle: "Waiting for the page.",
    left: "The page closed before it had handed everything over. Open it again with the same file, and it goes on.",
    done: "Done. The Hoop box has all of it. The page says whether you may leave.",
    failed: "This could not be handed over. Open the page again with the same file, and it goes on.",
    stopped: "Stopped.",
    keep: "Keep this window open; it closes itself. If you close it, the rest is not handed over.",
    alone: "The page has closed. What it left here is still handed over: keep this window open, it closes itself.",
    orphan: "No page has opened this window, so there is nothing to hand over. If one has, its site cuts the tie \
         (Cross-Origin-Opener-Policy: same-origin).",
    stop: "Stop",
    close: "Close",
};

const FRENCH: Words = Words {
    title: "Remise de votre envoi au boîtier Hoop",
    what: "Cette fenêtre remet ce que la page lui confie, scellé, au boîtier Hoop de votre réseau, qui le livre. Le boîtier \
           ne peut pas le lire.",
    no_script: "Cette fenêtre a besoin de JavaScript. Fermez-la\u{a0}; la page peut envoyer sans elle.",
    site: "Pour {site}",
    waiting: "En attente de la page qui a ouvert cette fenêtre.",
    working: "Remise en cours.",
    retrying: "Le boîtier Hoop ne répond pas. Nouvel essai.",
    idle: "En attente de la page.",
    left: "La page a été fermée avant d’avoir tout remis. Rouvrez-la avec le même fichier\u{a0}: elle continuera.",
    done: "Terminé. Le boîtier Hoop a tout\u{a0}; la page dit si vous pouvez partir.",
    failed: "La remise a échoué. Rouvrez la page avec le même fichier\u{a0}: elle continuera.",
    stopped: "Arrêté.",
    keep: "Laissez cette fenêtre ouverte\u{a0}; elle se fermera seule. Si vous la fermez, le reste n’est pas remis.",
    alone: "La page est fermée. Ce qu’elle a laissé est encore remis\u{a0}: laissez cette fenêtre ouverte, elle se fermera seule.",
    orphan: "Aucune page n’a ouvert cette fenêtre\u{a0}: il n’y a rien à remettre. Si c’est pourtant le cas, le site coupe le lien \
         (Cross-Origin-Opener-Policy: same-origin).",
    stop: "Arrêter",
    close: "Fermer",
};

/// `GET /bridge`. There is no `Cross-Origin-Opener-Policy`: it would part the window from its opener.
pub fn page(request: &HeaderMap) -> Response<Body> {
    let language = Lang::of(request);
    let headers = [
        (header::CONTENT_LANGUAGE, language.tag()),
        (header::VARY, "Accept-Language"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    answer(StatusCode::OK, html(language), &headers)
}

/// `GET /bridge.js`.
pub fn script(request: &HeaderMap) -> Response<Body> {
    asset(request, "text/javascript; charset=utf-8", SCRIPT)
}

/// `GET /bridge.css`.
pub fn style(request: &HeaderMap) -> Response<Body> {
    asset(request, "text/css; charset=utf-8", STYLE)
}

fn html(language: Lang) -> Markup {
    let words = match language {
        Lang::En => ENGLISH,
        Lang::Fr => FRENCH,
    };
    html! {
        (DOCTYPE)
        html lang=(language.tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Hoop" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/bridge.css";
                script type="module" src="/bridge.js" {}
            }
            body data-version=(env!("CARGO_PKG_VERSION"))
                data-site=(words.site) data-waiting=(words.waiting) data-working=(words.working)
                data-retrying=(words.retrying) data-idle=(words.idle) data-left=(words.left)
                data-done=(words.done) data-failed=(words.failed) data-stopped=(words.stopped)
                data-keep=(words.keep) data-alone=(words.alone) data-orphan=(words.orphan)
                data-stop=(words.stop) data-close=(words.close) {
                main {
                    h1 { (words.title) }
                    p #site hidden {}
                    p #what { (words.what) }
                    progress #progress aria-labelledby="amount" hidden {}
                    p #amount hidden {}
                    p #status role="status" hidden {}
                    p #hint hidden {}
                    noscript { p.why { (words.no_script) } }
                    button #stop type="button" hidden {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_neither_script_nor_style_within() {
        for language in [Lang::En, Lang::Fr] {
            let page = html(language).into_string();
            assert!(page.contains("<script type=\"module\" src=\"/bridge.js\"></script>"), "{page}");
            assert!(
                page.matches("<script").count() == 1 && !page.contains("<style") && !page.contains(" style="),
                "{page}"
            );
        }
    }
}
