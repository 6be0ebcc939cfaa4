//! The frame around every page: [`page`], and the page of a [`refusal`].

use super::words::{Language, Words};
use hoop_http::page::text;
use hoop_http::{Body, Code, Origin, Problem, in_pieces};
use http::{HeaderValue, Response, StatusCode, header};

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
pub fn page(status: StatusCode, html: String) -> Response<Body> {
    let mut response = Response::new(in_pieces(html));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::VARY, "Accept, Accept-Language, Cookie, Authorization"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A refusal, for whoever sent a form or opened a page.
pub fn refusal(frame: &Frame<'_>, problem: &Problem) -> Response<Body> {
    let words = frame.language.words();
    let explained = match problem.code {
        Code::SignInRequired => {
            return page(problem.code.status(), shell(frame, words.sign_in_title, "", &sign_in(frame)));
        }
        Code::UploadDone | Code::UploadStopped | Code::UploadExpired => text(words.refused_late),
        Code::NotOwner => text(words.refused_owner),
        Code::UploadUnknown => text(words.refused_gone),
        Code::UpstreamUnreachable => text(words.unreachable),
        Code::OriginForbidden => text(words.refused_origin),
        Code::RequestInvalid => detailed(words.refused_form, problem),
        _ => detailed(words.refused_else, problem),
    };
    let main = format!(
        "<h1>{}</h1><section class=\"card notice bad\"><p>{explained}</p><p><a class=\"button\" href=\"/hoop/uploads\">{}</a></p></section>",
        text(words.refused),
        text(words.to_uploads)
    );
    page(problem.code.status(), shell(frame, words.refused, "", &main))
}

/// What is ours is translated; what one of the table's codes says of this occurrence is not.
fn detailed(words: &str, problem: &Problem) -> String {
    let detail = if problem.detail.is_empty() { problem.code.title() } else { &problem.detail };
    format!("{} <span lang=\"en\">{}</span> <small>({})</small>", text(words), text(detail), problem.code)
}

/// What to do for somebody whom the application does not know.
pub fn sign_in(frame: &Frame<'_>) -> String {
    let words = frame.language.words();
    let how = match frame.sign_in.as_deref().and_then(|url| link(frame.origin, url)) {
        Some(url) => format!("<p><a class=\"button primary\" href=\"{}\">{}</a></p>", text(&url), text(words.sign_in)),
        None => format!("<p>{}</p>", text(words.sign_in_elsewhere)),
    };
    format!(
        "<section class=\"card notice\" id=\"sign-in\"><h2>{}</h2><p>{}</p>{how}</section>",
        text(words.sign_in_title),
        text(words.sign_in_why)
    )
}

/// A link that leads somewhere and nothing more: a path of the site, or an http(s) URL.
fn link(origin: &Origin, url: &str) -> Option<String> {
    let url = url::Url::parse(origin.as_str()).ok()?.join(url).ok()?;
    matches!(url.scheme(), "http" | "https").then(|| url.into())
}

/// The frame around every page. `here` is the path that the page stands at.
pub fn shell(frame: &Frame<'_>, title: &str, here: &str, main: &str) -> String {
    let words: &Words = frame.language.words();
    let site = text(frame.origin.authority());
    let tab = |path: &str, label: &str| {
        let current = if path == here { " aria-current=\"page\"" } else { "" };
        format!("<a href=\"{path}\"{current}>{}</a>", text(label))
    };
    format!(
        "<!doctype html>\n<html lang=\"{tag}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title} · {site}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"/hoop/pages.css\">\n\
         <script type=\"module\" src=\"/hoop/pages.js\"></script>\n</head>\n<body>\n\
         <header class=\"bar\"><a class=\"back\" href=\"/\"><span aria-hidden=\"true\">←</span> {back}</a><nav>{uploads}{settings}</nav></header>\n\
         <main>{main}</main>\n<footer>{footer}</footer>\n</body>\n</html>\n",
        tag = words.tag,
        title = text(title),
        back = text(&(words.back)(frame.origin.authority())),
        uploads = tab("/hoop/uploads", words.uploads),
        settings = tab("/hoop/settings", words.settings),
        footer = text(words.footer),
    )
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
