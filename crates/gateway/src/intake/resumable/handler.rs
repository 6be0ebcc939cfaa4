//! Requests that begin a resumable upload or concern one: [`answer`].

use super::append::{Append, Appended, resumption_supported};
use super::fields::{self, Fields, begins};
use super::refusal::{Refusal, inconsistent};
use super::standing::{RESOURCE_SECS, Standing};
use crate::access::cors::Page;
use crate::access::receipts::{Taken, sign_stored, write_headers};
use crate::core::problems::store_problem;
use crate::core::wire::{RESOURCES, dest_of};
use crate::intake::receive::offload;
use crate::intake::request::{deadline, permit};
use crate::intake::resource_lock::ResourceLock;
use crate::intake::state::Receiver;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::{Body, Code, Interim, Problem, RequestBody, Rng, empty, full};
use hoop_spool::{Resource, Token, Upload};
use hoop_timekeeper::Over;
use hoop_units::{AddressKey, UnixTime};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use std::sync::Arc;
use std::time::Duration;

/// How long a resource lives of which the prelude has not come, in seconds: an upload without one is no longer kept either.
const EMPTY_SECS: u32 = hoop_spool::EARLY_SECS;

/// No resource lives for longer without another part.
const RESOURCE_LIFE: Duration = Duration::from_secs(RESOURCE_SECS as u64);

/// When to come back while there are too many resources: some expire every minute, if they are empty.
const CROWDED_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What answers share: who asks, and how.
struct Call<'a> {
    receiver: &'a Arc<Receiver>,
    page: Option<&'a Page>,
    device: AddressKey,
    /// Where the sender reached this gateway.
    base: &'a str,
    fields: Fields,
    /// For interim answers, to a client that says it understands them.
    interim: Option<Interim>,
}

/// Whether a request is one of these: it begins a resumable upload, or concerns one.
pub fn concerns(head: &Parts) -> bool {
    let path = head.uri.path();
    path.starts_with(RESOURCES) || (path == "/offload" && (begins(&head.method, &head.headers) || is_options(head)))
}

fn is_options(head: &Parts) -> bool {
    head.method == Method::OPTIONS
}

/// Answers a request that [`concerns`] a resumable upload.
///
/// # Errors
/// `origin-forbidden` alone, which no page must be able to read; every other refusal is an answer.
pub async fn answer(
    receiver: &Arc<Receiver>,
    page: Option<&Page>,
    base: &str,
    device: AddressKey,
    head: &Parts,
    body: RequestBody,
) -> Result<Response<Body>, Problem> {
    let fields = Fields::of(&head.headers);
    let interim = fields.interop.and_then(|_| Interim::of(&head.extensions));
    let call = Call { receiver, page, device, base, fields, interim };
    let token = head.uri.path().strip_prefix(RESOURCES).map(token);
    // Whoever wants it takes it out.
    let mut body = Some(body);
    let answered = match (&head.method, token) {
        (&Method::OPTIONS, token) => Ok(call.options(token.is_some())),
        (&Method::POST, None) => call.create(head, &mut body).await,
        (_, Some(None)) => Err(unknown().into()),
        (&Method::HEAD | &Method::GET, Some(Some(token))) => call.standing(token).await,
        (&Method::PATCH, Some(Some(token))) => call.patch(token, &head.headers, &mut body).await,
        (&Method::DELETE, Some(Some(token))) => call.delete(token).await,
        _ => Err(Problem::new(Code::MethodNotAllowed, "allowed: HEAD, GET, PATCH, DELETE").into()),
    };
    if let Some(body) = body.filter(|_| answered.is_err()) {
        body.linger_apart();
    }
    match answered {
        Err(refusal) if refusal.problem.code == Code::OriginForbidden => Err(refusal.problem),
        answered => Ok(answered.unwrap_or_else(|refusal| call.refuse(refusal))),
    }
}

impl Call<'_> {
    /// What may be sent here: said to programs; a page's preflight never comes so far.
    fn options(&self, is_resource: bool) -> Response<Body> {
        let allow = if is_resource { "HEAD, GET, PATCH, DELETE, OPTIONS" } else { "POST, OPTIONS" };
        let mut response = no_content();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
        response.headers_mut().insert(fields::LIMIT, self.limit(None));
        response
    }

    /// `POST /offload` with `Upload-Complete`.
    async fn create(&self, head: &Parts, body: &mut Option<RequestBody>) -> Result<Response<Body>, Refusal> {
        let total = self.fields.total(0).map_err(inconsistent)?;
        let (query, whole) = (head.uri.query(), self.fields.complete == Some(true));
        // A resource is of no use to whoever cannot hear of it, and nothing can be resumed whose length is not known.
        if whole && (self.interim.is_none() || total.is_none() || is_empty(body)) {
            return self.plain(head, body).await;
        }
        let dest = self.receiver.consent.services.destinations.get().check(&dest_of(query)?)?;
        let permit = permit(&head.headers)?;
        self.receiver.consent.check_destination(&dest, self.device, permit.as_deref(), false).await?;
        self.receiver.consent.demand_permit(&dest, permit.as_deref())?;
        let dest = dest.url;
        total.map(|total| self.receiver.admission.layout(total)).transpose()?;
        self.receiver.admission.devices.begin_resource(self.device, self.receiver.core.clock.now())?;
        let now = self.receiver.core.clock.unix();
        let (token, resource) =
            (Token(Rng.bytes()), Resource::new(self.device, dest, total, now.plus_secs(EMPTY_SECS)));
        let new = resource.clone();
        let core = &self.receiver.core;
        let added = core.turns.blocking(core, move |core| {
            let over = core.clock.over(RESOURCE_LIFE).unwrap_or(Over::NOTHING);
            core.spool.add_resource(token, &new, over)
        });
        let added = added.await;
        if !added.map_err(|error| store_problem(&error))? {
            if whole {
                return self.plain(head, body).await;
            }
            let detail = "more resumable uploads are under way here than may be";
            return Err(Problem::new(Code::TooManyRequests, detail).retry_after(CROWDED_RETRY_AFTER).into());
        }
        let location = format!("{RESOURCES}{}", URL_SAFE_NO_PAD.encode(token.0));
        let location = HeaderValue::try_from(location).expect("a path and base64url");
        if is_empty(body) {
            return Ok(self.created(&location, 0, resource.expires));
        }
        self.announce(&location, resource.expires);
        let lock = self.receiver.resource_locks.take(token).await;
        let dest = resource.dest.clone();
        match self.append(token, resource, None, lock, &head.headers, body).await? {
            Appended::Whole(taken) => Ok(self.whole(&taken, &dest)),
            Appended::Part { offset, expires } => Ok(self.created(&location, offset, expires)),
        }
    }

    /// Refuses bytes for a service whose permit is demanded and not shown, before any is read: which upload they are of is known later.
    fn demand_permit(&self, dest: &str, headers: &HeaderMap) -> Result<(), Problem> {
        let dest = self.receiver.consent.services.destinations.get().check(dest)?;
        self.receiver.consent.demand_permit(&dest, permit(headers)?.as_deref())
    }

    /// Takes all of Z at once, as from any other sender.
    async fn plain(&self, head: &Parts, body: &mut Option<RequestBody>) -> Result<Response<Body>, Refusal> {
        let body = body.take().expect("it is taken once");
        let taken = offload(self.receiver, None, head.uri.query(), &head.headers, self.device, body).await?;
        Ok(self.whole(&taken, &dest_of(head.uri.query())?))
    }

    /// Tells a client that listens where it can go on, should this request break off.
    fn announce(&self, location: &HeaderValue, expires: UnixTime) {
        let Some((interim, version)) = self.interim.as_ref().zip(self.fields.interop) else { return };
        let headers = HeaderMap::from_iter([
            (header::LOCATION, location.clone()),
            (fields::LIMIT, self.limit(Some(expires))),
            (fields::INTEROP, version.into()),
        ]);
        resumption_supported(interim, &headers);
    }

    fn created(&self, location: &HeaderValue, offset: u64, expires: UnixTime) -> Response<Body> {
        let mut response = self.part(offset, expires);
        *response.status_mut() = StatusCode::CREATED;
        response.headers_mut().insert(header::LOCATION, location.clone());
        response
    }

    /// The answer to a part that is not the last.
    fn part(&self, offset: u64, expires: UnixTime) -> Response<Body> {
        let mut response = no_content();
        self.write(response.headers_mut(), Some(offset), false);
        response.headers_mut().insert(fields::LIMIT, self.limit(Some(expires)));
        response
    }

    /// The answer of `/offload` to all of Z, signed as there.
    fn whole(&self, taken: &Taken, dest: &str) -> Response<Body> {
        let mut response = taken.receipt(&self.receiver.core, self.base, dest);
        self.write(response.headers_mut(), Some(taken.total), true);
        response
    }

    /// `HEAD` and `GET` of a resource: how far it is.
    async fn standing(&self, token: Token) -> Result<Response<Body>, Refusal> {
        // Whoever asks has stopped sending.
        let _lock = self.receiver.resource_locks.take(token).await;
        let (resource, upload) = self.known(token).await?;
        let standing = Standing::of(&resource, upload.as_ref()).ok_or_else(unknown)?;
        let mut response = no_content();
        let headers = response.headers_mut();
        if let Some(upload) = &upload {
            write_headers(headers, upload.id, upload.state, upload.total, &upload.stored);
            sign_stored(&self.receiver.core, headers, (upload.id, upload.state, upload.total), &upload.dest);
        }
        self.write(headers, Some(standing.offset), standing.complete);
        if let Some(total) = resource.total {
            headers.insert(fields::LENGTH, total.into());
        }
        headers.insert(fields::LIMIT, self.limit(Some(resource.expires)));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    /// `PATCH` of a resource: the next part.
    async fn patch(
        &self,
        token: Token,
        headers: &HeaderMap,
        body: &mut Option<RequestBody>,
    ) -> Result<Response<Body>, Refusal> {
        let lock = self.receiver.resource_locks.take(token).await;
        let (mut resource, upload) = self.known(token).await?;
        let standing = Standing::of(&resource, upload.as_ref()).ok_or_else(unknown)?;
        let from = self.check(headers, &standing)?;
        match (resource.total, self.fields.total(from)) {
            (_, Err(lengths)) => return Err(inconsistent(lengths)),
            (Some(known), Ok(Some(total))) if known != total => return Err(inconsistent((known, total))),
            (None, Ok(total)) => resource.total = total,
            (Some(_), Ok(_)) => {}
        }
        if let Some(upload) = upload.as_ref().filter(|_| standing.complete) {
            return Ok(self.whole(&Taken::of(upload), &upload.dest));
        }
        if standing.complete {
            return Err(unknown().into());
        }
        let beyond = resource.total.zip(self.fields.content).filter(|(total, content)| from + content > *total);
        if let Some((total, content)) = beyond {
            return Err(Refusal::length(format_args!("{from} bytes and {content} more; there are {total} in all")));
        }
        if is_empty(body) && self.fields.complete == Some(false) {
            return Ok(self.part(from, resource.expires));
        }
        if let Some(total) = resource.total.filter(|total| is_empty(body) && from < *total) {
            return Err(Refusal::ended(from, total));
        }
        let dest = resource.dest.clone();
        match self.append(token, resource, upload, lock, headers, body).await? {
            Appended::Whole(taken) => Ok(self.whole(&taken, &dest)),
            Appended::Part { offset, expires } => Ok(self.part(offset, expires)),
        }
    }

    /// Judges a part by its head. Returns where it begins.
    fn check(&self, headers: &HeaderMap, standing: &Standing) -> Result<u64, Refusal> {
        let is_right = match headers.get(header::CONTENT_TYPE) {
            Some(media_type) => media_type.as_bytes().eq_ignore_ascii_case(fields::PARTIAL_UPLOAD.as_bytes()),
            None => self.fields.is_untyped(),
        };
        if !is_right {
            let detail = format!("parts are `{}`", fields::PARTIAL_UPLOAD);
            return Err(Problem::new(Code::MediaTypeUnsupported, detail).field("Content-Type").into());
        }
        let missing = |name: &str| Problem::new(Code::RequestInvalid, format_args!("{name} is missing")).field(name);
        let from = self.fields.offset.ok_or_else(|| missing("Upload-Offset"))?;
        if self.fields.complete.is_none() {
            return Err(missing("Upload-Complete").into());
        }
        match from == standing.offset {
            true => Ok(from),
            false => Err(Refusal::offset(standing.offset, from)),
        }
    }

    /// Takes a part, in a task of its own: what has come is recorded, though the connection may go at any time.
    async fn append(
        &self,
        token: Token,
        resource: Resource,
        upload: Option<Upload>,
        lock: ResourceLock,
        headers: &HeaderMap,
        body: &mut Option<RequestBody>,
    ) -> Result<Appended, Refusal> {
        let Some(total) = resource.total else {
            let detail =
                "name it in Upload-Length, or send all that remains with Upload-Complete: ?1 and Content-Length";
            return Err(Problem::new(Code::LengthRequired, detail).field("Upload-Length").into());
        };
        self.demand_permit(&resource.dest, headers)?;
        let append = Append {
            receiver: self.receiver.clone(),
            token,
            resource,
            total,
            upload,
            lock,
            complete: self.fields.complete == Some(true),
            progress: self.interim.clone().zip(self.fields.interop),
            permit: permit(headers)?,
            deadline: deadline(headers)?,
        };
        let body = body.take().expect("it is taken once");
        match tokio::spawn(append.run(body)).await {
            Ok(appended) => appended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// `DELETE` of a resource: it is forgotten, and what has come of an upload that is not whole, if its device asks. Whoever else saw the
    /// prelude go by can make a resource of the same upload.
    async fn delete(&self, token: Token) -> Result<Response<Body>, Refusal> {
        let _lock = self.receiver.resource_locks.take(token).await;
        let (resource, upload) = self.known(token).await?;
        let is_own = upload.is_some_and(|upload| upload.device == self.device);
        let core = &self.receiver.core;
        let dropped = core.turns.blocking(core, move |core| {
            core.spool.drop_resource(token)?;
            // What others are sending meanwhile, or what is whole, is left alone.
            resource.upload.filter(|_| is_own).map_or(Ok(false), |id| core.spool.abandon(id))
        });
        dropped.await.map_err(|error| store_problem(&error))?;
        Ok(no_content())
    }

    /// What is known of a resource, for whoever may know it, and of its upload.
    async fn known(&self, token: Token) -> Result<(Resource, Option<Upload>), Problem> {
        let now = self.receiver.core.clock.past(RESOURCE_LIFE);
        let core = &self.receiver.core;
        let found = core.looks.blocking(core, move |core| {
            let Some(resource) = core.spool.resource(token, now)? else { return Ok(None) };
            let upload = resource.upload.map_or(Ok(None), |id| core.spool.get(id))?;
            Ok(Some((resource, upload)))
        });
        let (resource, upload) = found.await.map_err(|error| store_problem(&error))?.ok_or_else(unknown)?;
        self.page.map_or(Ok(()), |page| page.check_upload(&resource.dest))?;
        Ok((resource, upload))
    }

    fn limit(&self, expires: Option<UnixTime>) -> HeaderValue {
        let mut limit = format!("max-size={}", self.receiver.admission.max_upload_bytes);
        if let Some(expires) = expires {
            limit += &format!(", max-age={}", expires.since(self.receiver.core.clock.unix()));
        }
        HeaderValue::try_from(limit).expect("letters and digits")
    }

    fn write(&self, headers: &mut HeaderMap, offset: Option<u64>, complete: bool) {
        headers.insert(fields::COMPLETE, fields::truth(complete));
        if self.fields.is_oldest() {
            headers.insert(fields::INCOMPLETE, fields::truth(!complete));
        }
        if let Some(offset) = offset {
            headers.insert(fields::OFFSET, offset.into());
        }
    }

    fn refuse(&self, refusal: Refusal) -> Response<Body> {
        let Refusal { problem, complete, offset, kind } = refusal;
        let document = kind.document(&problem);
        let crowded = problem.code == Code::TooLarge;
        let mut response = problem.into_response();
        if let Some(document) = document {
            *response.body_mut() = full(document);
        }
        self.write(response.headers_mut(), offset, complete);
        if crowded {
            response.headers_mut().insert(fields::LIMIT, self.limit(None));
        }
        response
    }
}

fn is_empty(body: &Option<RequestBody>) -> bool {
    body.as_ref().is_none_or(|body| body.is_over())
}

fn token(text: &str) -> Option<Token> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Token)
}

fn unknown() -> Problem {
    Problem::new(Code::UploadUnknown, "no upload resource of that name is here")
}

fn no_content() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
