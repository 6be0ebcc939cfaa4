//! `/hoop/uploads`: states, lists and notes of uploads, and what their owners do with them (`docs/protocol.md` §7).

use crate::api::Api;
use crate::api::audit::Act;
use crate::api::caller::{self, Caller};
use crate::api::listing::{self, Entry};
use crate::api::{guard, post, request, status};
use crate::model::content::{self, FORM, Form};
use crate::model::note::NOTE_MAX;
use crate::model::{Change, Credentials, LINGER_SECS, Marked, Note, Payer, State, Tag, Upload};
use crate::policy::{admit, owner, permits};
use crate::store::{Changed, store_problem};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Body, Code, Problem, empty, json};
use hoop_units::{UnixTime, UploadId};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The longest action, as JSON or a form.
const ACTION_MAX: usize = 1024;

/// `GET /hoop/uploads/{id}`. Anybody who knows the id may ask; the answer is sealed.
///
/// # Errors
/// `upload-unknown`, or the store's.
pub async fn show(api: &Api, headers: &HeaderMap, id: UploadId) -> Result<Response<Body>, Problem> {
    if let Some(upload) = api.context.store.settled(id, post::wait(headers)).await.map_err(store_problem)? {
        return Ok(status::response(StatusCode::OK, &upload));
    }
    let marked = api.context.store.with(move |index| index.marked(id)).await.map_err(store_problem)?;
    Ok(entry_response(&Entry::announced(marked.ok_or_else(unknown)?)))
}

/// `GET /hoop/uploads/{id}?receipt`: the receipt for people to save, as `hoop receipt verify` reads it.
///
/// # Errors
/// `upload-unknown`, `not-found` if there is none, or the store's.
pub async fn receipt(api: &Api, id: UploadId) -> Result<Response<Body>, Problem> {
    let upload = api.context.store.load(id).await.map_err(store_problem)?.ok_or_else(unknown)?;
    let (first, second) = status::receipts(&upload);
    let why = match status::is_shortened(&upload) {
        true => "its receipt was let go, to make room for newer ones",
        false => "it has no receipt, yet or at all",
    };
    let receipt = second.or(first).ok_or_else(|| Problem::new(Code::NotFound, why))?;
    let keys = permits::signing_keys(&api.context.policy());
    let kept = json!({"hoop": "receipt", "origin": api.context.origin.as_str(), "receipt": URL_SAFE_NO_PAD.encode(receipt), "signing_keys": keys});
    let mut response = json(StatusCode::OK, &kept);
    let name = format!("attachment; filename=\"receipt-{id}.json\"");
    let name = HeaderValue::try_from(name).expect("an id is hexadecimal digits");
    response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    Ok(response)
}

/// The uploads of whoever asks, newest first.
///
/// # Errors
/// `origin-forbidden`, `sign-in-required`, `upstream-unreachable`, or the store's.
pub async fn list(api: &Api, headers: &HeaderMap, address: IpAddr) -> Result<Vec<Entry>, Problem> {
    guard::own_page(headers, &api.context.origin)?;
    let caller = Caller::of(api, headers, address).await?;
    listing::all(api, caller.signed_in()?).await
}

/// `PUT /hoop/uploads/{id}`: the device's note.
///
/// # Errors
/// What is wrong with it or its token, `sign-in-required`, `upload-stopped`, `too-many-requests`, `spool-full`, or the store's.
pub async fn note(
    api: &Api,
    request: Request<Incoming>,
    address: IpAddr,
    id: UploadId,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    guard::hoop_version(&parts.headers)?;
    guard::own_page(&parts.headers, &api.context.origin)?;
    let token = token(api, &parts.headers, id).unwrap_or_else(|| {
        let detail = "a note needs the `Hoop-Token` of its ticket";
        Err(Problem::new(Code::TokenInvalid, detail).field("Hoop-Token"))
    })?;
    let (now, expires) = (api.context.clock.unix(), UnixTime(token.expires));
    if api.context.past(LINGER_SECS) > expires.plus_secs(LINGER_SECS) {
        return Err(Problem::new(Code::TokenInvalid, "it has expired").field("Hoop-Token"));
    }
    if owner::is_anonymous(&api.context.policy(), &token) {
        return Err(caller::anonymous());
    }
    let note = Note::parse(&request::read(body, NOTE_MAX).await?)?;
    let owner = owner::of(&api.context.policy(), &token);
    let act = Act { name: "note", id: Some(id), address, who: Some(owner) };
    let payer = Payer::of(&api.context.policy(), &token);
    let new = Marked::new(id, owner, payer, now, expires);
    let take = move |marked: &mut Marked| {
        if !marked.stopped {
            marked.note = Some(note.clone());
        }
    };
    let noted = async {
        api.allowance.take_change(payer)?;
        api.receive.room.row()?;
        match mark(api, new, take).await?.stopped {
            true => Err(Problem::new(Code::UploadStopped, "")),
            false => Ok(no_content()),
        }
    };
    let noted = noted.await;
    act.came_to(&api.audit, noted.as_ref().map(|_| "saved"));
    noted
}

/// `DELETE /hoop/uploads/{id}`: its owner stops it.
///
/// # Errors
/// `upload-unknown`, `not-owner`, `upload-done`, or the store's.
pub async fn delete(
    api: &Arc<Api>,
    headers: &HeaderMap,
    address: IpAddr,
    id: UploadId,
) -> Result<Response<Body>, Problem> {
    let entry = perform(api, headers, address, id, Action::Stop, None).await?;
    Ok(match &entry.upload {
        Some(upload) => status::response(StatusCode::OK, upload),
        None => no_content(),
    })
}

/// What an owner does with an upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Hand it over again with the credentials of this request.
    #[default]
    Release,
    Pause,
    Resume,
    Stop,
}

/// A risk of an action that its owner has been told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// The application may have the upload twice.
    Twice,
}

/// What an owner asks to be done with an upload.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionRequest {
    /// What.
    #[serde(default)]
    pub action: Action,
    #[serde(default)]
    pub risk: Option<Risk>,
}

impl ActionRequest {
    pub fn of_json(body: &[u8]) -> Result<Self, Problem> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        content::object(body)
    }

    pub fn of_form(body: &[u8]) -> Result<Self, Problem> {
        let form = Form::parse(body);
        let action = form.field("action").map(|name| serde_json::from_value(name.into()));
        let wrong = || Problem::new(Code::RequestInvalid, "release, pause, resume or stop").field("action");
        let risk = form.field("risk").map(|name| serde_json::from_value(name.into())).transpose();
        let risk = risk.map_err(|_| Problem::new(Code::RequestInvalid, "twice, or nothing").field("risk"))?;
        Ok(Self { action: action.and_then(Result::ok).ok_or_else(wrong)?, risk })
    }
}

/// `POST /hoop/uploads/{id}`: what its owner does, as JSON or as the form of a page, which is sent back to the list.
///
/// # Errors
/// `upload-unknown`, `not-owner`, `sign-in-required` if there are no credentials to go on with, `upload-done`, or the store's.
pub async fn act(
    api: &Arc<Api>,
    request: Request<Incoming>,
    address: IpAddr,
    id: UploadId,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    let by_form = request::media_type(&parts.headers) == FORM;
    match by_form {
        true => guard::own_form(&parts.headers, &api.context.origin)?,
        false => guard::hoop_version(&parts.headers)?,
    }
    let body = request::read(body, ACTION_MAX).await?;
    let ActionRequest { action, risk } =
        if by_form { ActionRequest::of_form(&body) } else { ActionRequest::of_json(&body) }?;
    let entry = perform(api, &parts.headers, address, id, action, risk).await?;
    Ok(if by_form { request::back_to("/hoop/uploads") } else { entry_response(&entry) })
}

/// Does that if the caller may, and logs it. An act on an unknown upload is not logged: it does nothing.
async fn perform(
    api: &Arc<Api>,
    headers: &HeaderMap,
    address: IpAddr,
    id: UploadId,
    action: Action,
    risk: Option<Risk>,
) -> Result<Entry, Problem> {
    let mut act = Act { name: action.name(risk), id: Some(id), address, who: None };
    let granted = grant(api, headers, address, id, action).await;
    act.who = granted.as_ref().ok().map(|grant| grant.owner);
    let granted = granted.and_then(|grant| api.allowance.take_change(grant.payer).map(|()| grant));
    let turn = api.acts_at_once.clone().acquire_owned().await;
    let work = {
        let (api, under_way) = (api.clone(), api.acts.subscribe());
        async move {
            let done = match (granted, action) {
                (Err(problem), _) => Err(problem),
                (Ok(grant), Action::Release) => release(&api, id, grant, risk == Some(Risk::Twice)).await,
                (Ok(grant), Action::Pause) => pause(&api, id, &grant).await,
                (Ok(_), Action::Resume) => resume(&api, id).await,
                (Ok(grant), Action::Stop) => stop(&api, id, &grant).await,
            };
            if !matches!(&done, Err(problem) if problem.code == Code::UploadUnknown) {
                act.came_to(&api.audit, done.as_ref().map(Entry::state));
            }
            // In this order: who waits for the end of all acts then has the only handle.
            drop((api, under_way, turn));
            done
        }
    };
    // In a task of its own: the server drops the handler of a client that has gone away, at any point, and what was
    // begun must be done as a whole. The messages of a stopped upload would go on otherwise.
    let broken = |_| Err(Problem::new(Code::Internal, "it could not be done"));
    tokio::spawn(work).await.unwrap_or_else(broken)
}

impl Action {
    /// Its name in the log. A release that may deliver twice has its own.
    const fn name(self, risk: Option<Risk>) -> &'static str {
        match (self, risk) {
            (Self::Release, Some(Risk::Twice)) => "release-twice",
            (Self::Release, None) => "release",
            (Self::Pause, _) => "pause",
            (Self::Resume, _) => "resume",
            (Self::Stop, _) => "stop",
        }
    }
}

async fn stop(api: &Api, id: UploadId, grant: &Grant) -> Result<Entry, Problem> {
    note_what_comes(api, id).await?;
    let stopped = api.context.store.stop(grant.new_mark(api, id), api.context.clock.unix()).await;
    let entry = match stopped.map_err(store_problem)? {
        (Changed::Done(upload), _) => Entry::of(upload, None),
        (Changed::Refused(upload), _) if upload.state == State::Stopped => Entry::of(upload, None),
        // It has ended, and its bytes are kept for a release.
        (Changed::Refused(upload), _) if upload.kept => match apply(api, id, Change::LetGo).await? {
            Changed::Done(upload) | Changed::Refused(upload) if !upload.kept && upload.state.is_final() => {
                Entry::of(upload, None)
            }
            Changed::Done(upload) | Changed::Refused(upload) => return Err(done(&upload)),
            Changed::Unknown => return Err(unknown()),
        },
        (Changed::Refused(upload), _) => return Err(done(&upload)),
        (Changed::Unknown, marked) => Entry::announced(marked.ok_or_else(no_room_to_mark)?),
    };
    api.receive.in_flight.halt(id, Some(Code::UploadStopped)).await;
    api.receive.room.give_back(id);
    if let Err(error) = api.context.store.dispose(vec![id]).await {
        tracing::warn!(%error, "a body could not be deleted yet");
    }
    Ok(entry)
}

async fn pause(api: &Api, id: UploadId, grant: &Grant) -> Result<Entry, Problem> {
    note_what_comes(api, id).await?;
    let new = grant.new_mark(api, id);
    let paused = api.context.store.pause(new, api.context.clock.unix()).await.map_err(store_problem)?;
    let entry = match paused {
        // An upload that is over stays over. Its state is the answer.
        (Changed::Done(upload) | Changed::Refused(upload), _) => Entry::of(upload, None),
        (Changed::Unknown, marked) => Entry::announced(marked.ok_or_else(no_room_to_mark)?),
    };
    if entry.is_paused() {
        api.receive.in_flight.halt(id, Some(Code::UploadPaused)).await;
    }
    Ok(entry)
}

async fn resume(api: &Api, id: UploadId) -> Result<Entry, Problem> {
    let entry = match api.context.store.resume(id, api.context.clock.unix()).await.map_err(store_problem)? {
        (Changed::Done(upload) | Changed::Refused(upload), _) => Entry::of(upload, None),
        (Changed::Unknown, marked) => Entry::announced(marked.ok_or_else(unknown)?),
    };
    if entry.state() != State::Stopped.name() {
        api.receive.in_flight.halt(id, None).await;
    }
    api.context.work.notify_one();
    Ok(entry)
}

async fn release(api: &Api, id: UploadId, grant: Grant, twice: bool) -> Result<Entry, Problem> {
    let caller = grant.caller.ok_or_else(caller::signed_out)?;
    let credentials = Credentials { expires: grant.expires.0, ..caller.credentials };
    // An upload without an owner goes on without one.
    if credentials.is_empty() && !owner::is_nobody(&api.context.policy(), grant.owner) {
        return Err(caller::signed_out());
    }
    let token = credentials.seal(&api.context.policy().keys, &api.context.policy().origin, id);
    let owner = owner::of(&api.context.policy(), &credentials);
    match apply(api, id, Change::Release { token, owner, twice }).await? {
        Changed::Done(upload) => {
            api.context.work.notify_one();
            Ok(Entry::of(upload, None))
        }
        Changed::Refused(upload) if upload.state == State::Unknown && upload.kept => {
            Err(Problem::new(Code::TwicePossible, "say so with `\"risk\": \"twice\"` to hand it over all the same")
                .field("risk"))
        }
        // There is nothing to release. Its state is the answer.
        Changed::Refused(upload) => Ok(Entry::of(upload, None)),
        Changed::Unknown => grant.known.ok_or_else(unknown),
    }
}

async fn apply(api: &Api, id: UploadId, change: Change) -> Result<Changed, Problem> {
    api.context.store.apply(id, change, api.context.clock.unix()).await.map_err(store_problem)
}

/// Notes an upload that has begun to come, so that the index has a row to change.
async fn note_what_comes(api: &Api, id: UploadId) -> Result<(), Problem> {
    if let Some(arrival) = api.receive.in_flight.of(id).await {
        arrival.flush(&api.context, &api.receive.room).await?;
    }
    Ok(())
}

/// Changes the mark or note of an upload.
async fn mark(api: &Api, new: Marked, change: impl FnOnce(&mut Marked) + Send + 'static) -> Result<Marked, Problem> {
    let (id, owner) = (new.id, new.owner);
    let marked =
        api.context.store.change(move |index| index.mark(new, Box::new(change))).await.map_err(store_problem)?;
    api.context.store.announce(id, Some(owner));
    marked.ok_or_else(no_room_to_mark)
}

fn no_room_to_mark() -> Problem {
    let detail = "too many uploads are announced, paused or stopped and have not come";
    Problem::new(Code::SpoolFull, detail).retry_after(Duration::from_secs(60))
}

/// What whoever asks may do with an upload, and as whom.
struct Grant {
    /// What is known of it. None: nothing, and the caller has its token.
    known: Option<Entry>,
    /// Whose it is.
    owner: Tag,
    /// Who pays for what is noted of it.
    payer: Payer,
    /// The ticket's end.
    expires: UnixTime,
    /// The caller, if that was looked into.
    caller: Option<Caller>,
}

impl Grant {
    fn new_mark(&self, api: &Api, id: UploadId) -> Marked {
        Marked::new(id, self.owner, self.payer, api.context.clock.unix(), self.expires)
    }
}

/// Grants an act on an upload to a caller with its T, which only the device that fetched the ticket has, or to the user
/// who fetched it.
async fn grant(
    api: &Api,
    headers: &HeaderMap,
    address: IpAddr,
    id: UploadId,
    action: Action,
) -> Result<Grant, Problem> {
    guard::own_page(headers, &api.context.origin)?;
    let known = listing::known(api, id).await?;
    let expires = known.as_ref().map(Entry::expires);
    if let Some(token) = token(api, headers, id) {
        let token = token.map_err(|_| not_owner().field("Hoop-Token"))?;
        let caller = other_than_nobody(api, headers, address, &token, action).await?;
        let owner = owner::of(&api.context.policy(), &token);
        let (payer, expires) = (Payer::of(&api.context.policy(), &token), expires.unwrap_or(UnixTime(token.expires)));
        return Ok(Grant { known, owner, payer, expires, caller: Some(caller) });
    }
    let (Some(entry), Some(expires)) = (known, expires) else { return Err(unknown()) };
    let caller = Caller::of(api, headers, address).await?;
    // A ticket fetched without credentials belongs to no caller in particular. Acting on its upload takes T.
    match entry.owner().filter(|owner| caller.is(*owner)) {
        Some(owner) => {
            let payer = Payer::of(&api.context.policy(), &caller.credentials);
            Ok(Grant { known: Some(entry), owner, payer, expires, caller: Some(caller) })
        }
        None => Err(not_owner()),
    }
}

/// The caller with a token. The token is enough, unless the application says that another user has signed in since: the
/// upload would go on as theirs.
async fn other_than_nobody(
    api: &Api,
    headers: &HeaderMap,
    address: IpAddr,
    token: &Credentials,
    action: Action,
) -> Result<Caller, Problem> {
    let caller = match action {
        Action::Release => Caller::of(api, headers, address).await?,
        // An application that is down does not keep an owner from stopping an upload.
        Action::Pause | Action::Resume | Action::Stop => {
            Caller::or_nobody(api, caller::captured(api, headers, address)?).await
        }
    };
    match token.user {
        Some(user) if caller.credentials.user.is_some() && !caller.is(user) => {
            Err(Problem::new(Code::NotOwner, "another user is signed in now than the one who fetched the ticket"))
        }
        _ => Ok(caller),
    }
}

/// The token that a request brings, opened.
fn token(api: &Api, headers: &HeaderMap, id: UploadId) -> Option<Result<Credentials, Problem>> {
    let token = headers.get("hoop-token")?;
    let invalid = || Problem::new(Code::TokenInvalid, "it must be base64url").field("Hoop-Token");
    let token = URL_SAFE_NO_PAD.decode(token.as_bytes()).map_err(|_| invalid());
    Some(token.and_then(|token| admit::open_token(&api.context.policy(), id, &token)))
}

fn entry_response(entry: &Entry) -> Response<Body> {
    match &entry.upload {
        Some(upload) => status::response(StatusCode::OK, upload),
        None => json(StatusCode::OK, &entry.status()),
    }
}

fn done(upload: &Upload) -> Problem {
    Problem::new(Code::UploadDone, format!("its state is {}", upload.state.shown()))
}

fn no_content() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn unknown() -> Problem {
    Problem::new(Code::UploadUnknown, "")
}

fn not_owner() -> Problem {
    Problem::new(Code::NotOwner, "send the `Hoop-Token` of its ticket, or ask as the user who fetched it")
}
