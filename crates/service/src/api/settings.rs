//! `/hoop/settings`: whether a user's uploads are offered to a gateway (`docs/protocol.md` §7, "Settings").

use crate::api::Api;
use crate::api::audit::Act;
use crate::api::caller::Caller;
use crate::api::{guard, request};
use crate::model::content::Form;
use crate::model::{Payer, Settings, tag};
use crate::store::store_problem;
use hoop_http::{Body, Problem, json};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use std::net::IpAddr;

/// Where a saved form of settings leads to.
const SETTINGS_SAVED: &str = "/hoop/settings?saved";

/// The longest settings: 32 media types of 255 bytes, with room.
const SETTINGS_MAX: usize = 10 * 1024;

/// A user's settings, as the document and the page show them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    pub settings: Settings,
    /// Whether the user has saved them; if not, they are the defaults.
    pub saved: bool,
    /// Who asks, as text; none: nobody.
    pub owner: Option<String>,
}

/// The settings of the caller, for `GET /hoop/settings`.
///
/// # Errors
/// `origin-forbidden`, `upstream-unreachable`, or the store's.
pub async fn load(api: &Api, headers: &HeaderMap, address: IpAddr) -> Result<Shown, Problem> {
    guard::own_page(headers, &api.context.origin)?;
    of(api, &Caller::of(api, headers, address).await?).await
}

/// The settings of a caller. An anonymous caller has none.
///
/// # Errors
/// The store's.
pub async fn of(api: &Api, caller: &Caller) -> Result<Shown, Problem> {
    if caller.is_anonymous() {
        return Ok(Shown { settings: Settings::default(), saved: false, owner: None });
    }
    let (tags, now) = (caller.tags().to_vec(), api.context.clock.unix());
    let saved = api.context.store.with(move |index| index.settings(&tags, now)).await.map_err(store_problem)?;
    Ok(shown(caller, saved))
}

fn shown(caller: &Caller, saved: Option<Settings>) -> Shown {
    Shown { saved: saved.is_some(), settings: saved.unwrap_or_default(), owner: caller.tag().map(tag::text) }
}

/// Saves settings: `PUT /hoop/settings` as JSON, or `POST` as a page's form, which is sent back to the page.
///
/// # Errors
/// What is wrong with it, `sign-in-required`, `upstream-unreachable`, or the store's.
pub async fn save(api: &Api, request: Request<Incoming>, address: IpAddr) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    let by_form = parts.method == http::Method::POST;
    match by_form {
        true => guard::own_form(&parts.headers, &api.context.origin)?,
        false => guard::hoop_version(&parts.headers)?,
    }
    guard::own_page(&parts.headers, &api.context.origin)?;
    let body = request::read(body, SETTINGS_MAX).await?;
    let settings = if by_form { Settings::of_form(&Form::parse(&body))? } else { Settings::parse(&body)? };
    let caller = Caller::of(api, &parts.headers, address).await?;
    let act = Act { name: "settings", id: None, address, who: caller.tag() };
    let saved = keep(api, &caller, settings.clone()).await;
    act.came_to(&api.audit, saved.as_ref().map(|()| "saved"));
    saved?;
    match by_form {
        true => Ok(request::back_to(SETTINGS_SAVED)),
        false => Ok(json(StatusCode::OK, &shown(&caller, Some(settings)))),
    }
}

async fn keep(api: &Api, caller: &Caller, settings: Settings) -> Result<(), Problem> {
    let (tag, now) = (caller.user()?[0], api.context.clock.unix());
    let payer = Payer::of(&api.context.policy(), &caller.credentials);
    api.allowance.take_change(payer)?;
    api.receive.room.row()?;
    api.context.store.change(move |index| index.save_settings(tag, payer, &settings, now)).await.map_err(store_problem)
}
