//! The ordinary request, for a service without Hoop: streamed over one connection, with its exact `Content-Length`.
//!
//! It is sent once. If the connection breaks before the last byte was handed over, no application can have taken it;
//! after that, the outcome is unknown.

use crate::config::ClientConfig;
use crate::request::plaintext::Plaintext;
use crate::request::source::SourceError;
use crate::request::upload::{Measured, Upload};
use crate::seal::sealed::{FrameBody, Meter};
use crate::send::transfer::OnSent;
use crate::wire::status::{Answer, State};
use crate::wire::{Link, LinkError, deepest};
use bytes::Bytes;
use hoop_http::{ConnectError, is_elsewhere, is_sign_in, streamed};
use http::header::{self, HeaderName};
use http::{HeaderValue, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Bytes read at a time.
const FRAME: u64 = 256 * 1024;

/// Frames ahead of the socket.
const FRAMES_AHEAD: usize = 3;

/// How much of the application's answer is kept: as much as a service keeps.
const BODY_MAX: usize = 16 * 1024;

/// The ordinary request did not come to an answer.
#[derive(Debug)]
pub(crate) enum PlainError {
    /// No connection.
    Connect(ConnectError),
    /// It broke before everything was sent.
    Broken(LinkError),
    /// It broke after everything was sent.
    AnswerLost(LinkError),
    /// A local file.
    Source(SourceError),
}

/// Sends `upload` as it is and returns what became of it.
pub(crate) async fn send(
    config: &ClientConfig,
    link: &mut Link,
    upload: &Upload,
    measured: Measured,
    on_sent: OnSent,
) -> Result<(State, Answer), PlainError> {
    let host = link.origin().host().to_string();
    let own = link.origin().authority().to_string();
    let len = measured.body_len();
    let fields = measured.fields().to_vec();
    let meter = Arc::new(Meter::new(move |sent| on_sent(sent)));
    let body = stream(Arc::new(measured.into_body()), meter.clone());
    let mut request = link.request(upload.method.clone(), &upload.target(), streamed(body));
    let headers = request.headers_mut();
    headers.clear();
    for (name, value) in fields {
        let name = HeaderName::try_from(name).expect("made of a header name");
        headers.append(name, HeaderValue::try_from(value).expect("made of a header value"));
    }
    let credentials = &upload.credentials;
    let held = [(header::AUTHORIZATION, &credentials.authorization), (header::COOKIE, &credentials.cookie)];
    for (name, value) in held {
        if let Some(value) = value {
            headers.insert(name, value.clone());
        }
    }
    let connection = link.open().await.map_err(PlainError::Connect)?;
    let mut sending = std::pin::pin!(connection.send(request));
    let mut seen = 0;
    let response = loop {
        // While bytes leave, silence is a broken line; afterwards the application thinks.
        let timeout = if seen < len { config.stall_timeout } else { config.retry_max_time };
        match tokio::time::timeout(timeout, &mut sending).await {
            Ok(Ok(response)) => break Ok(response),
            Ok(Err(error)) => break Err(LinkError::Broken { host, reason: deepest(&error) }),
            Err(_) if meter.sent() > seen => seen = meter.sent(),
            Err(_) => break Err(LinkError::Silent { host, waited: timeout }),
        }
    };
    if let Some(error) = meter.take_failure() {
        return Err(PlainError::Source(error));
    }
    match response {
        Ok(response) => {
            let answer = read(response, config.stall_timeout).await;
            Ok((judge(&answer, &own), answer))
        }
        Err(error) if meter.sent() < len => Err(PlainError::Broken(error)),
        Err(error) => Err(PlainError::AnswerLost(error)),
    }
}

fn stream(body: Arc<Plaintext>, meter: Arc<Meter>) -> FrameBody {
    let (sender, frames) = mpsc::channel(FRAMES_AHEAD);
    let remaining = body.len();
    tokio::task::spawn_blocking(move || {
        let mut at = 0;
        while at < body.len() {
            let len = FRAME.min(body.len() - at);
            let mut frame = vec![0; usize::try_from(len).expect("a frame fits in memory")];
            let frame = body.read_at(at, &mut frame).map(|()| Bytes::from(frame));
            let failed = frame.is_err();
            if sender.blocking_send(frame).is_err() || failed {
                return;
            }
            at += len;
        }
    });
    FrameBody { frames, remaining, meter }
}

/// The head's two fields and the beginning of the body, as far as it comes within `longest`. A body that breaks off or does not end is short, and the
/// answer counts.
async fn read(response: Response<Incoming>, longest: Duration) -> Answer {
    let (head, mut incoming) = response.into_parts();
    let until = Instant::now() + longest;
    let mut body = Vec::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(until, incoming.frame()).await {
        if let Some(data) = frame.data_ref() {
            body.extend_from_slice(&data[..data.len().min(BODY_MAX - body.len())]);
        }
        if body.len() == BODY_MAX {
            break;
        }
    }
    let kept = [header::CONTENT_TYPE, header::LOCATION];
    let fields = kept.iter().filter_map(|name| {
        let value = head.headers.get(name)?.to_str().ok()?;
        Some((name.to_string(), value.to_owned()))
    });
    Answer { status: head.status.as_u16(), fields: fields.collect(), body }
}

/// The success rule that a service has without a route of its own (`docs/protocol.md` section 7). Nobody keeps an ordinary request until its sender has signed in: what a service would
/// hold is rejected here. `own` is the server that was asked.
fn judge(answer: &Answer, own: &str) -> State {
    match answer.status {
        200..=299 => State::Accepted,
        // Redirects that say where the answer is. 301, 307 and 308 ask for the same request elsewhere.
        302 | 303 => {
            let location = answer.field("location").unwrap_or_default().as_bytes();
            let leads_away = is_sign_in(location) || is_elsewhere(location, [own; 2]);
            if leads_away { State::Rejected } else { State::Accepted }
        }
        // A proxy's word that no answer came in time, or none that it could read.
        502 | 504 => State::Unknown,
        _ => State::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::source::Content;
    use crate::request::upload::Payload;
    use hoop_http::{Connector, Rng};
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// A web server that answers at once with a head and two bytes, and then sends one more each `pause`, without end; `None`: nothing more. Returns
    /// where it is.
    fn endless(pause: Option<Duration>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/f", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let mut send = |text: &str| stream.write_all(text.as_bytes()).is_ok();
            send("HTTP/1.1 201 Created\r\nContent-Length: 99999999\r\n\r\nok");
            while pause.is_none_or(|_| send(".")) {
                std::thread::sleep(pause.unwrap_or(Duration::from_secs(60)));
            }
        });
        url
    }

    #[tokio::test]
    async fn an_answer_without_an_end_counts_without_the_rest() {
        for pause in [None, Some(Duration::from_millis(20))] {
            let payload = Payload::Data { content: vec![Content::Bytes("hello".into())], content_type: None };
            let upload = Upload::new(endless(pause).parse().unwrap(), payload);
            let config = ClientConfig { stall_timeout: Duration::from_millis(500), ..ClientConfig::default() };
            let connector = Connector::new(hoop_http::tls::client_config(&[]).unwrap());
            let mut link = Link::new(connector, upload.origin().unwrap());
            let measured = upload.measure(Rng).unwrap();
            let sent = send(&config, &mut link, &upload, measured, Arc::new(|_| ()));
            let sent = tokio::time::timeout(Duration::from_secs(20), sent).await.expect("it waits for ever");
            let (state, answer) = sent.unwrap();
            assert_eq!((state, answer.status), (State::Accepted, 201));
            assert!(answer.body.starts_with(b"ok"), "{pause:?}: {:?}", answer.body);
        }
    }

    #[test]
    fn an_answer_is_judged_as_a_service_without_routes_does() {
        let of = |status, location: Option<&str>| {
            let fields = location.map(|location| ("location".to_owned(), location.to_owned()));
            judge(&Answer { status, fields: fields.into_iter().collect(), body: Vec::new() }, "photos.example:8443")
        };
        assert_eq!(of(201, None), State::Accepted);
        assert_eq!(of(302, Some("/admin/images/")), State::Accepted);
        assert_eq!(of(302, Some("/admin/Login/?next=/")), State::Rejected);
        assert_eq!(of(302, Some("/authors/")), State::Accepted);
        assert_eq!(of(303, Some("https://photos.example:8443/images/7")), State::Accepted);
        assert_eq!(of(302, Some("/index.php?title=Special:UserLogin")), State::Rejected);
        assert_eq!(of(303, Some("http://wifi.example/portal")), State::Rejected);
        for status in [300, 301, 304, 305, 307, 308] {
            assert_eq!(of(status, Some("https://photos.example:8443/")), State::Rejected, "{status}");
        }
        assert_eq!(of(401, None), State::Rejected);
        assert_eq!(of(413, None), State::Rejected);
        assert_eq!(of(503, None), State::Rejected);
        assert_eq!(of(502, None), State::Unknown);
    }
}
