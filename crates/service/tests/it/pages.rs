//! The pages for people, as a browser without script uses them.

use crate::support::device::{Ticket, ask, seal};
use crate::support::upstream::{Upstream, answer};
use crate::support::wire::Reply;
use crate::support::{COOKIE, ORIGIN, Sidecar};
use hoop_service::Routes;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const HTML: (&str, &str) = ("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");
const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");
const OLD: &str = "session=alice-1";
const NEW: &str = "session=alice-2";
const BOB: &str = "session=bob";

const USER: &str = "[user]\npath = \"/me\"\njson = \"/id\"\nsign_in = \"/login\"\n";

/// An application that knows its users, until Alice's first session ends.
async fn application() -> (Upstream, Arc<AtomicBool>) {
    let ended = Arc::new(AtomicBool::new(false));
    let now = ended.clone();
    let upstream = Upstream::new(move |_, arrival| {
        let user = match arrival.fields("cookie")[..] {
            [OLD] if !now.load(Ordering::SeqCst) => Some("alice"),
            [NEW] => Some("alice"),
            [BOB] => Some("bob"),
            _ => None,
        };
        match (arrival.line().starts_with("GET /me "), user) {
            (true, Some(user)) => answer("200 OK", &json!({"id": user}).to_string()),
            (true, None) => answer("401 Unauthorized", ""),
            (false, Some(_)) => answer("201 Created", "{}"),
            (false, None) => answer("302 Found\r\nLocation: /login", ""),
        }
    })
    .await;
    (upstream, ended)
}

async fn before(upstream: &Upstream, routes: &str) -> Sidecar {
    let routes = Routes::parse(routes).unwrap();
    Sidecar::with(upstream.address, |config| config.routes = routes).await
}

async fn ticket_of(sidecar: &Sidecar, cookie: &str) -> Ticket {
    Ticket::parse(&ask(sidecar.address, cookie, &json!({})).await.json()["tickets"][0])
}

/// A page, checked for what every page has.
async fn page(sidecar: &Sidecar, path: &str, fields: &[(&str, &str)]) -> String {
    let reply = sidecar.send("GET", path, &[&[HTML], fields].concat(), b"").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    html(&reply)
}

fn html(reply: &Reply) -> String {
    assert_eq!(reply.field("content-type"), Some("text/html; charset=utf-8"), "{reply:?}");
    let policy = reply.field("content-security-policy").expect("a policy");
    for part in
        ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    let others = ["cache-control", "x-content-type-options", "referrer-policy", "cross-origin-opener-policy"];
    assert_eq!(others.map(|name| reply.field(name).unwrap()), ["no-store", "nosniff", "same-origin", "same-origin"]);
    String::from_utf8(reply.body.clone()).unwrap()
}

/// Sends a form as a browser does.
async fn form(sidecar: &Sidecar, path: &str, origin: &str, cookie: &str, body: &str) -> Reply {
    let fields = [HTML, FORM, ("Origin", origin), ("Cookie", cookie)];
    sidecar.send("POST", path, &fields, body.as_bytes()).await
}

#[tokio::test]
async fn only_the_signed_in_owner_releases_a_held_upload_by_form() {
    let (upstream, ended) = application().await;
    let sidecar = before(&upstream, USER).await;
    let ticket = ticket_of(&sidecar, OLD).await;
    ended.store(true, Ordering::SeqCst);
    seal(&ticket, b"held").post(&sidecar).await;
    sidecar.reaches(&ticket.id, "held").await;
    let (path, row) = (format!("/hoop/uploads/{}", ticket.id), format!("id=\"u-{}\"", ticket.id));

    let signed_out = page(&sidecar, "/hoop/uploads", &[("Cookie", OLD)]).await;
    assert!(signed_out.contains("href=\"https://photos.example/login\"") && !signed_out.contains("value=\"release\""));
    let others = page(&sidecar, "/hoop/uploads", &[("Cookie", BOB)]).await;
    assert!(!others.contains(&row) && others.contains("Nothing here yet"), "{others}");
    let own = page(&sidecar, "/hoop/uploads", &[("Cookie", NEW)]).await;
    assert!(own.contains(&row), "{own}");
    assert_eq!(own.matches("value=\"release\"").count(), 1);
    assert!(own.contains(&format!("method=\"post\" action=\"{path}\"")));

    for (origin, cookie, status) in
        [("https://evil.example", NEW, 403), ("null", NEW, 403), (ORIGIN, BOB, 403), (ORIGIN, OLD, 403)]
    {
        let refused = form(&sidecar, &path, origin, cookie, "action=release").await;
        assert_eq!(refused.status, status, "{origin} {cookie}");
        assert!(html(&refused).contains("That was not done"));
    }
    assert_eq!(sidecar.status(&ticket.id).await["state"], "held");

    let finished = form(&sidecar, &path, ORIGIN, NEW, "action=release").await;
    assert_eq!((finished.status, finished.field("location")), (303, Some("/hoop/uploads")));
    sidecar.reaches(&ticket.id, "accepted").await;
    let done = page(&sidecar, "/hoop/uploads", &[("Cookie", NEW)]).await;
    assert!(done.contains("Delivered") && !done.contains("<form"), "{done}");
}

#[tokio::test]
async fn pausing_resuming_and_stopping_need_no_script() {
    let (upstream, _) = application().await;
    let sidecar = before(&upstream, USER).await;
    let ticket = ticket_of(&sidecar, BOB).await;
    let path = format!("/hoop/uploads/{}", ticket.id);
    let note =
        json!({"total": 5_000_000, "files": [{"name": "<b>.jpg", "size": 4_000_000}], "caption": "</h2><script>"});
    let fields = [("Hoop-Version", "1"), ("Hoop-Token", ticket.token.as_str())];
    assert_eq!(sidecar.send("PUT", &path, &fields, note.to_string().as_bytes()).await.status, 204);
    for (action, shown, offered) in
        [("", "On its way", "pause"), ("pause", "Paused", "resume"), ("resume", "On its way", "pause")]
    {
        if !action.is_empty() {
            assert_eq!(form(&sidecar, &path, ORIGIN, BOB, &format!("action={action}")).await.status, 303);
        }
        let list = page(&sidecar, "/hoop/uploads", &[("Cookie", BOB)]).await;
        assert!(
            list.contains(&format!("<span>{shown}</span>")) && list.contains(&format!("value=\"{offered}\"")),
            "{list}"
        );
        assert!(list.contains("&lt;/h2&gt;&lt;script&gt;") && list.contains("&lt;b&gt;.jpg") && !list.contains("<b>"));
    }
    assert_eq!(form(&sidecar, &path, ORIGIN, BOB, "action=stop").await.status, 303);
    assert!(page(&sidecar, "/hoop/uploads", &[("Cookie", BOB)]).await.contains("<span>Stopped</span>"));
}

#[tokio::test]
async fn settings_are_saved_by_a_form_and_shown_in_the_readers_language() {
    let (upstream, _) = application().await;
    let sidecar = before(&upstream, USER).await;
    let bob = ("Cookie", BOB);
    assert!(page(&sidecar, "/hoop/settings", &[bob]).await.contains("You have not chosen anything yet"));
    let body = "policy=always&min_megabytes=2%2C5&type=image%2F*&type_policy=never&type=video%2F*&type_policy=&type=&type_policy=";
    let saved = form(&sidecar, "/hoop/settings", ORIGIN, BOB, body).await;
    assert_eq!(saved.status, 303);
    let french = page(&sidecar, saved.field("location").unwrap(), &[bob, ("Accept-Language", "fr-CA, en;q=0.5")]).await;
    assert!(french.contains("<html lang=\"fr\">") && french.contains("Enregistré."), "{french}");
    assert!(french.contains("value=\"always\" checked") && french.contains("value=\"2.5\""));
    let settings = sidecar.send("GET", "/hoop/settings", &[bob], b"").await.json();
    assert_eq!((&settings["policy"], &settings["min_bytes"]), (&json!("always"), &json!(2_500_000)));
    assert_eq!(settings["types"], json!({"image/*": "never"}));
    assert_eq!(form(&sidecar, "/hoop/settings", "https://evil.example", BOB, "policy=never").await.status, 403);
    let wrong = form(&sidecar, "/hoop/settings", ORIGIN, BOB, "policy=perhaps").await;
    assert!(wrong.status == 400 && html(&wrong).contains("always, never or ask"));
    assert_eq!(sidecar.send("GET", "/hoop/settings", &[bob], b"").await.json(), settings);
    assert!(page(&sidecar, "/hoop/settings", &[("Cookie", OLD)]).await.contains("name=\"policy\""));
    assert!(!page(&sidecar, "/hoop/settings", &[]).await.contains("name=\"policy\""), "nobody has settings");
}

#[tokio::test]
async fn without_a_user_path_settings_say_that_they_last_for_the_session() {
    let upstream = Upstream::willing().await;
    let sidecar = before(&upstream, "").await;
    assert!(page(&sidecar, "/hoop/settings", &[("Cookie", COOKIE)]).await.contains("last until you sign out"));
    assert!(page(&sidecar, "/hoop/uploads", &[]).await.contains("id=\"sign-in\""));
}

#[tokio::test]
async fn pages_say_when_the_application_cannot_be_asked() {
    let (upstream, _) = application().await;
    let sidecar = before(&upstream, USER).await;
    for path in ["/hoop/hoop.js", "/hoop/hoop-card.js", "/hoop/pages.css", "/hoop/pages.js"] {
        let file = sidecar.send("GET", path, &[], b"").await;
        assert_eq!(file.status, 200);
        let again = sidecar.send("GET", path, &[("If-None-Match", file.field("etag").unwrap())], b"").await;
        assert_eq!((again.status, again.body.len()), (304, 0));
    }
    drop(upstream);
    let refused = sidecar.send("GET", "/hoop/uploads", &[HTML, ("Cookie", BOB)], b"").await;
    assert!(refused.status == 502 && html(&refused).contains("The site cannot be reached"), "{refused:?}");
}

#[tokio::test]
async fn a_link_of_another_site_opens_the_page() {
    let (upstream, _) = application().await;
    let sidecar = before(&upstream, USER).await;
    page(&sidecar, "/hoop/uploads", &[("Cookie", BOB), ("Sec-Fetch-Site", "cross-site")]).await;
    let script = [("Cookie", BOB), ("Sec-Fetch-Site", "cross-site")];
    assert_eq!(sidecar.send("GET", "/hoop/uploads", &script, b"").await.problem(), (403, "origin-forbidden".into()));
}
