//! Tickets as the service issues them (`docs/protocol.md` section 7): [`IssuedTicket`], and fetching them.

pub(crate) mod cache;
pub(crate) mod target;

use self::target::Target;
use crate::request::upload::Credentials;
use crate::wire::{Link, LinkError, Refusal};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hoop_http::{Clock, Code, Origin, OriginError, full};
use hoop_seal::{Suite, TicketLabel, UploadKey};
use hoop_units::{UnixTime, UploadId};
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use url::Url;

/// The most tickets in one request (`docs/protocol.md` section 7).
pub const TICKETS_MAX: u8 = 16;

/// The most gateways that a service lists (`docs/protocol.md` section 6, `GET /test?gateways`).
const GATEWAYS_MAX: usize = 256;

/// The longest URL of a service that is taken: no gateway takes a longer one as its destination.
const URL_MAX: usize = 1024;

/// How long the service may think about tickets.
const TICKET_TIMEOUT: Duration = Duration::from_secs(20);

/// What lets one upload pass, with its key. A secret; `Debug` shows the id alone.
#[derive(Clone)]
pub struct IssuedTicket {
    /// The upload that it is for.
    pub id: UploadId,
    /// The ticket itself, for the prelude.
    pub ticket: Vec<u8>,
    /// K.
    pub key: UploadKey,
    /// T, in base64url.
    pub token: String,
    /// How its records are enciphered.
    pub suite: Suite,
    /// When it begins.
    pub not_before: UnixTime,
    /// When it ends.
    pub expires: UnixTime,
    /// The most bytes that Z may have.
    pub max_bytes: u64,
    /// Where the sealed upload goes.
    pub post: Url,
    /// The service's permit for gateways, in base64url.
    pub permit: Option<String>,
    /// The names of the only gateways that the service takes uploads from, besides devices that show T; `None`: any. At most
    /// `GATEWAYS_MAX`.
    pub gateways: Option<Vec<String>>,
}

impl IssuedTicket {
    /// The upload's way by a gateway, which is shown this permit and should have it at the service by then, in seconds since 1970.
    pub(crate) fn at_gateway(&self, permit: Option<String>, deadline: Option<u32>) -> Target {
        Target::Gateway { dest: self.post.clone(), permit, deadline }
    }

    /// Its way to the service itself, which may keep us waiting so long for a final state.
    pub(crate) fn at_service(&self, wait_secs: u32) -> Target {
        let token = self.gateways.as_ref().map(|_| self.token.clone());
        Target::Service { post: self.post.path().to_owned(), wait_secs, token }
    }
}

/// What the ticket is to be good for.
#[derive(Clone, Debug)]
pub(crate) struct TicketRequest<'a> {
    pub(crate) method: &'a Method,
    /// `None`: any route.
    pub(crate) target: Option<&'a str>,
    pub(crate) count: u8,
    pub(crate) suite: Suite,
    pub(crate) credentials: &'a Credentials,
    /// A K of our own, for one ticket.
    pub(crate) key: Option<&'a UploadKey>,
    /// The name of the gateway that the permit is to be for.
    pub(crate) gateway: Option<&'a str>,
}

/// No ticket.
#[derive(Debug, thiserror::Error)]
pub enum TicketsError {
    /// The service does not speak Hoop.
    #[error("the service does not take sealed uploads ({0})")]
    NoHoop(String),
    /// The service says no.
    #[error("the service issues no ticket: {0}")]
    Refused(Refusal),
    /// The service cannot be reached.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It answers what this version does not understand.
    #[error("the service's ticket cannot be used: {0}")]
    Unusable(String),
}

impl TicketsError {
    /// Whether the service takes the request for malformed.
    pub(crate) fn is_invalid(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.problem.as_ref().is_some_and(|problem| problem.code == Code::RequestInvalid))
    }
}

/// The answer of `/hoop/tickets`; also how a ticket fetched ahead is kept.
#[derive(Serialize, Deserialize)]
pub(crate) struct TicketsDocument {
    post: String,
    tickets: Vec<TicketDocument>,
    /// The gateways that the service takes uploads from; none: any.
    #[serde(default)]
    gateways: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct TicketDocument {
    upload_id: String,
    ticket: String,
    key: String,
    token: String,
    suite: String,
    record_size: u32,
    not_before: u32,
    expires: u32,
    max_bytes: u64,
    #[serde(default)]
    permit: Option<String>,
}

#[derive(Deserialize)]
struct WellKnown {
    hoop: u32,
    tickets: String,
}

/// Asks the service for tickets, over `link`, which is to its origin. One request, unless the tickets are not at the usual
/// path: then `/.well-known/hoop` says where. Of more than were asked for, the first count: whoever keeps them has no room for what a service likes
/// to send.
pub(crate) async fn fetch(
    link: &mut Link,
    request: &TicketRequest<'_>,
    clock: &Clock,
) -> Result<Vec<IssuedTicket>, TicketsError> {
    let mut tickets = fetch_all(link, request, clock).await?;
    tickets.truncate(request.count.into());
    Ok(tickets)
}

async fn fetch_all(
    link: &mut Link,
    request: &TicketRequest<'_>,
    clock: &Clock,
) -> Result<Vec<IssuedTicket>, TicketsError> {
    let answer = ask(link, "/hoop/tickets", request).await?;
    let (first, refusal) = match judge(&answer, clock, link.origin()) {
        Ok(tickets) => return Ok(tickets),
        Err(TicketsError::NoHoop(reason)) => (reason, Refusal::of(&answer, clock.wall())),
        Err(error) => return Err(error),
    };
    // Something else answers there. Only the well-known document is sure to be Hoop's.
    let Some(path) = well_known(link).await? else { return Err(TicketsError::NoHoop(first)) };
    if path == "/hoop/tickets" {
        return Err(TicketsError::Refused(refusal));
    }
    let answer = ask(link, &path, request).await?;
    judge(&answer, clock, link.origin())
}

async fn ask(link: &mut Link, path: &str, asked: &TicketRequest<'_>) -> Result<Response<Bytes>, LinkError> {
    let mut body = serde_json::json!({
        "method": asked.method.as_str(), "target": asked.target, "count": asked.count, "suite": asked.suite.name(),
    });
    if let Some(key) = asked.key {
        body["key"] = URL_SAFE_NO_PAD.encode(key.0).into();
    }
    if let Some(gateway) = asked.gateway {
        body["gateway"] = gateway.into();
    }
    let mut request = link.request(Method::POST, path, full(body.to_string()));
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, const { HeaderValue::from_static("application/json") });
    headers.insert("hoop-version", const { HeaderValue::from_static("1") });
    if let Some(authorization) = &asked.credentials.authorization {
        headers.insert(header::AUTHORIZATION, authorization.clone());
    }
    if let Some(cookie) = &asked.credentials.cookie {
        headers.insert(header::COOKIE, cookie.clone());
    }
    link.ask(request, TICKET_TIMEOUT).await
}

/// `origin`: whose answer it is. It may name another as its own, by whose word the upload is then followed; but none that anybody on the way can speak for.
fn judge(answer: &Response<Bytes>, clock: &Clock, origin: &Origin) -> Result<Vec<IssuedTicket>, TicketsError> {
    let refusal = Refusal::of(answer, clock.wall());
    let not_there = [Code::NotFound, Code::MethodNotAllowed];
    match (answer.status(), &refusal.problem) {
        (StatusCode::OK, _) => match serde_json::from_slice::<TicketsDocument>(answer.body()) {
            Ok(document) => match document.check() {
                Ok(tickets) if origin.is_https() && tickets.iter().any(|ticket| ticket.post.scheme() != "https") => {
                    Err(TicketsError::Unusable("`post` is not https, as the service is".to_owned()))
                }
                checked => checked.map_err(TicketsError::Unusable),
            },
            Err(_) => Err(TicketsError::NoHoop("its answer to a request for tickets is not one".to_owned())),
        },
        (_, Some(problem)) if !not_there.contains(&problem.code) => Err(TicketsError::Refused(refusal)),
        (status, None) if is_busy(status) => Err(TicketsError::Refused(refusal)),
        (status, _) => Err(TicketsError::NoHoop(format!("it answered {status} to a request for tickets"))),
    }
}

/// A refusal that may pass by itself.
pub(crate) fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

/// The path of the tickets resource, if the service has a well-known document. One on another origin is not followed:
/// the user's credentials belong to this one.
async fn well_known(link: &mut Link) -> Result<Option<String>, LinkError> {
    let request = link.request(Method::GET, "/.well-known/hoop", hoop_http::empty());
    let answer = link.ask(request, TICKET_TIMEOUT).await?;
    let document = Some(answer.body()).filter(|_| answer.status() == StatusCode::OK);
    Ok(document.and_then(|document| tickets_path(document, link.origin())))
}

/// The path of the tickets resource that the well-known document of `origin` names.
pub(crate) fn tickets_path(document: &[u8], origin: &Origin) -> Option<String> {
    let document = serde_json::from_slice::<WellKnown>(document).ok().filter(|document| document.hoop == 1)?;
    let url = Url::parse(&document.tickets).ok().filter(|url| url.as_str().len() <= URL_MAX)?;
    Origin::of(&url).is_ok_and(|named| named == *origin).then(|| url.path().to_owned())
}

impl TicketsDocument {
    /// The tickets, each checked as far as a device can.
    pub(crate) fn check(&self) -> Result<Vec<IssuedTicket>, String> {
        let post = Url::parse(&self.post).map_err(|error| format!("`post` is no URL: {error}"))?;
        Origin::of(&post).map_err(|error: OriginError| format!("`post`: {error}"))?;
        if post.as_str().len() > URL_MAX {
            return Err(format!("`post` is longer than {URL_MAX} bytes"));
        }
        if self.tickets.is_empty() {
            return Err("there is none".to_owned());
        }
        let gateways = self.gateways.as_ref();
        if gateways.is_some_and(|names| names.len() > GATEWAYS_MAX) {
            return Err(format!("`gateways` names more than {GATEWAYS_MAX}"));
        }
        self.tickets.iter().map(|ticket| ticket.check(&post, gateways)).collect()
    }

    /// One ticket in the form of the wire.
    pub(crate) fn of(ticket: &IssuedTicket) -> Self {
        let document = TicketDocument {
            upload_id: ticket.id.to_hex(),
            ticket: URL_SAFE_NO_PAD.encode(&ticket.ticket),
            key: URL_SAFE_NO_PAD.encode(ticket.key.0),
            token: ticket.token.clone(),
            suite: ticket.suite.name().to_owned(),
            record_size: hoop_seal::RECORD_SIZE,
            not_before: ticket.not_before.as_secs(),
            expires: ticket.expires.as_secs(),
            max_bytes: ticket.max_bytes,
            permit: ticket.permit.clone(),
        };
        Self { post: ticket.post.to_string(), tickets: vec![document], gateways: ticket.gateways.clone() }
    }
}

impl TicketDocument {
    fn check(&self, post: &Url, gateways: Option<&Vec<String>>) -> Result<IssuedTicket, String> {
        let decode = |name: &str, text: &str| {
            URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("`{name}` is not base64url without padding"))
        };
        let id: UploadId = self.upload_id.parse().map_err(|error| format!("`upload_id`: {error}"))?;
        let ticket = decode("ticket", &self.ticket)?;
        let label = TicketLabel::parse(&ticket).map_err(|error| format!("`ticket`: {error}"))?;
        if label.upload_id != id {
            return Err("`upload_id` and the ticket name different uploads".to_owned());
        }
        if self.record_size != hoop_seal::RECORD_SIZE {
            return Err(format!("`record_size` is {}, expected {}", self.record_size, hoop_seal::RECORD_SIZE));
        }
        decode("token", &self.token)?;
        self.permit.as_ref().map(|permit| decode("permit", permit)).transpose()?;
        let key = decode("key", &self.key)?.try_into().map_err(|_| "`key` has not 32 bytes".to_owned())?;
        let suite = Suite::by_name(&self.suite).ok_or_else(|| format!("`suite` `{}` is not known", self.suite))?;
        Ok(IssuedTicket {
            id,
            ticket,
            key: UploadKey(key),
            token: self.token.clone(),
            suite,
            not_before: UnixTime(self.not_before),
            expires: UnixTime(self.expires),
            max_bytes: self.max_bytes,
            post: post.clone(),
            permit: self.permit.clone(),
            gateways: gateways.cloned(),
        })
    }
}

impl std::fmt::Debug for IssuedTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedTicket").field("id", &self.id).field("expires", &self.expires).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hoop_http::Connector;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    pub(crate) fn issued(number: u8, expires: u32) -> IssuedTicket {
        let mut ticket = vec![0; hoop_seal::TICKET_LEN];
        ticket[0] = 1;
        ticket[5..21].fill(number);
        IssuedTicket {
            id: UploadId([number; 16]),
            ticket,
            key: UploadKey([9; 32]),
            token: "dG9rZW4".to_owned(),
            suite: Suite::Aes256Gcm,
            not_before: UnixTime(0),
            expires: UnixTime(expires),
            max_bytes: 1 << 30,
            post: "https://photos.example/hoop/post".parse().unwrap(),
            permit: Some("cGVybWl0".to_owned()),
            gateways: Some(vec!["0123456789abcdef".repeat(2)]),
        }
    }

    #[test]
    fn a_ticket_survives_its_document() {
        let issued = issued(7, 1_795_604_800);
        let text = serde_json::to_string(&TicketsDocument::of(&issued)).unwrap();
        let read = serde_json::from_str::<TicketsDocument>(&text).unwrap().check().unwrap().remove(0);
        assert_eq!((read.id, read.ticket, read.key), (issued.id, issued.ticket, issued.key));
        assert_eq!((read.token, read.expires, read.post), (issued.token, issued.expires, issued.post));
        assert_eq!((read.permit, read.gateways), (issued.permit, issued.gateways));
    }

    #[test]
    fn a_ticket_that_contradicts_itself_is_refused_by_the_member_at_fault() {
        let wrong = |change: &dyn Fn(&mut TicketsDocument)| {
            let mut document = TicketsDocument::of(&issued(7, 1));
            change(&mut document);
            document.check().unwrap_err()
        };
        assert!(wrong(&|d| d.post = "ftp://x/".into()).starts_with("`post`"));
        let long = format!("https://photos.example/{}", "a".repeat(URL_MAX));
        assert!(wrong(&|d| d.post.clone_from(&long)).starts_with("`post` is longer"));
        assert!(wrong(&|d| d.tickets.clear()).starts_with("there is none"));
        assert!(wrong(&|d| d.tickets[0].upload_id = "08".repeat(16)).contains("different uploads"));
        assert!(wrong(&|d| d.tickets[0].record_size = 4096).contains("record_size"));
        assert!(wrong(&|d| d.tickets[0].key = "AAAA".into()).contains("`key`"));
        assert!(wrong(&|d| d.tickets[0].suite = "rot13".into()).contains("`suite`"));
        assert!(wrong(&|d| d.tickets[0].ticket = "%".into()).contains("`ticket`"));
        assert!(wrong(&|d| d.gateways = Some(vec!["0".repeat(32); GATEWAYS_MAX + 1])).contains("`gateways`"));
    }

    #[test]
    fn a_service_may_have_another_name_and_no_network_speaks_for_it() {
        let judged = |origin: &str, post: &str| {
            let mut document = TicketsDocument::of(&issued(7, 1));
            post.clone_into(&mut document.post);
            let answer = Response::new(Bytes::from(serde_json::to_vec(&document).unwrap()));
            judge(&answer, &Clock::system(), &origin.parse().unwrap()).is_ok()
        };
        assert!(judged("https://photos.example", "https://photos.example/hoop/post"));
        assert!(judged("https://www.photos.example", "https://photos.example/hoop/post"), "its own word, over TLS");
        assert!(judged("http://127.0.0.1:4668", "http://127.0.0.1:4668/hoop/post"));
        assert!(judged("http://127.0.0.1:4668", "https://photos.example/hoop/post"));
        for post in ["http://photos.example/hoop/post", "HTTP://photos.example/hoop/post", "http://127.0.0.1/hoop/post"]
        {
            assert!(!judged("https://photos.example", post), "{post}");
        }
    }

    #[tokio::test]
    async fn of_more_tickets_than_were_asked_for_the_first_count() {
        let mut document = TicketsDocument::of(&issued(1, 9));
        document.tickets.extend((2..=100).map(|number| TicketsDocument::of(&issued(number, 9)).tickets.remove(0)));
        document.post = "http://127.0.0.1/hoop/post".to_owned();
        let body = serde_json::to_string(&document).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let mut reader = BufReader::new(connection);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|len| len > 2) {
                    line.clear();
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = reader.get_mut().write_all(format!("{head}{body}").as_bytes());
                let _ = std::io::copy(&mut reader, &mut std::io::sink());
            }
        });
        let mut link = Link::new(Connector::new(hoop_http::tls::client_config(&[]).unwrap()), origin);
        let (method, suite, credentials) = (&Method::POST, Suite::Aes256Gcm, &Credentials::default());
        for count in [1, 3, TICKETS_MAX] {
            let request =
                TicketRequest { method, target: Some("/f"), count, suite, credentials, key: None, gateway: None };
            let tickets = fetch(&mut link, &request, &Clock::system()).await.unwrap();
            let numbers: Vec<_> = tickets.iter().map(|ticket| ticket.id.0[0]).collect();
            assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
            link.close();
        }
    }

    #[test]
    fn a_tickets_path_that_fits_into_no_request_is_not_followed() {
        let origin: Origin = "https://photos.example".parse().unwrap();
        let named = |len: usize| {
            let tickets = format!("https://photos.example/{}", "t".repeat(len));
            tickets_path(serde_json::json!({"hoop": 1, "tickets": tickets}).to_string().as_bytes(), &origin)
        };
        assert_eq!(named(10), Some("/tttttttttt".to_owned()));
        assert_eq!(named(URL_MAX), None);
        assert_eq!(named(70_000), None, "longer than any path of a request");
    }
}
