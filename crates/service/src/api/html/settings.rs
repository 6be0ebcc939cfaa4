//! Settings: [`settings`].

use super::frame::{Asker, Frame, shell, sign_in};
use super::markup::name;
use super::words::{Choice, Words};
use hoop_http::page::text;
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
pub fn settings(frame: &Frame<'_>, view: &SettingsView<'_>) -> String {
    let words = frame.language.words();
    let settings = Settings::deserialize(view.settings).expect("our own settings have the documented shape");
    let mut main = format!("<h1>{}</h1><p class=\"intro\">{}</p>", text(words.settings), text(words.settings_intro));
    if view.just_saved {
        main += &format!("<p class=\"card notice good\" role=\"status\">{}</p>", text(words.saved));
    }
    if frame.asker == Asker::Nobody {
        main += &sign_in(frame);
        return shell(frame, words.settings, "/hoop/settings", &main);
    }
    if !settings.saved {
        main += &format!("<p class=\"hint\">{}</p>", text(words.not_saved_yet));
    }
    main += "<form method=\"post\" action=\"/hoop/settings\" class=\"settings\">";
    main += &policies(&settings.policy, words);
    main += &smallest(settings.min_bytes, words);
    main += &kinds(&settings.types, words);
    if frame.asker == Asker::Credentials {
        main += &format!("<p class=\"hint\">{}</p>", text(words.for_session));
    }
    main += &format!("<p class=\"save\"><button class=\"primary\">{}</button></p></form>", text(words.save));
    shell(frame, words.settings, "/hoop/settings", &main)
}

const fn choices(words: &Words) -> [(&'static str, &Choice); 3] {
    [("ask", &words.ask), ("always", &words.always), ("never", &words.never)]
}

fn policies(chosen: &str, words: &Words) -> String {
    let radios = choices(words).map(|(value, choice)| {
        let checked = if value == chosen { " checked" } else { "" };
        format!(
            "<label class=\"choice\"><input type=\"radio\" name=\"policy\" value=\"{value}\"{checked}>\
             <span><strong>{}</strong><span>{}</span></span></label>",
            text(choice.label),
            text(choice.meaning)
        )
    });
    format!("<fieldset class=\"card\"><legend>{}</legend>{}</fieldset>", text(words.policy), radios.concat())
}

fn smallest(min_bytes: u64, words: &Words) -> String {
    let value = min_bytes as f64 / MEGABYTE;
    format!(
        "<div class=\"card field\"><label for=\"min\">{}</label>\
         <p><input id=\"min\" name=\"min_megabytes\" type=\"number\" min=\"0\" max=\"1000000\" step=\"any\" inputmode=\"decimal\" \
         value=\"{value}\" aria-describedby=\"min-help\"> {}</p><p class=\"hint\" id=\"min-help\">{}</p></div>",
        text(words.min_size),
        text(words.min_size_unit),
        text(words.min_size_help)
    )
}

fn kinds(types: &BTreeMap<String, String>, words: &Words) -> String {
    let usual = [("image/*", words.pictures), ("video/*", words.videos), ("audio/*", words.sound)];
    let chosen = |kind: &str| types.get(kind).map_or("", String::as_str);
    let mut rows = String::new();
    for (at, (kind, label)) in usual.iter().enumerate() {
        rows += &kind_row(&format!("kind-{at}"), &text(label), &hidden(kind), chosen(kind), words);
    }
    for (at, (kind, policy)) in
        types.iter().filter(|(kind, _)| usual.iter().all(|(usual, _)| usual != kind)).enumerate()
    {
        rows += &kind_row(&format!("other-{at}"), &name(kind), &hidden(kind), policy, words);
    }
    let another = format!(
        "<input name=\"type\" aria-label=\"{}\" aria-describedby=\"kind-help\" maxlength=\"127\" autocomplete=\"off\" \
         autocapitalize=\"none\" spellcheck=\"false\" placeholder=\"text/*\">",
        text(words.another_kind)
    );
    rows += &kind_row("kind-new", &text(words.another_kind), &another, "", words);
    format!(
        "<fieldset class=\"card kinds\"><legend>{}</legend><p class=\"hint\">{}</p>{rows}<p class=\"hint\" id=\"kind-help\">{}</p></fieldset>",
        text(words.by_kind),
        text(words.by_kind_help),
        text(words.another_kind_help)
    )
}

fn hidden(kind: &str) -> String {
    format!("<input type=\"hidden\" name=\"type\" value=\"{}\">", text(kind))
}

/// A kind's name and its policy; the two fields travel one after the other.
fn kind_row(id: &str, label: &str, kind: &str, chosen: &str, words: &Words) -> String {
    let option = |value: &str, label: &str| {
        let selected = if value == chosen { " selected" } else { "" };
        format!("<option value=\"{value}\"{selected}>{}</option>", text(label))
    };
    let options: String = choices(words).map(|(value, choice)| option(value, choice.label)).concat();
    format!(
        "<div class=\"kind\"><label for=\"{id}\">{label}</label>{kind}<select id=\"{id}\" name=\"type_policy\">{}{options}</select></div>",
        option("", words.as_above)
    )
}

#[cfg(test)]
mod tests {
    use super::super::Language;
    use super::*;
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
            let page = settings(&frame(&origin, language, Asker::User), &view);
            let words = language.words();
            assert!(page.contains("value=\"never\" checked") && page.matches(" checked").count() == 1, "{page}");
            assert!(page.contains("value=\"2.5\""), "{page}");
            assert_eq!(page.matches("<option value=\"always\" selected>").count(), 1);
            assert_eq!(page.matches("<option value=\"ask\" selected>").count(), 1);
            assert!(
                page.contains(words.saved)
                    && !page.contains(&text(words.for_session))
                    && !page.contains(&text(words.not_saved_yet))
            );
            assert_eq!(page.matches("<script").count(), 1, "only ours: {page}");
        }
    }

    #[test]
    fn the_page_says_when_settings_end_with_the_session() {
        let origin = "https://photos.example".parse().unwrap();
        let none = json!({"policy": "ask", "min_bytes": 0, "types": {}, "saved": false, "owner": null});
        for language in Language::ALL {
            let words = language.words();
            let view = SettingsView { settings: &none, just_saved: false };
            let session = settings(&frame(&origin, language, Asker::Credentials), &view);
            assert!(session.contains(&text(words.for_session)) && session.contains(&text(words.not_saved_yet)));
            let nobody = settings(&frame(&origin, language, Asker::Nobody), &view);
            assert!(nobody.contains(&text(words.sign_in_title)) && !nobody.contains("<form"), "{nobody}");
        }
    }
}
