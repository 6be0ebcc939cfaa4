//! Pages for people: the user's uploads and settings, and refusals of their forms. They show what programs get.
//!
//! A link of another site may open a page; that site learns nothing. So pages look at who asks, and not at the origin.
//! What a form *does* is guarded where it is done.

use crate::api::Api;
use crate::api::caller::Caller;
use crate::api::html::{self, Asker, Frame, ListView, SettingsView};
use crate::api::listing::{self, LIST_MAX};
use crate::api::request::{self, Representation};
use crate::api::settings;
use crate::model::content::FORM;
use hoop_http::{Body, Problem};
use hoop_pages::Language;
use http::{HeaderMap, Method, Response, StatusCode};
use std::net::IpAddr;

/// The page of a user's uploads, or of why they cannot be shown (`upstream-unreachable`, …). It asks an anonymous
/// caller to sign in.
pub async fn uploads(api: &Api, headers: &HeaderMap, address: IpAddr) -> Response<Body> {
    let language = Language::of(headers);
    let listed = async {
        let caller = Caller::of(api, headers, address).await?;
        let entries = if caller.tags().is_empty() { Vec::new() } else { listing::all(api, caller.tags()).await? };
        Ok((asker(&caller), entries))
    };
    let (asker, entries) = match listed.await {
        Ok(listed) => listed,
        Err(problem) => return refusal(api, language, &problem),
    };
    let uploads = listing::documents(&entries);
    let capped = uploads.len() == LIST_MAX || uploads.len() < entries.len();
    let view = ListView { uploads: &uploads, capped, now: api.context.clock.unix() };
    html::page(StatusCode::OK, html::list(&frame(api, language, asker), &view))
}

/// The page of a user's settings, or of why they cannot be shown. `query` says whether a form has just been saved.
pub async fn settings(api: &Api, headers: &HeaderMap, query: Option<&str>, address: IpAddr) -> Response<Body> {
    let language = Language::of(headers);
    let loaded = async {
        let caller = Caller::of(api, headers, address).await?;
        Ok((asker(&caller), settings::of(api, &caller).await?))
    };
    let (asker, shown) = match loaded.await {
        Ok(loaded) => loaded,
        Err(problem) => return refusal(api, language, &problem),
    };
    let settings = serde_json::to_value(&shown).expect("settings have a JSON form");
    let view = SettingsView { settings: &settings, just_saved: query == Some("saved") };
    html::page(StatusCode::OK, html::settings(&frame(api, language, asker), &view))
}

/// The language for the answer to a form that was sent without script. None: a program or a script asks.
pub fn by_form(method: &Method, headers: &HeaderMap) -> Option<Language> {
    let is_form = method == Method::POST && request::media_type(headers) == FORM;
    (is_form && Representation::by(headers) == Representation::Html).then(|| Language::of(headers))
}

/// The page of a refusal.
pub fn refusal(api: &Api, language: Language, problem: &Problem) -> Response<Body> {
    html::refusal(&frame(api, language, Asker::Nobody), problem)
}

fn frame(api: &Api, language: Language, asker: Asker) -> Frame<'_> {
    Frame { language, origin: &api.context.origin, asker, sign_in: api.context.policy().routes.user.sign_in.clone() }
}

/// Where the application says who asks, a caller it does not know has signed out, whatever cookies are left.
fn asker(caller: &Caller) -> Asker {
    match (caller.tag(), caller.credentials.user) {
        (None, _) => Asker::Nobody,
        _ if caller.is_anonymous() => Asker::Nobody,
        (Some(_), Some(_)) => Asker::User,
        (Some(_), None) => Asker::Credentials,
    }
}
