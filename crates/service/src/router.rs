//! Which request goes where: [`Router`].

use crate::core::Core;
use crate::forwarded::Client;
use crate::proxy::Proxy;
use crate::request::Wanted;
use crate::{events, html, listing, pages, permits, post, settings, tickets, uploads};
use hoop_http::{Body, Code, Peer, Problem, Shutdown, empty, json};
use hoop_seal::RECORD_SIZE;
use hoop_units::UploadId;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;

/// Hands each request to whom it is for.
pub struct Router {
    /// What all parts share.
    pub core: Arc<Core>,
    /// For what is not ours.
    pub proxy: Proxy,
    /// Ends streams of events.
    pub shutdown: Shutdown,
}

/// What a path of ours names.
enum Place {
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

impl Place {
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
    pub async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let core = &self.core;
        let client = Client::of(&peer, request.headers(), &core.trusted_proxies, &core.origin);
        let (place, method) = (Place::of(request.uri().path()), request.method().clone());
        let form = pages::by_form(&method, request.headers());
        let answer = match (place, method) {
            (Place::Application, _) => return self.proxy.forward(request, &client).await,
            (Place::WellKnown, Method::GET | Method::HEAD) => return well_known(core),
            (Place::Tickets, Method::POST) => tickets::issue(core, request, client.address).await,
            (Place::Post | Place::PostOf(_), Method::OPTIONS) => return preflight(),
            (Place::Post, Method::POST) => return any_origin(post::receive(core, request, client.address, None).await),
            (Place::PostOf(id), Method::PUT) => {
                return any_origin(post::receive(core, request, client.address, Some(id)).await);
            }
            (Place::PostOf(id), Method::HEAD) => {
                return any_origin(post::head(core, id).await.unwrap_or_else(Problem::into_response));
            }
            (Place::UploadOf(id), Method::GET) if request.uri().query() == Some("receipt") => {
                uploads::receipt(core, id).await
            }
            (Place::UploadOf(id), Method::GET) => uploads::show(core, request.headers(), id).await,
            (Place::UploadOf(id), Method::DELETE) => uploads::delete(core, request.headers(), client.address, id).await,
            (Place::UploadOf(id), Method::POST) => uploads::act(core, request, client.address, id).await,
            (Place::UploadOf(id), Method::PUT) => uploads::note(core, request, id).await,
            (Place::Uploads, Method::GET) => self.uploads(request.headers(), client.address).await,
            (Place::Settings, Method::GET) => self.settings(&request, client.address).await,
            (Place::Asset, Method::GET | Method::HEAD) => {
                return html::asset(request.uri().path(), request.headers());
            }
            (Place::Settings, Method::PUT | Method::POST) => settings::save(core, request, client.address).await,
            (Place::Nothing, _) => Err(Problem::new(Code::NotFound, "")),
            (place, _) => return not_allowed(&place),
        };
        answer.unwrap_or_else(|problem| match form {
            Some(language) => pages::refusal(core, language, &problem),
            None => problem.into_response(),
        })
    }

    /// The uploads of whoever asks, in the form that is wanted.
    async fn uploads(&self, headers: &HeaderMap, address: IpAddr) -> Result<Response<Body>, Problem> {
        match Wanted::by(headers) {
            Wanted::Json => {
                let entries = uploads::list(&self.core, headers, address).await?;
                Ok(vary(json(StatusCode::OK, &listing::document(&entries))))
            }
            Wanted::Html => Ok(pages::uploads(&self.core, headers, address).await),
            Wanted::Events => events::uploads(&self.core, headers, address, self.shutdown.clone()).await,
        }
    }

    /// The settings of whoever asks, in the form that is wanted.
    async fn settings(&self, request: &Request<Incoming>, address: IpAddr) -> Result<Response<Body>, Problem> {
        let (headers, query) = (request.headers(), request.uri().query());
        match Wanted::by(headers) {
            Wanted::Html => Ok(pages::settings(&self.core, headers, query, address).await),
            Wanted::Json | Wanted::Events => {
                Ok(vary(json(StatusCode::OK, &settings::load(&self.core, headers, address).await?)))
            }
        }
    }
}

/// Says that the answer would be of another form for whoever wants another.
fn vary(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn not_allowed(place: &Place) -> Response<Body> {
    let allow = match place {
        Place::WellKnown | Place::Asset => "GET, HEAD",
        Place::Tickets => "POST",
        Place::Post => "POST, OPTIONS",
        Place::PostOf(_) => "PUT, HEAD, OPTIONS",
        Place::UploadOf(_) => "GET, PUT, POST, DELETE",
        Place::Settings => "GET, PUT, POST",
        Place::Uploads => "GET",
        Place::Nothing | Place::Application => "",
    };
    let mut response = Problem::new(Code::MethodNotAllowed, format_args!("it takes {allow}")).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn well_known(core: &Core) -> Response<Body> {
    let mut response = json(
        StatusCode::OK,
        &json!({
            "hoop": 1,
            "origin": core.origin.as_str(),
            "post": core.url("/hoop/post"),
            "tickets": core.url("/hoop/tickets"),
            "uploads": core.url("/hoop/uploads"),
            "suites": ["aes256gcm", "aes128gcm"],
            "record_size": RECORD_SIZE,
            "max_bytes": core.policy().max_bytes,
            "permits": core.permits().name(),
            "signing_keys": permits::signing_keys(&core.policy()),
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
