//! The HTTP side of the agent: which request is for whom.

use crate::authority::{Authority, AuthorityFile};
use crate::destination::Destination;
use crate::entrusted::Entrusted;
use crate::entrusting::{self, NotFor};
use crate::exchange::{Exchanged, exchange};
use crate::failure::Failure;
use crate::forward::{forward, upgrade};
use crate::local::{Local, text};
use crate::patient::Patient;
use crate::socket::{ProgramSocket, UnderWay};
use crate::spoken::http1;
use crate::tunnel::{Dialer, Dialled};
use hoop_http::{Body, empty, end_hop, until_gone};
use hoop_units::UnixTime;
use http::header::{HeaderMap, TRANSFER_ENCODING};
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;

/// When what a request asks for should be there, in seconds since 1970. It is for the agent: the flow carries it to the relay, and ends then.
const DEADLINE: HeaderName = HeaderName::from_static("hoop-deadline");

/// Why there is no connection, for programs (RFC 9209).
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// What requests are answered with.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) local: Local,
    /// Whose requests the relay makes also by `https`.
    pub(crate) entrusted: Entrusted,
    /// What shows the agent as them, and for which of them.
    pub(crate) authority: Option<(Authority, Entrusted)>,
    /// Uploads that go to the gateway of this network.
    pub(crate) patient: Option<Arc<Patient>>,
}

/// Serves a program's connection until it ends.
pub(crate) async fn serve(program: ProgramSocket, proxy: Arc<Proxy>) {
    let under_way = program.under_way();
    let service = service_fn(|request| {
        let (proxy, under_way) = (proxy.clone(), under_way.clone());
        async move { Ok::<_, Infallible>(proxy.answer(request, &under_way).await) }
    });
    tokio::select! {
        served = http1().serve_connection(TokioIo::new(program), service).with_upgrades() => {
            let _ = served.inspect_err(|error| tracing::debug!(%error, "a program's connection broke off"));
        }
        // What it waited for ends with this.
        _ = under_way.program_left() => tracing::debug!("a program has gone before its answer was whole"),
    }
}

impl Proxy {
    async fn answer(self: Arc<Self>, mut request: Request<Incoming>, under_way: &UnderWay) -> Response<Body> {
        let Ok(deadline) = deadline(request.headers_mut()) else {
            return no_deadline();
        };
        if request.method() == Method::CONNECT {
            return self.connect(request, deadline, under_way).await;
        }
        let uri = request.uri();
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return self.local.answer(request.method(), uri.path(), request.headers());
        };
        let destination = match scheme.as_str() {
            "http" => destination(authority, Some(80)),
            "https" => destination(authority, Some(443)),
            _ => None,
        };
        let Some(destination) = destination else { return no_destination() };
        let is_patient = self.patient.as_ref().is_some_and(|patient| patient.url(request.method(), uri).is_some());
        if *scheme == Scheme::HTTPS && !is_patient && !self.entrusted.covers(&destination) {
            return text(
                StatusCode::NOT_IMPLEMENTED,
                "hoop agent: an https:// address goes by CONNECT, so that the program itself speaks TLS; or --entrust names its host\n",
            );
        }
        if self.local.is_own(authority) {
            return self.local.answer(request.method(), uri.path(), request.headers());
        }
        self.pass(request, &destination, deadline, under_way).await
    }

    /// Passes a request on, and its answer back.
    async fn pass(
        &self,
        request: Request<Incoming>,
        destination: &Destination,
        deadline: Option<UnixTime>,
        under_way: &UnderWay,
    ) -> Response<Body> {
        if has_unknown_coding(request.headers()) {
            return text(StatusCode::NOT_IMPLEMENTED, "hoop agent: of transfer codings it knows `chunked` alone\n");
        }
        if request.method() == Method::TRACE {
            return text(StatusCode::NOT_IMPLEMENTED, "hoop agent: it passes no TRACE on\n");
        }
        let patient = self.patient.as_ref().and_then(|patient| {
            let url = patient.url(request.method(), request.uri())?;
            Some((patient, url))
        });
        under_way.begins();
        if let Some((patient, url)) = patient {
            let response = patient.hand_over(request, url, deadline, under_way.guest()).await;
            under_way.ends();
            return response;
        }
        let answered = self.request(request, destination, deadline, under_way).await;
        answered.unwrap_or_else(|failure| {
            under_way.ends();
            refused(destination, failure)
        })
    }

    /// A request that goes to its origin, and the answer that comes back.
    async fn request(
        &self,
        request: Request<Incoming>,
        destination: &Destination,
        deadline: Option<UnixTime>,
        under_way: &UnderWay,
    ) -> Result<Response<Body>, Failure> {
        let not_made = if upgrade(request.headers()).is_some() {
            request
        } else {
            match exchange(request, destination, deadline, &self.dialer, under_way).await? {
                Exchanged::Answered(mut response) => {
                    // A relay takes them out itself.
                    end_hop(response.headers_mut());
                    return of_origin(response);
                }
                Exchanged::NotMade(request) => request,
            }
        };
        of_origin(forward(not_made, destination, &self.dialer, under_way).await?)
    }

    /// A tunnel (RFC 9110 §9.3.6).
    async fn connect(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        deadline: Option<UnixTime>,
        under_way: &UnderWay,
    ) -> Response<Body> {
        let authority = request.uri().authority();
        let Some(destination) = authority.and_then(|authority| destination(authority, None)) else {
            return no_destination();
        };
        let is_shown = self.authority.as_ref().is_some_and(|(authority, shown)| {
            shown.covers(&destination)
                && authority.is_good(AuthorityFile::now(), |words| self.dialer.connector.say(words))
        });
        if is_shown {
            tokio::spawn(self.speak(hyper::upgrade::on(&mut request), destination, deadline, under_way.clone()));
            return Response::new(empty());
        }
        let Dialled { flow, listed } = match self.dialer.dial(&destination).await {
            Ok(dialled) => dialled,
            Err(failure) => return refused(&destination, failure),
        };
        flow.set_deadline(deadline);
        let (upgraded, dialer, under_way) = (hyper::upgrade::on(&mut request), self.dialer.clone(), under_way.clone());
        tokio::spawn(async move {
            // It has gone before it was answered.
            let Ok(program) = upgraded.await else { return };
            dialer.carry(TokioIo::new(program), &under_way, &destination, Dialled { flow, listed }).await;
        });
        Response::new(empty())
    }

    /// Speaks TLS to a program as the host that it wants to reach, and passes its requests on.
    async fn speak(
        self: Arc<Self>,
        program: OnUpgrade,
        destination: Destination,
        deadline: Option<UnixTime>,
        under_way: UnderWay,
    ) {
        let Some((authority, _)) = &self.authority else { return };
        let (proxy, to, program_is) = (self.clone(), destination.clone(), under_way.clone());
        let answer = move |request: Result<Request<Incoming>, NotFor>| {
            let (proxy, to, under_way) = (proxy.clone(), to.clone(), program_is.clone());
            async move {
                match request {
                    Ok(mut request) if request.method() != Method::CONNECT => {
                        let Ok(own) = self::deadline(request.headers_mut()) else { return no_deadline() };
                        if request.version() != Version::HTTP_2 {
                            return proxy.pass(request, &to, own.or(deadline), &under_way).await;
                        }
                        // Others of this connection are under way beside it.
                        let Some(flow) = under_way.another_flow() else { return refused(&to, Failure::TooMany) };
                        let response = proxy.pass(request, &to, own.or(deadline), &under_way).await;
                        response.map(|body| until_gone(body, flow))
                    }
                    _ => text(StatusCode::MISDIRECTED_REQUEST, "hoop agent: this connection is to another host\n"),
                }
            }
        };
        entrusting::serve(program, &destination, authority, under_way, answer).await;
    }
}

/// Whether a body was coded in another way than `chunked` (RFC 9112 §6.1): it would arrive coded, and nothing would say so.
fn has_unknown_coding(headers: &HeaderMap) -> bool {
    headers.get_all(TRANSFER_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// When a request should be answered, as its program says.
fn deadline(headers: &mut HeaderMap) -> Result<Option<UnixTime>, ()> {
    let Some(told) = headers.remove(DEADLINE) else { return Ok(None) };
    let seconds = told.to_str().ok().filter(|told| told.bytes().all(|byte| byte.is_ascii_digit()));
    seconds.and_then(|seconds| seconds.parse().ok()).map(|seconds| Some(UnixTime(seconds))).ok_or(())
}

/// Where a request goes. A name and a password before the host are for nobody (RFC 9110 §4.2.4).
fn destination(authority: &http::uri::Authority, default_port: Option<u16>) -> Option<Destination> {
    Destination::parse(authority.as_str(), default_port)
}

/// An origin's answer as the program gets it. An origin does not speak as this proxy: a program would take it for the proxy that it is connected to.
fn of_origin(mut response: Response<Body>) -> Result<Response<Body>, Failure> {
    // Of later classes nobody knows what they mean (RFC 9110 §15).
    if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED || response.status().as_u16() > 599 {
        return Err(Failure::NoHttp);
    }
    response.extensions_mut().remove::<ReasonPhrase>();
    let headers = response.headers_mut();
    let told = headers.get_all(PROXY_STATUS).iter();
    let of_others: Vec<_> = told.filter(|value| !names_us(value)).cloned().collect();
    headers.remove(PROXY_STATUS);
    headers.extend(of_others.into_iter().map(|value| (PROXY_STATUS, value)));
    Ok(response)
}

/// Whether a `Proxy-Status` says anything of this proxy (RFC 9209 §2), or might to a lenient reader. Its name is a token or a string there. Each comma counts as one between members,
/// each backslash as an escape, and either case as the same; a list within brackets begins as its first member does.
fn names_us(value: &HeaderValue) -> bool {
    value.as_bytes().split(|byte| *byte == b',').any(|member| {
        let is_before = |byte: &&u8| byte.is_ascii_whitespace() || [b'(', b'"', b'\\'].contains(byte);
        let name = member.iter().skip_while(is_before).filter(|byte| **byte != b'\\');
        let name: Vec<_> = name.map(u8::to_ascii_lowercase).collect();
        name.strip_prefix(b"hoop").is_some_and(|rest| !rest.first().is_some_and(is_token))
    })
}

/// Whether a name goes on with this byte (RFC 8941 §3.3.4).
const fn is_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'*')
}

fn no_deadline() -> Response<Body> {
    text(StatusCode::BAD_REQUEST, "hoop agent: Hoop-Deadline is a number of seconds since 1970\n")
}

fn no_destination() -> Response<Body> {
    text(StatusCode::BAD_REQUEST, "hoop agent: expected http://HOST[:PORT]/… or CONNECT HOST:PORT\n")
}

fn refused(destination: &Destination, failure: Failure) -> Response<Body> {
    let (status, error) = failure.status();
    let mut response = text(status, &format!("hoop agent: {destination}: {}\n", failure.words()));
    let value = HeaderValue::try_from(format!("hoop; error={error}"));
    value.into_iter().for_each(|value| drop(response.headers_mut().insert(PROXY_STATUS, value)));
    response
}
