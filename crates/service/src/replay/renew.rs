//! Fetches the form token of an owner's new session for a released upload: [`renew`] (`docs/protocol.md` §7, "Form
//! tokens").
//!
//! Bounds: [`PAGE_TIMEOUT`] and [`PAGE_MAX`] for each page, and [`crate::policy::csrf::CSRF_MAX`] pages. A page is
//! parsed on a blocking thread, and as HTML only if its `Content-Type` says so.

use super::application::Application;
use crate::model::Credentials;
use crate::policy::csrf::page::{self, Page};
use crate::policy::csrf::{Csrf, is_token};
use crate::store::blocking;
use hoop_http::{ReadError, is_sign_in, read_limited};
use http::{StatusCode, header};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the application may take for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest page that is read: forms of applications have some tens of kilobytes.
const PAGE_MAX: usize = 1 << 20;

/// Why there is no fresh token.
#[derive(Debug)]
pub enum Trouble {
    /// The application cannot be asked now.
    Unreachable(String),
    /// It does not take the new session for one.
    SignedOut(String),
    /// It gives none.
    Missing(String),
}

/// Fresh tokens for these rules, in their order, for an upload to `target`. Cookies that a page sets are added to the
/// credentials.
///
/// # Errors
/// If there is none for one of them.
pub async fn renew(
    application: &Application,
    rules: &[&Csrf],
    target: &str,
    credentials: &mut Credentials,
) -> Result<Vec<String>, Trouble> {
    let mut pages = BTreeMap::new();
    let mut tokens = Vec::new();
    for rule in rules {
        if let Some(token) = of_cookie(rule, credentials) {
            tokens.push(token);
            continue;
        }
        let missing = |place: &str| Trouble::Missing(format!("no fresh token for the form was found {place}"));
        if !rule.reads_page() {
            return Err(missing(&format!("in the cookie `{}`", rule.cookie.as_deref().unwrap_or_default())));
        }
        let path = rule.page_for(target);
        if !pages.contains_key(&path) {
            let page = fetch(application, &path, rule.json.is_some(), credentials).await?;
            pages.insert(path.clone(), page);
        }
        let shown = path.split('?').next().unwrap_or_default();
        let token = match of_cookie(rule, credentials) {
            Some(token) => Some(token),
            None => {
                let (rule, page) = ((*rule).clone(), pages[&path].clone());
                blocking(move || rule.read(&page)).await.map_err(|error| Trouble::Unreachable(error.to_string()))?
            }
        };
        tokens.push(token.ok_or_else(|| missing(&format!("at {shown}")))?);
    }
    Ok(tokens)
}

fn of_cookie(rule: &Csrf, credentials: &Credentials) -> Option<String> {
    page::cookie(credentials.cookie.as_deref()?, rule.cookie.as_deref()?).filter(|token| is_token(token))
}

/// Gets a page as the user's browser would.
async fn fetch(
    application: &Application,
    path: &str,
    json: bool,
    credentials: &mut Credentials,
) -> Result<Page, Trouble> {
    let unreachable = |error: &dyn std::fmt::Display| Trouble::Unreachable(format!("asked for a fresh token: {error}"));
    let asking = async {
        let accept = if json { "application/json" } else { "text/html" };
        let response = application.get(path, accept, credentials).await.map_err(|error| unreachable(&error))?;
        let (head, body) = response.into_parts();
        let said = || format!("asked for a fresh token, it answered {}", head.status.as_u16());
        let to_sign_in = head.headers.get_all(header::LOCATION).iter().any(|to| is_sign_in(to.as_bytes()));
        match head.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(Trouble::SignedOut(said())),
            status if status.is_redirection() && to_sign_in => return Err(Trouble::SignedOut(said())),
            status if status.is_server_error() => return Err(Trouble::Unreachable(said())),
            _ => return Err(Trouble::Missing(said())),
        }
        let body = read_limited(body, PAGE_MAX).await.map_err(|error| match error {
            ReadError::TooLong { .. } => {
                Trouble::Missing("the page with the form's token is longer than 1 MiB".to_owned())
            }
            error @ ReadError::Broken(_) => unreachable(&error),
        })?;
        Ok((head.headers, body))
    };
    let asked = tokio::time::timeout(PAGE_TIMEOUT, asking).await;
    let (headers, body) = asked.unwrap_or_else(|_| Err(unreachable(&"no answer in 15 s")))?;
    for set in headers.get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok()) {
        let cookies = page::with_cookie(credentials.cookie.as_deref().unwrap_or_default(), set);
        // No longer than the credentials of a request may be.
        if cookies.len() <= crate::model::credentials::CREDENTIALS_MAX {
            credentials.cookie = Some(cookies).filter(|cookies| !cookies.is_empty());
        }
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(Page::new(content_type, body))
}
