//! The frame around every page: [`page`], and the page of a [`refusal`].

use hoop_http::{Body, Code, Origin, Problem};
use hoop_pages::words::ServiceWords;
use hoop_pages::{Language, answer, shown};
use http::{HeaderName, Response, StatusCode, header};
use maud::{DOCTYPE, Markup, html};

/// What a page may load and do. Styles and scripts are files of ours; an application's own `Content-Security-Policy`
/// does not reach these pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Who asks, as far as it matters to what is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// The application knows them.
    User,
    /// They have credentials, and the application is not asked whose.
    Credentials,
    /// The application knows nobody, or there is nothing to know them by.
    Nobody,
}

/// What every page needs.
pub struct Frame<'a> {
    /// In which language.
    pub language: Language,
    /// The site.
    pub origin: &'a Origin,
    /// Who asks.
    pub asker: Asker,
    /// Where one signs in, if `[user]` says so: a path of the application, or a URL.
    pub sign_in: Option<String>,
}

/// A page as an answer.
pub fn page(status: StatusCode, page: Markup) -> Response<Body> {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::VARY, "Accept, Accept-Language, Cookie, Authorization"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    answer(status, page, &headers)
}

/// A refusal, for whoever sent a form or opened a page.
pub fn refusal(frame: &Frame<'_>, problem: &Problem) -> Response<Body> {
    let words = ServiceWords::of(frame.language);
    let (explained, detailed) = match problem.code {
        Code::SignInRequired => {
            return page(problem.code.status(), shell(frame, words.sign_in_title, "", &sign_in(frame)));
        }
        Code::UploadDone | Code::UploadStopped | Code::UploadExpired => (words.refused_late, false),
        Code::NotOwner => (words.refused_owner, false),
        Code::UploadUnknown => (words.refused_gone, false),
        Code::UpstreamUnreachable => (words.unreachable, false),
        Code::OriginForbidden => (words.refused_origin, false),
        Code::RequestInvalid => (words.refused_form, true),
        _ => (words.refused_else, true),
    };
    // What is ours is translated; what one of the table's codes says of this occurrence is not.
    let detail = if problem.detail.is_empty() { problem.code.title() } else { &problem.detail };
    let main = html! {
        h1 { (words.refused) }
        section.card.notice.bad {
            p {
                (explained)
                @if detailed { " " span lang="en" { (shown(detail)) } " " small { "(" (problem.code) ")" } }
            }
            p { a.button href="/hoop/uploads" { (words.to_uploads) } }
        }
    };
    page(problem.code.status(), shell(frame, words.refused, "", &main))
}

/// What to do for somebody whom the application does not know.
pub fn sign_in(frame: &Frame<'_>) -> Markup {
    let words = ServiceWords::of(frame.language);
    html! {
        section #sign-in.card.notice {
            h2 { (words.sign_in_title) }
            p { (words.sign_in_why) }
            @match frame.sign_in.as_deref().and_then(|url| link(frame.origin, url)) {
                Some(url) => p { a.button.primary href=(url) { (words.sign_in) } },
                None => p { (words.sign_in_elsewhere) },
            }
        }
    }
}

/// A link that leads somewhere and nothing more: a path of the site, or an http(s) URL.
fn link(origin: &Origin, url: &str) -> Option<String> {
    let url = url::Url::parse(origin.as_str()).ok()?.join(url).ok()?;
    matches!(url.scheme(), "http" | "https").then(|| url.into())
}

/// The frame around every page. `here` is the path that the page stands at.
pub fn shell(frame: &Frame<'_>, title: &str, here: &str, main: &Markup) -> Markup {
    let words = ServiceWords::of(frame.language);
    let site = shown(frame.origin.authority());
    html! {
        (DOCTYPE)
        html lang=(words.language.tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (site) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/hoop/pages.css";
                script type="module" src="/hoop/pages.js" {}
            }
            body {
                header.bar {
                    a.back href="/" { span aria-hidden="true" { "←" } " " ((words.back)(&site)) }
                    nav {
                        @for (path, label) in [("/hoop/uploads", words.uploads), ("/hoop/settings", words.settings)] {
                            a href=(path) aria-current=[(path == here).then_some("page")] { (label) }
                        }
                    }
                }
                main { (main) }
                footer { (words.footer) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn a_refusal_page_explains_itself_and_escapes_foreign_text() {
        let origin = "https://photos.example".parse().unwrap();
        for language in Language::ALL {
            for &code in Code::ALL {
                let frame = Frame { language, origin: &origin, asker: Asker::User, sign_in: Some("/login".to_owned()) };
                let answer = refusal(&frame, &Problem::new(code, "<img src=x>"));
                assert_eq!(answer.status(), code.status());
                assert_eq!(answer.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                let body = std::str::from_utf8(&body).unwrap();
                assert!(!body.contains("<img") && body.contains("<h1>") || code == Code::SignInRequired, "{body}");
                assert_eq!(body.contains("https://photos.example/login"), code == Code::SignInRequired);
            }
        }
    }

    #[test]
    fn a_sign_in_link_is_never_a_script() {
        let origin = "https://photos.example".parse().unwrap();
        assert_eq!(link(&origin, "/login?next=/").as_deref(), Some("https://photos.example/login?next=/"));
        assert_eq!(link(&origin, "https://sso.example/").as_deref(), Some("https://sso.example/"));
        assert_eq!(link(&origin, "javascript:alert(1)"), None);
        assert_eq!(link(&origin, "data:text/html,x"), None);
    }
}
