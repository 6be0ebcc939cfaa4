//! A form's token against forged requests, made fresh for an upload that its owner releases: [`Csrf`], the tables `[[route.csrf]]` of
//! `routes.toml`. Pure; `renew` asks the application.
//!
//! ```toml
//! [[route.csrf]]
//! field = "authenticity_token"     # the form's field that carries it, and …
//! header = "X-CSRF-Token"          # … or the header
//! cookie = "csrftoken"             # a fresh one is this cookie of the new session, …
//! page = "/photos/new"             # … or stands on this page (default: the upload's own path; "?a=b": that path with this query),
//! meta = "csrf-token"              # in <meta name=…>,
//! input = "authenticity_token"     # or <input name=…>,
//! json = "/token"                  # or there in JSON (RFC 6901)
//! ```
//!
//! How it is built: [`find`] says where the token stands in a body, [`edit`] puts another in its place as the body goes by, and [`page`]
//! reads the application's page. None imports another.

pub mod edit;
pub mod find;
pub mod page;

use self::page::Page;
use crate::policy::paths;
use serde::Deserialize;

/// The most tables of one route: an application has a form and an API.
pub const CSRF_MAX: usize = 8;

/// The longest token: one of Laravel's cookies has some 350 bytes.
pub const TOKEN_MAX: usize = 4 * 1024;

/// Where a token stands in a request, and where a fresh one is found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Csrf {
    /// The form's field.
    pub field: Option<String>,
    /// The request's header.
    pub header: Option<String>,
    /// A cookie of the session.
    pub cookie: Option<String>,
    /// The page; none: the upload's own path and query.
    pub page: Option<String>,
    /// `<input name=…>` of the page.
    pub input: Option<String>,
    /// `<meta name=…>` of the page.
    pub meta: Option<String>,
    /// A pointer into the page's JSON.
    pub json: Option<String>,
}

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsrfEntry {
    field: Option<String>,
    header: Option<String>,
    cookie: Option<String>,
    page: Option<String>,
    input: Option<String>,
    meta: Option<String>,
    json: Option<String>,
}

impl CsrfEntry {
    /// What it means.
    ///
    /// # Errors
    /// The field at fault, and what is wrong with it.
    pub fn check(self) -> Result<Csrf, (&'static str, String)> {
        let Self { field, header, cookie, page, input, meta, json } = self;
        let rule = Csrf { field, header, cookie, page, input, meta, json };
        if rule.field.is_none() && rule.header.is_none() {
            return Err(("csrf", "says neither in which `field` nor in which `header` the token stands".into()));
        }
        if rule.cookie.is_none() && !rule.reads_page() {
            return Err(("csrf", "names no `cookie`, `input`, `meta` or `json` with a fresh token".into()));
        }
        if rule.page.is_some() && !rule.reads_page() {
            return Err(("csrf.page", "is read by none of `input`, `meta` and `json`".into()));
        }
        let page =
            rule.page.as_deref().map(|page| if page.starts_with('?') { format!("/{page}") } else { page.to_owned() });
        if let Some(page) = page.filter(|page| !paths::is_target(page) || page.starts_with("//")) {
            return Err(("csrf.page", format!("must be a path that begins with `/`, or a query, not `{page}`")));
        }
        if let Some(pointer) = rule.json.as_ref().filter(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
            return Err(("csrf.json", format!("is the pointer `{pointer}`, which must begin with `/`")));
        }
        Ok(rule)
    }
}

impl Csrf {
    /// Whether a page is to be asked for.
    pub const fn reads_page(&self) -> bool {
        self.input.is_some() || self.meta.is_some() || self.json.is_some()
    }

    /// The target of the page, for an upload to this target.
    pub fn page_for(&self, target: &str) -> String {
        match self.page.as_deref() {
            None => target.to_owned(),
            Some(query) if query.starts_with('?') => format!("{}{query}", target.split('?').next().unwrap_or_default()),
            Some(page) => page.to_owned(),
        }
    }

    /// The token that a page has, if it has one that can stand in a request. A megabyte takes some milliseconds.
    pub fn read(&self, page: &Page) -> Option<String> {
        let body = &page.body;
        let in_html = |tag, name: &Option<String>, wanted| {
            let name = name.as_deref().filter(|_| page.is_html)?;
            page::attribute(body, tag, name, wanted)
        };
        let found = self.json.as_ref().and_then(|pointer| page::of_json(body, pointer));
        let found = found.or_else(|| in_html("input", &self.input, "value"));
        let found = found.or_else(|| in_html("meta", &self.meta, "content"));
        found.filter(|token| is_token(token))
    }
}

/// Whether a text can stand in a header and in a part of a form.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.len() <= TOKEN_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<Csrf, (&'static str, String)> {
        toml::from_str::<CsrfEntry>(text).unwrap().check()
    }

    #[test]
    fn a_table_says_where_the_token_stands_and_where_a_fresh_one_is() {
        let own = rule("field = \"t\"\ninput = \"t\"").unwrap();
        assert_eq!(own.page_for("/up?a=b"), "/up?a=b");
        let query = rule("field = \"t\"\npage = \"?x=y\"\njson = \"/t\"").unwrap();
        assert_eq!(query.page_for("/w/api.php?action=upload"), "/w/api.php?x=y");
        let page = |media: &str, body: &'static str| Page::new(media, body.into());
        let json = |body| page("application/json", body);
        assert_eq!(query.read(&json("{\"t\":\"abc+\\\\\"}")).as_deref(), Some("abc+\\"));
        assert_eq!(query.read(&json("{\"t\":\"a\\r\\nb\"}")), None, "it would end the part");
        let form = "<input name=t value=x>";
        assert_eq!(own.read(&page("text/html; charset=utf-8", form)).as_deref(), Some("x"));
        assert_eq!(own.read(&page("text/plain", form)), None, "no browser sees a form there");
        for (text, field) in [
            ("cookie = \"c\"", "csrf"),
            ("field = \"t\"", "csrf"),
            ("field = \"t\"\ncookie = \"c\"\npage = \"/x\"", "csrf.page"),
            ("field = \"t\"\ninput = \"t\"\npage = \"//evil.example/\"", "csrf.page"),
            ("field = \"t\"\ninput = \"t\"\npage = \"x\"", "csrf.page"),
            ("field = \"t\"\njson = \"t\"", "csrf.json"),
        ] {
            assert_eq!(rule(text).unwrap_err().0, field, "{text}");
        }
    }
}
