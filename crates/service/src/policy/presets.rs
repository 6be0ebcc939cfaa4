//! Success rules for applications that we know: [`Preset`].

use crate::policy::csrf::Csrf;
use crate::policy::rules::{Condition, Hold, Rule, Verdict};
use serde::Deserialize;
use serde_json::json;

/// A known kind of application. Each preset's rules come before the generic ones, which always end the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// By status and redirect, as `docs/protocol.md` has it.
    #[default]
    Generic,
    /// copyparty: 201 with `{"status":"OK"}`; 403 is a session or password that has gone.
    Copyparty,
    /// MediaWiki's `api.php`: always 200; the field `MediaWiki-API-Error` says what is wrong.
    Mediawiki,
    /// Wagtail: as Django, but a redirect to its admin's own front page (`/admin/` or `/cms/`) means that the user may not do that.
    Wagtail,
    /// Django: a redirect is success unless it leads to sign-in, a page with 200 is the form with its errors.
    Django,
    /// Rails, by its source: a form's token that is refused is 422.
    Rails,
    /// Laravel, by its source: a form's token that is refused is 419.
    Laravel,
    /// WordPress: REST (`/wp-json/`), `async-upload.php` and the plain form.
    Wordpress,
}

impl Preset {
    /// Its rules, in order, the generic ones last.
    pub fn rules(self) -> Vec<Rule> {
        let mut rules = match self {
            Self::Generic => Vec::new(),
            Self::Copyparty => copyparty(),
            Self::Mediawiki => mediawiki(),
            Self::Django => django(),
            Self::Wagtail => wagtail(),
            Self::Wordpress => wordpress(),
            Self::Rails => vec![
                rule(Verdict::Held(Hold::Token), [status(422, 422), body("InvalidAuthenticityToken")]),
                // `public/422.html`, which is what a refused token leads to in production, and no form's errors are.
                rule(Verdict::Held(Hold::Token), [status(422, 422), body("The change you wanted was rejected")]),
            ],
            Self::Laravel => vec![rule(Verdict::Held(Hold::Token), [status(419, 419)])],
        };
        rules.extend(generic());
        rules
    }

    /// Where the tokens of its forms stand, and where fresh ones are found.
    pub fn csrf(self) -> Vec<Csrf> {
        let some = |text: &str| Some(text.to_owned());
        match self {
            Self::Generic | Self::Copyparty | Self::Wordpress => Vec::new(),
            Self::Django | Self::Wagtail => vec![Csrf {
                field: some("csrfmiddlewaretoken"),
                header: some("X-CSRFToken"),
                cookie: some("csrftoken"),
                input: some("csrfmiddlewaretoken"),
                ..Csrf::default()
            }],
            Self::Rails => vec![Csrf {
                field: some("authenticity_token"),
                header: some("X-CSRF-Token"),
                meta: some("csrf-token"),
                ..Csrf::default()
            }],
            Self::Laravel => vec![
                Csrf {
                    field: some("_token"),
                    header: some("X-CSRF-TOKEN"),
                    meta: some("csrf-token"),
                    input: some("_token"),
                    ..Csrf::default()
                },
                Csrf { header: some("X-XSRF-TOKEN"), cookie: some("XSRF-TOKEN"), ..Csrf::default() },
            ],
            Self::Mediawiki => vec![
                Csrf { field: some("wpEditToken"), input: some("wpEditToken"), ..Csrf::default() },
                Csrf {
                    field: some("token"),
                    page: some("?action=query&meta=tokens&format=json"),
                    json: some("/query/tokens/csrftoken"),
                    ..Csrf::default()
                },
            ],
        }
    }
}

fn rule(then: Verdict, when: impl Into<Vec<Condition>>) -> Rule {
    Rule { when: when.into(), then }
}

fn status(first: u16, last: u16) -> Condition {
    Condition::Status(vec![(first, last)])
}

fn header(name: &str, value: &str) -> Condition {
    Condition::Header(name.to_owned(), Some(value.to_owned()))
}

fn location(pattern: &str) -> Condition {
    Condition::Location(pattern.to_owned())
}

fn json(pointer: &str, value: serde_json::Value) -> Condition {
    Condition::Json(pointer.to_owned(), value)
}

fn body(text: &str) -> Condition {
    Condition::Body(text.to_owned())
}

fn generic() -> Vec<Rule> {
    use Hold::*;
    use Verdict::*;
    vec![
        rule(Accepted, [status(200, 299)]),
        rule(Held(Session), [status(401, 401)]),
        rule(Held(Session), [status(300, 399), Condition::SignIn]),
        rule(Held(Session), [status(300, 399), Condition::Elsewhere]),
        // Redirects that say where the answer is (RFC 9110 §15.4.3, §15.4.4). 301, 307 and 308 ask for the same request elsewhere.
        rule(Accepted, [status(302, 303)]),
        rule(Retry, [Condition::Status(vec![(408, 408), (423, 423), (425, 425), (429, 429), (503, 503)])]),
        // A proxy's word that no answer came in time, or none that it could read (RFC 9110 §15.6.3, §15.6.5).
        rule(Unknown, [Condition::Status(vec![(502, 502), (504, 504)])]),
        rule(Failed, [status(500, 599)]),
    ]
}

fn copyparty() -> Vec<Rule> {
    use Verdict::*;
    vec![
        rule(Rejected, [status(200, 299), json("/status", json!("ERROR"))]),
        rule(Accepted, [status(201, 201)]),
        // A session or password that has gone, or an account that may not write there: it does not say which.
        rule(Held(Hold::Permission), [status(403, 403)]),
        // 200 is a page: the upload form's own or a folder's, not the word that a file was stored.
        rule(Accepted, [status(200, 200), json("/status", json!("OK"))]),
        rule(Rejected, [status(200, 200)]),
    ]
}

/// `api.php` (`action=upload`), which always answers 200, and the form of `Special:Upload`, which answers a success with a redirect to the
/// file's page, and everything else with 200 and a page (1.39).
fn mediawiki() -> Vec<Rule> {
    use Hold::*;
    use Verdict::*;
    const ERROR: &str = "MediaWiki-API-Error";
    // The same file again: it is there, and that is what was asked for.
    let mut rules = vec![rule(Accepted, [header(ERROR, "fileexists-no-change")])];
    let codes =
        |codes: &[&str], then: Verdict| codes.iter().map(|code| rule(then, [header(ERROR, code)])).collect::<Vec<_>>();
    rules.extend(codes(&["notloggedin", "mustbeloggedin", "assert*failed"], Held(Session)));
    rules.extend(codes(&["badtoken", "notoken"], Held(Token)));
    rules.extend(codes(
        &["permissiondenied", "readapidenied", "writeapidenied", "blocked", "autoblocked"],
        Held(Permission),
    ));
    rules.extend(codes(&["ratelimited", "readonly", "maxlag"], Retry));
    rules.extend(codes(&["internal_api_error_*", "stashfailed", "backend-fail-*"], Failed));
    rules.push(rule(Rejected, [Condition::Header(ERROR.to_owned(), None)]));
    rules.push(rule(Accepted, [status(200, 299), json("/upload/result", json!("Success"))]));
    // A redirect to sign in names where to go on after it, in any language.
    rules.push(rule(Held(Session), [status(300, 399), location("*returnto=*")]));
    rules.extend(OF_ITS_PAGES.map(|(text, then)| rule(then, [status(200, 299), body(text)])));
    // A warning (a file of that name exists, …), or a page: nothing was published.
    rules.push(rule(Rejected, [status(200, 299)]));
    rules
}

/// By what pages of `Special:Upload` are known, in their order: by markup, which is the same in all languages, and where there is none by
/// English words.
const OF_ITS_PAGES: [(&str, Verdict); 6] = [
    // In the script of every page.
    ("\"wgUserName\":null", Verdict::Held(Hold::Session)),
    ("The database is currently locked", Verdict::Retry),
    ("exceeded your rate limit", Verdict::Retry),
    // What stands before the form's own text is that the session's data were lost.
    ("</p><div id=\"uploadtext\"", Verdict::Held(Hold::Token)),
    // The form again, with what is wrong.
    ("name=\"wpEditToken\"", Verdict::Rejected),
    // Another page in its place: no permission, blocked, uploads turned off, or locked in another language.
    ("id=\"mw-content-text\"", Verdict::Held(Hold::Permission)),
];

fn django() -> Vec<Rule> {
    use Hold::*;
    use Verdict::*;
    vec![
        rule(Held(Session), [status(300, 399), Condition::SignIn]),
        // Signing in makes the tokens of earlier pages worthless.
        rule(Held(Token), [status(403, 403), body("CSRF")]),
        rule(Accepted, [status(200, 200), json("/success", json!(true))]),
        // 200 without that word is the form, shown again with what was wrong.
        rule(Rejected, [status(200, 200)]),
    ]
}

fn wagtail() -> Vec<Rule> {
    let denied =
        ["*/admin/", "*/cms/"].map(|front| rule(Verdict::Held(Hold::Permission), [status(302, 302), location(front)]));
    denied.into_iter().chain(django()).collect()
}

fn wordpress() -> Vec<Rule> {
    use Hold::*;
    use Verdict::*;
    vec![
        rule(Held(Session), [status(300, 399), location("*wp-login.php*")]),
        rule(Held(Token), [status(403, 403), json("/code", json!("rest_cookie_invalid_nonce"))]),
        rule(Held(Session), [status(401, 401)]),
        // check_ajax_referer() of a session that has gone.
        rule(Held(Token), [status(403, 403), body("-1")]),
        rule(Accepted, [status(200, 200), json("/success", json!(true))]),
        rule(Rejected, [status(200, 200), json("/success", json!(false))]),
        rule(Held(Session), [status(200, 200), body("wp-login.php")]),
        // The form's errors, and wp_die() of other plugins, are pages with 200.
        rule(Rejected, [status(200, 200), header("Content-Type", "text/html*")]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rules::{Seen, judge};

    /// Preset, what happened, status, fields, body, what it means.
    type Case = (Preset, &'static str, u16, &'static [(&'static str, &'static str)], &'static str, Verdict);

    /// Shapes as the applications gave them: copyparty 1.20, MediaWiki and Wagtail in trials, WordPress by its source.
    const CASES: &[Case] = {
        use Hold::*;
        use Preset::*;
        use Verdict::*;
        &[
            (Generic, "created", 201, &[], "{}", Accepted),
            (Generic, "redirect after post", 303, &[("Location", "/images/")], "", Accepted),
            (Generic, "session gone", 401, &[], "", Held(Session)),
            (Generic, "sent to sign-in", 302, &[("location", "/users/sign_in")], "", Held(Session)),
            (Generic, "too many", 429, &[], "", Retry),
            (Generic, "proxy without backend", 502, &[], "", Unknown),
            (Generic, "restarting", 503, &[], "", Retry),
            (Generic, "slow backend", 504, &[], "", Unknown),
            (Generic, "sent to another server", 302, &[("Location", "https://id.example/?x")], "", Held(Session)),
            (
                Generic,
                "redirect to itself by its own name",
                302,
                &[("Location", "http://127.0.0.1:8000/7")],
                "",
                Accepted,
            ),
            (Generic, "elsewhere, please", 301, &[("Location", "/upload/")], "", Rejected),
            (Generic, "there, with the same", 307, &[("Location", "/upload/")], "", Rejected),
            (Generic, "broken by it", 500, &[], "", Failed),
            (Generic, "not implemented", 501, &[], "", Failed),
            (Generic, "too large", 413, &[], "", Rejected),
            (
                Copyparty,
                "stored",
                201,
                &[("Content-Type", "application/json"), ("Set-Cookie", "cppwd=s3cret; HttpOnly; SameSite=Strict")],
                r#"{"status":"OK","sz":5,"mbps":1.2,"files":[{"url":"http://h/a.txt","sz":5,"fn":"a.txt"}]}"#,
                Accepted,
            ),
            (
                Copyparty,
                "no permission",
                403,
                &[("Content-Type", "text/html")],
                "<pre>you don't have 'write'",
                Held(Permission),
            ),
            (Copyparty, "a page", 200, &[("Content-Type", "text/html; charset=utf-8")], "<!DOCTYPE html>", Rejected),
            (
                Mediawiki,
                "published",
                200,
                &[("Content-Type", "application/json; charset=utf-8")],
                r#"{"upload":{"result":"Success","filename":"A.png","imageinfo":{"size":68}}}"#,
                Accepted,
            ),
            (
                Mediawiki,
                "after sign-out",
                200,
                &[("MediaWiki-API-Error", "badtoken")],
                r#"{"error":{"code":"badtoken","info":"Invalid CSRF token."}}"#,
                Held(Token),
            ),
            (
                Mediawiki,
                "the same again",
                200,
                &[("mediawiki-api-error", "fileexists-no-change")],
                r#"{"error":{"code":"fileexists-no-change"}}"#,
                Accepted,
            ),
            (
                Mediawiki,
                "another file has the name",
                200,
                &[],
                r#"{"upload":{"result":"Warning","warnings":{"exists":"A.png"},"filekey":"1.2.png"}}"#,
                Rejected,
            ),
            (Mediawiki, "read-only", 200, &[("MediaWiki-API-Error", "readonly")], "{}", Retry),
            (Mediawiki, "asserted user", 200, &[("MediaWiki-API-Error", "assertuserfailed")], "{}", Held(Session)),
            (Mediawiki, "form: published", 302, &[("Location", "https://h/index.php/Datei:A.png")], "", Accepted),
            (
                Mediawiki,
                "form: sent to sign-in, in German",
                302,
                &[("Location", "https://h/index.php?title=Spezial:Anmelden&returnto=Spezial%3AHochladen")],
                "",
                Held(Session),
            ),
            (Mediawiki, "form: signed out", 200, &[], "<script>{\"wgUserName\":null}</script>", Held(Session)),
            (Mediawiki, "form: some page", 200, &[("Content-Type", "text/html")], "<html>", Rejected),
            (Mediawiki, "database gone", 500, &[("MediaWiki-API-Error", "internal_api_error_DB")], "<h1>Sorry", Failed),
            (Mediawiki, "not an image", 200, &[("MediaWiki-API-Error", "verification-error")], "{}", Rejected),
            (Django, "added", 302, &[("Location", "/admin/images/")], "", Accepted),
            (
                Django,
                "session gone",
                302,
                &[("Location", "/admin/login/?next=/admin/images/add/"), ("Set-Cookie", "sessionid=; Max-Age=0")],
                "",
                Held(Session),
            ),
            (Wagtail, "added", 302, &[("Location", "/admin/images/")], "", Accepted),
            (Wagtail, "may not", 302, &[("Location", "/admin/")], "", Held(Permission)),
            (Django, "invalid file", 200, &[("Content-Type", "text/html")], "<p class=\"error-message\">", Rejected),
            (Django, "several at once", 200, &[], r#"{"success": true, "image_id": 7}"#, Accepted),
            (Django, "one of several refused", 200, &[], r#"{"success": false, "error_message": "x"}"#, Rejected),
            (Django, "dead CSRF cookie", 403, &[], "<h1>Forbidden</h1><p>CSRF verification failed.", Held(Token)),
            (Django, "not permitted", 403, &[], "<h1>Forbidden</h1>", Rejected),
            (Rails, "form's token", 422, &[], "<h1>The change you wanted was rejected (422)</h1>", Held(Token)),
            (Rails, "invalid", 422, &[], "<form>is too large</form>", Rejected),
            (Rails, "sign-in", 302, &[("Location", "http://h/users/sign_in")], "", Held(Session)),
            (Laravel, "form's token", 419, &[], "<title>Page Expired</title>", Held(Token)),
            (Laravel, "invalid", 422, &[], "{}", Rejected),
            (Wordpress, "REST", 201, &[("Location", "https://h/wp-json/wp/v2/media/7")], "{\"id\":7}", Accepted),
            (
                Wordpress,
                "REST, session gone",
                401,
                &[],
                r#"{"code":"rest_cannot_create","message":"Sorry, you are not allowed","data":{"status":401}}"#,
                Held(Session),
            ),
            (
                Wordpress,
                "REST, nonce gone",
                403,
                &[],
                r#"{"code":"rest_cookie_invalid_nonce","message":"Cookie check failed","data":{"status":403}}"#,
                Held(Token),
            ),
            (Wordpress, "async-upload", 200, &[], r#"{"success":true,"data":{"id":7}}"#, Accepted),
            (Wordpress, "async-upload refuses", 200, &[], r#"{"success":false,"data":{"message":"type"}}"#, Rejected),
            (Wordpress, "form", 302, &[("Location", "https://h/wp-admin/upload.php")], "", Accepted),
            (
                Wordpress,
                "sign-in",
                302,
                &[("Location", "https://h/wp-login.php?redirect_to=x&reauth=1")],
                "",
                Held(Session),
            ),
        ]
    };

    #[test]
    fn every_preset_reads_its_applications_recorded_answers() {
        for (preset, what, status, fields, body, expected) in CASES {
            let fields: Vec<_> = fields.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
            let seen = Seen { status: *status, fields: &fields, body: body.as_bytes(), own: ["h", "127.0.0.1:8000"] };
            assert_eq!(judge(&preset.rules(), seen), *expected, "{preset:?}: {what}");
        }
    }
}
