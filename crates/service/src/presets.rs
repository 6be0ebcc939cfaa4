//! Success rules for applications that we know: [`Preset`].

use crate::rules::{Condition, Rule, Verdict};
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
    /// Django and Wagtail: a redirect is success unless it leads to sign-in, a page with 200 is the form with its errors.
    Django,
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
            Self::Wordpress => wordpress(),
        };
        rules.extend(generic());
        rules
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
    use Verdict::*;
    vec![
        rule(Accepted, [status(200, 299)]),
        rule(Held, [status(401, 401)]),
        rule(Held, [status(300, 399), Condition::SignIn]),
        rule(Accepted, [status(300, 399)]),
        rule(Retry, [Condition::Status(vec![(408, 408), (423, 423), (425, 425), (429, 429), (503, 503)])]),
        // A proxy's word that no answer came in time, or none that it could read (RFC 9110 §15.6.3, §15.6.5).
        rule(Unknown, [Condition::Status(vec![(502, 502), (504, 504)])]),
    ]
}

fn copyparty() -> Vec<Rule> {
    use Verdict::*;
    vec![
        rule(Rejected, [status(200, 299), json("/status", json!("ERROR"))]),
        rule(Accepted, [status(201, 201)]),
        rule(Held, [status(403, 403)]),
        // 200 is a page: the upload form's own or a folder's, not the word that a file was stored.
        rule(Accepted, [status(200, 200), json("/status", json!("OK"))]),
        rule(Rejected, [status(200, 200)]),
    ]
}

fn mediawiki() -> Vec<Rule> {
    use Verdict::*;
    const ERROR: &str = "MediaWiki-API-Error";
    // The same file again: it is there, and that is what was asked for.
    let mut rules = vec![rule(Accepted, [header(ERROR, "fileexists-no-change")])];
    let held = ["badtoken", "notloggedin", "mustbeloggedin", "assert*failed", "permissiondenied", "readapidenied"];
    rules.extend(held.map(|code| rule(Held, [header(ERROR, code)])));
    rules.extend(["ratelimited", "readonly", "maxlag"].map(|code| rule(Retry, [header(ERROR, code)])));
    rules.push(rule(Rejected, [Condition::Header(ERROR.to_owned(), None)]));
    rules.push(rule(Accepted, [status(200, 200), json("/upload/result", json!("Success"))]));
    // A warning (a file of that name exists, …) means that nothing was published.
    rules.push(rule(Rejected, [status(200, 200), json("/upload/result", json!("Warning"))]));
    rules
}

fn django() -> Vec<Rule> {
    use Verdict::*;
    vec![
        rule(Held, [status(300, 399), Condition::SignIn]),
        // The CSRF cookie in T is from a session that has gone; signing in again brings another.
        rule(Held, [status(403, 403), body("CSRF")]),
        rule(Accepted, [status(200, 200), json("/success", json!(true))]),
        // 200 without that word is the form, shown again with what was wrong.
        rule(Rejected, [status(200, 200)]),
    ]
}

fn wordpress() -> Vec<Rule> {
    use Verdict::*;
    vec![
        rule(Held, [status(300, 399), location("*wp-login.php*")]),
        rule(Held, [status(403, 403), json("/code", json!("rest_cookie_invalid_nonce"))]),
        rule(Held, [status(401, 401)]),
        // check_ajax_referer() of a session that has gone.
        rule(Held, [status(403, 403), body("-1")]),
        rule(Accepted, [status(200, 200), json("/success", json!(true))]),
        rule(Rejected, [status(200, 200), json("/success", json!(false))]),
        rule(Held, [status(200, 200), body("wp-login.php")]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Seen, judge};

    /// Preset, what happened, status, fields, body, what it means.
    type Case = (Preset, &'static str, u16, &'static [(&'static str, &'static str)], &'static str, Verdict);

    /// Shapes as the applications gave them: copyparty 1.20, MediaWiki and Wagtail in trials, WordPress by its source.
    const CASES: &[Case] = {
        use Preset::*;
        use Verdict::*;
        &[
            (Generic, "created", 201, &[], "{}", Accepted),
            (Generic, "redirect after post", 303, &[("Location", "/images/")], "", Accepted),
            (Generic, "session gone", 401, &[], "", Held),
            (Generic, "sent to sign-in", 302, &[("location", "/users/sign_in")], "", Held),
            (Generic, "too many", 429, &[], "", Retry),
            (Generic, "proxy without backend", 502, &[], "", Unknown),
            (Generic, "restarting", 503, &[], "", Retry),
            (Generic, "slow backend", 504, &[], "", Unknown),
            (Generic, "broken by it", 500, &[], "", Rejected),
            (Generic, "not implemented", 501, &[], "", Rejected),
            (Generic, "too large", 413, &[], "", Rejected),
            (
                Copyparty,
                "stored",
                201,
                &[("Content-Type", "application/json"), ("Set-Cookie", "cppwd=s3cret; HttpOnly; SameSite=Strict")],
                r#"{"status":"OK","sz":5,"mbps":1.2,"files":[{"url":"http://h/a.txt","sz":5,"fn":"a.txt"}]}"#,
                Accepted,
            ),
            (Copyparty, "no permission", 403, &[("Content-Type", "text/html")], "<pre>you don't have 'write'", Held),
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
                Held,
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
            (Mediawiki, "asserted user", 200, &[("MediaWiki-API-Error", "assertuserfailed")], "{}", Held),
            (Mediawiki, "not an image", 200, &[("MediaWiki-API-Error", "verification-error")], "{}", Rejected),
            (Django, "added", 302, &[("Location", "/admin/images/")], "", Accepted),
            (
                Django,
                "session gone",
                302,
                &[("Location", "/admin/login/?next=/admin/images/add/"), ("Set-Cookie", "sessionid=; Max-Age=0")],
                "",
                Held,
            ),
            (Django, "invalid file", 200, &[("Content-Type", "text/html")], "<p class=\"error-message\">", Rejected),
            (Django, "several at once", 200, &[], r#"{"success": true, "image_id": 7}"#, Accepted),
            (Django, "one of several refused", 200, &[], r#"{"success": false, "error_message": "x"}"#, Rejected),
            (Django, "dead CSRF cookie", 403, &[], "<h1>Forbidden</h1><p>CSRF verification failed.", Held),
            (Django, "not permitted", 403, &[], "<h1>Forbidden</h1>", Rejected),
            (Wordpress, "REST", 201, &[("Location", "https://h/wp-json/wp/v2/media/7")], "{\"id\":7}", Accepted),
            (
                Wordpress,
                "REST, session gone",
                401,
                &[],
                r#"{"code":"rest_cannot_create","message":"Sorry, you are not allowed","data":{"status":401}}"#,
                Held,
            ),
            (
                Wordpress,
                "REST, nonce gone",
                403,
                &[],
                r#"{"code":"rest_cookie_invalid_nonce","message":"Cookie check failed","data":{"status":403}}"#,
                Held,
            ),
            (Wordpress, "async-upload", 200, &[], r#"{"success":true,"data":{"id":7}}"#, Accepted),
            (Wordpress, "async-upload refuses", 200, &[], r#"{"success":false,"data":{"message":"type"}}"#, Rejected),
            (Wordpress, "form", 302, &[("Location", "https://h/wp-admin/upload.php")], "", Accepted),
            (Wordpress, "sign-in", 302, &[("Location", "https://h/wp-login.php?redirect_to=x&reauth=1")], "", Held),
        ]
    };

    #[test]
    fn every_preset_reads_its_applications_recorded_answers() {
        for (preset, what, status, fields, body, expected) in CASES {
            let fields: Vec<_> = fields.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
            let seen = Seen { status: *status, fields: &fields, body: body.as_bytes() };
            assert_eq!(judge(&preset.rules(), seen), *expected, "{preset:?}: {what}");
        }
    }
}
