//! Settings: [`settings`].

use super::frame::{Asker, Frame, shell, sign_in};
use super::markup::name;
use hoop_pages::shown;
use hoop_pages::words::{ServiceWords, Told};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Sizes are asked in megabytes.
const MEGABYTE: f64 = 1e6;

/// What the page is made from.
pub struct SettingsView<'a> {
    /// As in `GET /hoop/settings`.
    pub settings: &'a Value,
    /// Whether a form has just been saved.
    pub just_saved: bool,
}

#[derive(Deserialize)]
struct Settings {
    policy: String,
    min_bytes: u64,
    types: BTreeMap<String, String>,
    saved: bool,
}

/// The page at `/hoop/settings`.
///
/// # Panics
/// If the settings are not of the documented shape: they are our own.
pub fn settings(frame: &Frame<'_>, view: &SettingsView<'_>) -> Markup {
    let words = ServiceWords::of(frame.language);
    let settings = Settings::deserialize(view.settings).expect("our own settings have the documented shape");
    let main = html! {
        h1 { (words.settings) }
        p.intro { (words.settings_intro) }
        @if view.just_saved { p.card.notice.good role="status" { (words.saved) } }
        @if frame.asker == Asker::Nobody {
            (sign_in(frame))
        } @else {
            @if !settings.saved { p.hint { (words.not_saved_yet) } }
            form.settings method="post" action="/hoop/settings" {
                (policies(&settings.policy, words))
                (smallest(settings.min_bytes, words))
                (kinds(&settings.types, words))
                @if frame.asker == Asker::Credentials { p.hint { (words.for_session) } }
                p.save { button.primary { (words.save) } }
            }
        }
    };
    shell(frame, words.settings, "/hoop/settings", &main)
}

const fn choices(words: &ServiceWords) -> [(&'static str, &Told); 3] {
    [("ask", &words.ask), ("always", &words.always), ("never", &words.never)]
}

fn policies(chosen: &str, words: &ServiceWords) -> Markup {
    html! {
        fieldset.card {
            legend { (words.policy) }
            @for (value, choice) in choices(words) {
                label.choice {
                    input type="radio" name="policy" value=(value) checked[value == chosen];
                    span { strong { (choice.label) } span { (choice.meaning) } }
                }
            }
        }
    }
}

fn smallest(min_bytes: u64, words: &ServiceWords) -> Markup {
    html! {
        div.card.field {
            label for="min" { (words.min_size) }
            p {
                input #min name="min_megabytes" type="number" min="0" max="1000000" step="any" inputmode="decimal"
                    value=(min_bytes as f64 / MEGABYTE) aria-describedby="min-help";
                " " (words.min_size_unit)
            }
            p #min-help.hint { (words.min_size_help) }
        }
    }
}

fn kinds(types: &BTreeMap<String, String>, words: &ServiceWords) -> Markup {
    let usual = [("image/*", words.pictures), ("video/*", words.videos), ("audio/*", words.sound)];
    let others = types.iter().filter(|(kind, _)| usual.iter().all(|(usual, _)| usual != kind));
    let known = |kind: &str| html! { input type="hidden" name="type" value=(shown(kind)); };
    let another = html! {
        input name="type" aria-label=(words.another_kind) aria-describedby="kind-help" maxlength="127" autocomplete="off"
            autocapitalize="none" spellcheck="false" placeholder="text/*";
    };
    html! {
        fieldset.card.kinds {
            legend { (words.by_kind) }
            p.hint { (words.by_kind_help) }
            @for (at, (kind, label)) in usual.iter().enumerate() {
                @let chosen = types.get(*kind).map_or("", String::as_str);
                (kind_row(&format!("kind-{at}"), &html! { (label) }, &known(kind), chosen, words))
            }
            @for (at, (kind, chosen)) in others.enumerate() {
                (kind_row(&format!("other-{at}"), &name(kind), &known(kind), chosen, words))
            }
            (kind_row("kind-new", &html! { (words.another_kind) }, &another, "", words))
            p #kind-help.hint { (words.another_kind_help) }
        }
    }
}

/// A kind's name and its policy; the two fields travel one after the other.
fn kind_row(id: &str, label: &Markup, kind: &Markup, chosen: &str, words: &ServiceWords) -> Markup {
    let options = choices(words).map(|(value, choice)| (value, choice.label));
    html! {
        div.kind {
            label for=(id) { (label) }
            (kind)
            select #(id) name="type_policy" {
                @for (value, label) in [("", words.as_above)].into_iter().chain(options) {
                    option value=(value) selected[value == chosen] { (label) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_pages::Language;
    use serde_json::json;

    fn frame(origin: &hoop_http::Origin, language: Language, asker: Asker) -> Frame<'_> {
        Frame { language, origin, asker, sign_in: None }
    }

    #[test]
    fn the_page_shows_saved_choices_and_escapes_hostile_media_types() {
        let origin = "https://photos.example".parse().unwrap();
        let saved = json!({"policy": "never", "min_bytes": 2_500_000, "types": {"video/*": "always", "x/\"><script>": "ask"}, "saved": true, "owner": "x"});
        for language in Language::ALL {
            let view = SettingsView { settings: &saved, just_saved: true };
            let page = settings(&frame(&origin, language, Asker::User), &view).into_string();
            let words = ServiceWords::of(language);
            assert!(page.contains("value=\"never\" checked") && page.matches(" checked").count() == 1, "{page}");
            assert!(page.contains("value=\"2.5\""), "{page}");
            assert_eq!(page.matches("<option value=\"always\" selected>").count(), 1);
            assert_eq!(page.matches("<option value=\"ask\" selected>").count(), 1);
            assert!(
                page.contains(words.saved) && !page.contains(words.for_session) && !page.contains(words.not_saved_yet)
            );
            assert_eq!(page.matches("<script").count(), 1, "only ours: {page}");
        }
    }

    #[test]
    fn the_page_says_when_settings_end_with_the_session() {
        let origin = "https://photos.example".parse().unwrap();
        let none = json!({"policy": "ask", "min_bytes": 0, "types": {}, "saved": false, "owner": null});
        for language in Language::ALL {
            let words = ServiceWords::of(language);
            let view = SettingsView { settings: &none, just_saved: false };
            let session = settings(&frame(&origin, language, Asker::Credentials), &view).into_string();
            assert!(session.contains(words.for_session) && session.contains(words.not_saved_yet));
            let nobody = settings(&frame(&origin, language, Asker::Nobody), &view).into_string();
            assert!(nobody.contains(words.sign_in_title) && !nobody.contains("<form"), "{nobody}");
        }
    }
}
