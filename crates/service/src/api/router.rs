//! Which request goes where: [`Router`].

use crate::api::Api;
use crate::api::crowd::{self, Use};
use crate::api::proxy::{self, Proxy};
use crate::api::request::Representation;
use crate::api::{events, html, listing, pages, post, settings, tickets, uploads};
use crate::policy::forwarded::Client;
use crate::policy::permits;
use hoop_http::{Body, Code, Peer, Place, Problem, Shutdown, empty, json};
use hoop_seal::RECORD_SIZE;
use hoop_units::{Prefix, UploadId};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;

/// Hands each request to whom it is for.
pub struct Router {
    /// For the service's own paths.
    pub api: Arc<Api>,
    /// Whose forwarding fields are believed.
    pub trusted_proxies: Vec<Prefix>,
    /// For what is not ours.
    pub proxy: Proxy,
    /// Ends streams of events, and tunnels.
    pub shutdown: Shutdown,
}

/// What a path of ours names.
enum Target {
    WellKnown,
    Tickets,
    Post,
    PostOf(UploadId),
    Uploads,
    UploadOf(UploadId),
    Settings,
    /// Style and script of the pages.
    Asset,
    Nothing,
    /// Not ours.
    Application,
}

impl Target {
    fn of(path: &str) -> Self {
        let id = |text: &str| text.parse::<UploadId>().ok();
        match path {
            "/.well-known/hoop" => Self::WellKnown,
            "/hoop/tickets" => Self::Tickets,
            "/hoop/post" => Self::Post,
            "/hoop/uploads" => Self::Uploads,
            "/hoop/settings" => Self::Settings,
            path if html::is_asset(path) => Self::Asset,
            _ => {
                let Some(rest) = path.strip_prefix("/hoop/") else { return Self::Application };
                let post = rest.strip_prefix("post/").and_then(id).map(Self::PostOf);
                let upload = || rest.strip_prefix("uploads/").and_then(id).map(Self::UploadOf);
                post.or_else(upload).unwrap_or(Self::Nothing)
            }
        }
    }
}

impl Router {
    /// Answers a request.
    pub async fn answer(&self, mut request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let api = &self.api;
        let client = Client::of(&peer, request.headers(), &self.trusted_proxies, &api.context.origin);
        let (target, method) = (Target::of(request.uri().path()), request.method().clone());
        let form = pages::by_form(&method, request.headers());
        let place = request.extensions_mut().remove::<Place>();
        if let Err(problem) = crowd::enter(place.as_ref(), usage(&target, &request), client.address).await {
            return problem.into_response();
        }
        let answer = match (target, method) {
            (Target::Application, _) => return self.proxy.forward(request, &client, place, &self.shutdown).await,
            (Target::WellKnown, Method::GET | Method::HEAD) => return well_known(api),
            (Target::Tickets, Method::POST) => tickets::issue(api, request, client.address).await,
            (Target::Post | Target::PostOf(_), Method::OPTIONS) => return preflight(),
            (Target::Post, Method::POST) => {
                return any_origin(post::receive(api, request, (client.address, place), None).await);
            }
            (Target::PostOf(id), Method::PUT) => {
                return any_origin(post::receive(api, request, (client.address, place), Some(id)).await);
            }
            (Target::PostOf(id), Method::HEAD) => {
                return any_origin(post::head(api, id).await.unwrap_or_else(Problem::into_response));
            }
            (Target::UploadOf(id), Method::GET) if request.uri().query() == Some("receipt") => {
                uploads::receipt(api, id).await
            }
            (Target::UploadOf(id), Method::GET) => uploads::show(api, request.headers(), id).await,
            (Target::UploadOf(id), Method::DELETE) => uploads::delete(api, request.headers(), client.address, id).await,
            (Target::UploadOf(id), Method::POST) => uploads::act(api, request, client.address, id).await,
            (Target::UploadOf(id), Method::PUT) => uploads::note(api, request, client.address, id).await,
            (Target::Uploads, Method::GET) => self.uploads(request.headers(), client.address, place.as_ref()).await,
            (Target::Settings, Method::GET) => self.settings(&request, client.address).await,
            (Target::Asset, Method::GET | Method::HEAD) => {
                return html::asset(request.uri().path(), request.headers());
            }
            (Target::Settings, Method::PUT | Method::POST) => settings::save(api, request, client.address).await,
            (Target::Nothing, _) => Err(Problem::new(Code::NotFound, "")),
            (target, _) => return not_allowed(&target),
        };
        answer.unwrap_or_else(|problem| match form {
            Some(language) => pages::refusal(api, language, &problem),
            None => problem.into_response(),
        })
    }

    /// The uploads of whoever asks, in the form that is wanted.
    async fn uploads(
        &self,
        headers: &HeaderMap,
        address: IpAddr,
        place: Option<&Place>,
    ) -> Result<Response<Body>, Problem> {
        match Representation::by(headers) {
            Representation::Json => {
                let entries = uploads::list(&self.api, headers, address).await?;
                Ok(vary(json(StatusCode::OK, &listing::document(&entries))))
            }
            Representation::Html => Ok(pages::uploads(&self.api, headers, address).await),
            Representation::Events => {
                events::uploads(&self.api, headers, (address, place), self.shutdown.clone()).await
            }
        }
    }

    /// The settings of whoever asks, in the form that is wanted.
    async fn settings(&self, request: &Request<Incoming>, address: IpAddr) -> Result<Response<Body>, Problem> {
        let (headers, query) = (request.headers(), request.uri().query());
        match Representation::by(headers) {
            Representation::Html => Ok(pages::settings(&self.api, headers, query, address).await),
            Representation::Json | Representation::Events => {
                Ok(vary(json(StatusCode::OK, &settings::load(&self.api, headers, address).await?)))
            }
        }
    }
}

/// What a request uses its connection for.
fn usage(target: &Target, request: &Request<Incoming>) -> Use {
    let headers = request.headers();
    match target {
        Target::Application if proxy::wanted(request).is_some() => Use::Tunnel,
        Target::Application if crowd::is_events(headers.get(header::ACCEPT)) => Use::Events,
        Target::Application => Use::Application,
        // It asks who its user is, and then for a place for its first list.
        Target::Uploads if request.method() == Method::GET && Representation::by(headers) == Representation::Events => {
            Use::Own
        }
        Target::Uploads if request.method() == Method::GET => Use::List,
        // A question that waits for news holds its connection as a stream of events does.
        Target::UploadOf(_) if request.method() == Method::GET && headers.contains_key("prefer") => Use::Events,
        _ => Use::Own,
    }
}

/// Says that the answer would be of another form for whoever wants another.
fn vary(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn not_allowed(target: &Target) -> Response<Body> {
    let allow = match target {
        Target::WellKnown | Target::Asset => "GET, HEAD",
        Target::Tickets => "POST",
        Target::Post => "POST, OPTIONS",
        Target::PostOf(_) => "PUT, HEAD, OPTIONS",
        Target::UploadOf(_) => "GET, PUT, POST, DELETE",
        Target::Settings => "GET, PUT, POST",
        Target::Uploads => "GET",
        Target::Nothing | Target::Application => "",
    };
    let mut response = Problem::new(Code::MethodNotAllowed, format_args!("it takes {allow}")).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn well_known(api: &Api) -> Response<Body> {
    let mut response = json(
        StatusCode::OK,
        &json!({
            "hoop": 1,
            "origin": api.context.origin.as_str(),
            "post": api.url("/hoop/post"),
            "tickets": api.url("/hoop/tickets"),
            "uploads": api.url("/hoop/uploads"),
            "suites": ["aes256gcm", "aes128gcm"],
            "record_size": RECORD_SIZE,
            "max_bytes": api.context.policy().max_bytes,
            "permits": api.context.permits().name(),
            "signing_keys": permits::signing_keys(&api.context.policy()),
        }),
    );
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// Pages of any origin may post, without credentials: authority comes from the seal.
fn any_origin(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    let exposed = "Hoop-Upload-Id, Hoop-State, Hoop-Total, Hoop-Missing, Retry-After";
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(exposed));
    response
}

fn preflight() -> Response<Body> {
    let mut response = any_origin(Response::new(empty()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, PUT, HEAD"));
    let allowed = "Content-Type, Content-Range, Hoop-Prelude, Hoop-Token, Prefer";
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    response
}
