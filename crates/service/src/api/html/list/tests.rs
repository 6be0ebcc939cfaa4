use super::*;
use hoop_pages::Language;
use serde_json::json;

const NOW: UnixTime = UnixTime(1_795_272_084);

fn status(state: &str) -> Value {
    json!({
        "id": "ab".repeat(16), "state": state, "total": 31_459_020, "received": 10_000_000, "missing": "", "expires": NOW.0 + 600_000,
        "updated": NOW.0 - 60, "reason": null, "attempts": 0, "next_attempt": null, "answer": null, "created": NOW.0 - 120,
        "path": "/upload", "paused": false, "files": [{"name": "a.jpg", "size": 31_458_000, "type": "image/jpeg"}],
        "caption": null, "monitor": "http://hoop.local:4667/monitor?ID=abab&x=1"
    })
}

fn with(state: &str, members: Value) -> Value {
    let mut status = status(state);
    for (name, value) in members.as_object().unwrap() {
        status[name] = value.clone();
    }
    status
}

fn render(language: Language, asker: Asker, uploads: &[Value]) -> String {
    let origin = "https://photos.example".parse().unwrap();
    let frame = Frame { language, origin: &origin, asker, sign_in: Some("/login".to_owned()) };
    list(&frame, &ListView { uploads, capped: false, now: NOW }).into_string()
}

fn buttons(page: &str) -> Vec<&str> {
    page.split("name=\"action\" value=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn every_state_has_its_words_and_the_buttons_that_make_sense() {
    for language in Language::ALL {
        let words = ServiceWords::of(language);
        for (state, standing, actions) in [
            ("announced", &words.announced, &["pause", "stop"][..]),
            ("receiving", &words.receiving, &["pause", "stop"]),
            ("received", &words.received, &["pause", "stop"]),
            ("held", &words.held, &["release", "stop"]),
            ("accepted", &words.accepted, &[]),
            ("rejected", &words.rejected, &[]),
            ("unknown", &words.unknown, &[]),
            ("stopped", &words.stopped, &[]),
            ("expired", &words.expired, &[]),
        ] {
            let page = render(language, Asker::User, &[status(state)]);
            assert!(page.contains(standing.label) && page.contains(standing.meaning), "{state}: {page}");
            assert_eq!(buttons(&page), actions, "{state}");
            assert_eq!(page.contains("<progress"), state == "receiving", "{state}");
            assert!(page.contains(&format!("<html lang=\"{}\">", words.language.tag())));
        }
    }
}

#[test]
fn the_page_offers_kept_uploads_for_release_and_names_the_risk() {
    let kept = json!({"kept_until": NOW.0 + 500_000});
    for language in Language::ALL {
        let words = ServiceWords::of(language);
        let rejected = render(language, Asker::User, &[with("rejected", kept.clone())]);
        assert_eq!(buttons(&rejected), ["release", "stop"]);
        assert!(rejected.contains(words.kept_again) && !rejected.contains("value=\"twice\""), "{rejected}");
        let unknown = render(language, Asker::User, &[with("unknown", kept.clone())]);
        assert_eq!(buttons(&unknown), ["release", "stop"]);
        let (before, after) = unknown.split_once(words.twice_ask).expect("the risk");
        assert!(!before.contains("value=\"release\"") && after.contains("name=\"risk\" value=\"twice\""), "{unknown}");
        let nobody = render(language, Asker::Nobody, &[with("rejected", kept.clone())]);
        assert_eq!(buttons(&nobody), ["stop"]);
    }
}

#[test]
fn the_page_says_what_a_held_upload_waits_for() {
    for language in Language::ALL {
        let words = ServiceWords::of(language);
        for (code, sentence) in [
            ("sign-in-required", words.held_session),
            ("form-token-refused", words.held_token),
            ("not-permitted", words.held_permission),
            ("upstream-failed", words.held_failed),
        ] {
            let page = render(language, Asker::User, &[with("held", json!({"reason": {"code": code, "detail": ""}}))]);
            assert!(page.contains(sentence), "{code}: {page}");
            assert_eq!(page.contains(words.held_session), code == "sign-in-required", "{code}");
        }
    }
}

#[test]
fn every_state_that_the_service_shows_can_be_shown() {
    for state in crate::model::State::ALL {
        let page = render(Language::English, Asker::User, &[status(state.shown())]);
        assert!(page.contains("id=\"u-abab"), "{}", state.shown());
    }
}

#[test]
fn a_paused_upload_says_so_and_can_be_resumed() {
    for language in Language::ALL {
        let page = render(language, Asker::User, &[with("receiving", json!({"paused": true}))]);
        assert!(page.contains(ServiceWords::of(language).paused.label), "{page}");
        assert_eq!(buttons(&page), ["resume", "stop"]);
    }
    let held = render(Language::English, Asker::User, &[with("held", json!({"paused": true}))]);
    assert_eq!(buttons(&held), ["release", "stop"]);
}

#[test]
fn the_page_says_in_words_why_an_upload_waits_and_until_when() {
    let reason = |code: &str, detail: &str| json!({"reason": {"code": code, "detail": detail}, "attempts": 3, "next_attempt": NOW.0 + 40});
    for language in Language::ALL {
        let words = ServiceWords::of(language);
        for (code, sentence) in [
            ("upstream-unreachable", words.unreachable),
            ("upstream-busy", words.busy),
            ("upstream-broken", words.broken),
        ] {
            let page = render(language, Asker::User, &[with("received", reason(code, "503"))]);
            assert!(page.contains(sentence), "{page}");
            assert!(
                page.contains(&(words.attempt)(3))
                    && page.contains(&(words.within)(40, hoop_pages::words::Unit::Second))
            );
        }
    }
    let page = render(Language::English, Asker::User, &[with("received", reason("internal", "the <disk>"))]);
    assert!(page.contains("Something is in the way: <q lang=\"en\">the &lt;disk&gt;</q>"), "{page}");
    let page = render(Language::English, Asker::User, &[with("received", reason("internal", ""))]);
    assert!(page.contains("Something is in the way: internal"), "{page}");
    let page = render(
        Language::English,
        Asker::User,
        &[with("rejected", json!({"reason": {"code": "rejected", "detail": "403 <b>no"}}))],
    );
    assert!(page.contains("403 &lt;b&gt;no"), "{page}");
}

#[test]
fn foreign_text_never_becomes_markup() {
    let evil = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&\u{202e}gpj";
    let everything = json!({
        "id": evil, "path": evil, "caption": evil, "monitor": evil, "reason": {"code": evil, "detail": evil},
        "files": [{"name": evil, "size": 1, "type": evil}, {"name": evil, "size": 2, "type": evil}],
    });
    for language in Language::ALL {
        for state in
            ["announced", "receiving", "received", "held", "accepted", "rejected", "unknown", "stopped", "expired"]
        {
            let mut uncaptioned = with(state, everything.clone());
            uncaptioned["caption"] = Value::Null;
            let mut bare = uncaptioned.clone();
            bare["files"] = Value::Null;
            let page = render(language, Asker::User, &[with(state, everything.clone()), uncaptioned, bare]);
            assert_eq!(page.matches("<script").count(), 1, "only ours: {page}");
            assert!(!page.contains("<img") && !page.contains('\u{202e}'), "{page}");
            assert!(!page.contains("\"'>"), "no attribute is left: {page}");
        }
    }
}

#[test]
fn the_list_links_only_web_pages_of_gateways_and_sends_no_referrer() {
    let page = render(Language::English, Asker::User, &[status("receiving")]);
    let link = "href=\"http://hoop.local:4667/monitor?ID=abab&amp;x=1\" target=\"_blank\" rel=\"noreferrer\"";
    assert!(page.contains(link), "{page}");
    assert!(page.contains(ServiceWords::of(Language::English).monitor_local));
    for url in [
        "javascript:alert(1)",
        "data:text/html,x",
        "//evil.example",
        "http://",
        "file:///etc/passwd",
        "https://user:pass@x.example/",
    ] {
        let page = render(Language::English, Asker::User, &[with("receiving", json!({"monitor": url}))]);
        assert!(!page.contains("noreferrer"), "{url}: {page}");
    }
    let public = render(
        Language::English,
        Asker::User,
        &[with("receiving", json!({"monitor": "https://hoop.example/monitor?ID=1"}))],
    );
    assert!(
        public.contains("https://hoop.example/") && !public.contains(ServiceWords::of(Language::English).monitor_local)
    );
}

#[test]
fn a_held_upload_offers_a_signed_out_owner_sign_in_and_stop_alone() {
    for language in Language::ALL {
        let page = render(language, Asker::Nobody, &[status("held")]);
        assert_eq!(buttons(&page), ["stop"]);
        assert!(page.contains("href=\"https://photos.example/login\""), "{page}");
        assert!(page.contains(ServiceWords::of(language).finish_signed_out));
    }
}

#[test]
fn an_empty_list_explains_the_page_and_offers_the_anonymous_sign_in() {
    for language in Language::ALL {
        let words = ServiceWords::of(language);
        let page = render(language, Asker::User, &[]);
        assert!(page.contains(words.empty_how) && !page.contains("id=\"sign-in\""), "{page}");
        let page = render(language, Asker::Nobody, &[]);
        assert!(!page.contains(words.empty_how) && page.contains("id=\"sign-in\""), "{page}");
    }
}

#[test]
fn the_page_folds_away_what_ended_long_ago_and_never_what_waits() {
    let old = json!({"updated": NOW.0 - 90_000});
    let page = render(Language::English, Asker::User, &[with("accepted", old.clone()), with("held", old)]);
    let (open, folded) = page.split_once("<details class=\"earlier\">").expect("folded");
    assert!(open.contains("card held") && folded.contains("card accepted") && folded.contains("Earlier (1)"), "{page}");
    let many: Vec<_> = (0..15).map(|_| status("accepted")).collect();
    let page = render(Language::English, Asker::User, &many);
    assert!(page.contains("Earlier (5)"), "{page}");
    let moving: Vec<_> = (0..15).map(|_| status("receiving")).collect();
    assert!(!render(Language::English, Asker::User, &moving).contains("class=\"earlier\""));
}

#[test]
fn a_list_says_first_what_waits_for_its_owner() {
    let page = render(Language::English, Asker::User, &[status("receiving"), status("held"), status("announced")]);
    assert!(page.contains("1 waits for you</a> · 2 on the way"), "{page}");
    assert!(
        render(Language::English, Asker::User, &[status("accepted")])
            .contains(ServiceWords::of(Language::English).summary_quiet)
    );
}

#[test]
fn an_upload_is_called_by_its_caption_its_files_or_where_it_goes() {
    let title = |members| {
        let page = render(Language::English, Asker::User, &[with("receiving", members)]);
        let title = page.split("tabindex=\"-1\">").nth(1).unwrap().split("</h2>").next().unwrap().to_owned();
        title.replace("<bdi>", "").replace("</bdi>", "")
    };
    let file = |name: &str| json!({"name": name, "size": 1, "type": ""});
    assert_eq!(title(json!({"caption": "At the lake"})), "At the lake");
    assert_eq!(title(json!({"caption": " "})), "a.jpg");
    assert_eq!(title(json!({"files": [file("a"), file("b"), file("c")]})), "a and 2 others");
    assert_eq!(title(json!({"files": []})), "An upload for /upload");
    assert_eq!(title(json!({"files": null, "path": null})), "An upload");
}

#[test]
fn the_page_warns_a_day_before_expiry_and_offers_receipts() {
    let words = ServiceWords::of(Language::English);
    let says = |state: &str, expires: u32| {
        let page = render(Language::English, Asker::User, &[with(state, json!({"expires": expires}))]);
        page.contains(words.ends_soon)
    };
    let linger = crate::model::LINGER_SECS;
    assert!(says("announced", NOW.0 + 3_600) && !says("announced", NOW.0 + 90_000));
    assert!(says("receiving", NOW.0 - linger + 3_600) && !says("receiving", NOW.0 + 3_600), "it may end later");
    assert!(!says("accepted", NOW.0 + 3_600) && !says("held", NOW.0 - linger + 3_600));
    let saved = |receipt: Value| {
        render(Language::English, Asker::User, &[with("accepted", json!({"receipt": receipt}))]).contains("?receipt\"")
    };
    assert!(saved(json!("AQID")) && !saved(Value::Null));
}
