//! A flow that is one HTTP exchange, or goes on with an earlier one: [`carry`]. `docs/edge.md` has what is said over it.

use super::access_log::{answered, asked};
use super::cache::Cache;
use super::fetch::{SHUTDOWN_MAX, encode, fetch, fetch_rest, settle};
use super::heads::Heads;
use super::objects::Object;
use super::origins::{Answered, InUse, Origins, ended};
use super::places::Place;
use super::uploads::Stores;
use crate::codes;
use crate::exchange::{FlowBody, put};
use crate::wire::resumed;
use hoop_endpoint::{DeviceId, FlowError, FlowMeter, FlowName, FlowReader, FlowStream, FlowWriter, Status};
use hoop_head::{decode_request, decode_response};
use hoop_http::{Body, empty, streamed};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// When a device has taken nothing for so long, what it has not acknowledged goes to disk.
const SETTLES_AFTER: Duration = Duration::from_secs(1);

/// How soon it is looked again whether a device has acknowledged the first bytes, and how late at most: it may be away for hours.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// So much is passed on before it is looked how much of it was acknowledged, in bytes.
const LOOK_EVERY: u64 = 64 << 10;

/// Reads a request from a flow, and writes the origin's answer to it; or writes the rest of an earlier one.
pub(crate) async fn carry(
    flow: FlowStream,
    origins: &Arc<Origins>,
    stores: Option<&Stores>,
    cache: Option<&Arc<Cache>>,
) {
    let name = flow.name();
    let earlier = resumed(flow.service()).map(|(flow, from)| (FlowName { device: name.device, flow }, from));
    let mut way = Way::of(&flow);
    let (reader, mut writer) = flow.into_split();
    let _under_way = origins.egress.counters.exchange();
    let mut over = way.status.clone();
    let answer = origins.answers.take_now(name.device);
    let mut place = None;
    let begun = async {
        if let Some((name, from)) = earlier {
            let Stores { answers, .. } = stores.ok_or(codes::UNKNOWN_EXCHANGE)?;
            way.from = from;
            let Some(object) = Object::resume(name, from, answers).await.map(|object| object.placed(answer)) else {
                forget_upload(Some(name), stores).await;
                return Err(codes::UNKNOWN_EXCHANGE);
            };
            if let Ok(request) = decode_request(object.request()) {
                asked(request.method(), request.uri());
            }
            return Ok(Some((object, None)));
        }
        let (request, section) = read_request(reader, &origins.heads, name.device, &mut place).await?;
        asked(request.method(), request.uri());
        if request.method() == Method::GET && http_body::Body::is_end_stream(request.body()) {
            let object = Object::new(name, section, stores.map(|stores| stores.answers.clone()));
            return Ok(Some((object.placed(answer), Some(request.into_parts().0))));
        }
        pass(request, name, origins, cache, &mut writer).await.map(|()| None)
    };
    let begun = tokio::select! {
        begun = begun => begun,
        // Nobody waits for it any more.
        _ = over.wait_for(|status| status.over.is_some()) => return,
    };
    let carried = match begun {
        Ok(None) => Ok(()),
        Err(code) => Err(code),
        Ok(Some((object, request))) => {
            let fetched = async {
                match request {
                    Some(request) => match cache {
                        Some(cache) => cache.fetch(&object, request, name.device, origins).await,
                        None => fetch(&object, request, name.device, origins, |_| {}).await,
                    },
                    None if object.came().1 => {}
                    None => {
                        // Without a place it goes on all the same: few are left by an earlier relay.
                        let _head = origins.heads.decode(object.request(), None, name.device).await;
                        if !fetch_rest(&object, name.device, origins).await {
                            object.end(Err(codes::BROKEN)).await;
                        }
                    }
                }
            };
            let carried = way.give(&object, fetched, &mut writer).await;
            // A relay that ends leaves it to the next.
            let is_over = over.borrow_and_update().over;
            if is_over == Some(FlowError::Gone) || (carried == Err(codes::PARKED) && is_over.is_none()) {
                object.leave().await;
            } else {
                object.discard().await;
                forget_upload(earlier.map(|(name, _)| name), stores).await;
            }
            carried
        }
    };
    let Err(code) = carried else { return };
    origins.egress.ended(name.device, code);
    writer.reset(code);
}

/// Removes the upload that this was the answer to, if an earlier relay has left one.
async fn forget_upload(name: Option<FlowName>, stores: Option<&Stores>) {
    if let (Some(name), Some(stores)) = (name, stores) {
        let uploads = stores.uploads.clone();
        let _ = spawn_blocking(move || uploads.answered(name)).await;
    }
}

/// The request that a flow brings, and its head's section; and its place, if it is large.
async fn read_request(
    mut reader: FlowReader,
    heads: &Heads,
    device: DeviceId,
    place: &mut Option<Place>,
) -> Result<(Request<Body>, bytes::Bytes), u64> {
    let malformed = |error: io::Error| {
        tracing::debug!(%error, "a flow brings no request");
        if error.kind() == io::ErrorKind::TimedOut { codes::TOO_MANY } else { codes::MALFORMED }
    };
    let mut section = heads.read(&mut reader, device).await.map_err(malformed)?;
    let large = section.place();
    let decoded = heads.decode(&section.bytes, large, device).await.map_err(malformed)?;
    *place = decoded.place;
    let (mut head, ()) = decoded.request.into_parts();
    head.uri = normal(head.uri).ok_or(codes::MALFORMED)?;
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = FlowBody::new(reader, section.rest, length);
    let body = match length {
        Some(_) => streamed(body),
        // An HTTP/1.1 origin is told before the body whether there is one.
        None => match body.peeked().await.map_err(|_| codes::BROKEN)? {
            None => empty(),
            Some(body) => {
                head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                streamed(body)
            }
        },
    };
    Ok((Request::from_parts(head, body), section.bytes))
}

/// An address as each of its spellings means it: the host in lower case, and no port that its scheme has by default (RFC 9110 §4.2.3). What the cache takes for one address is one for its web server. None: it is
/// neither `http` nor `https`.
pub(super) fn normal(uri: Uri) -> Option<Uri> {
    let default = match uri.scheme()?.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let host = uri.host()?.to_ascii_lowercase();
    let authority = match uri.port_u16().filter(|port| *port != default) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    };
    let mut parts = uri.into_parts();
    parts.authority = Some(authority.try_into().ok()?);
    Uri::from_parts(parts).ok()
}

/// Sends a request, and passes the answer on as fast as the device takes it.
pub(super) async fn pass(
    request: Request<Body>,
    name: FlowName,
    origins: &Origins,
    cache: Option<&Arc<Cache>>,
    writer: &mut FlowWriter,
) -> Result<(), u64> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let (head, body) = request.into_parts();
    if let Some(cache) = cache.filter(|_| method == Method::HEAD && http_body::Body::is_end_stream(&body))
        && let Some(section) = cache.head(&head, name.device, origins).await
    {
        // A flow that is over says so itself.
        put_answer(&section, writer).await.map_err(|_| codes::BROKEN)?;
        return writer.shutdown().await.map_err(|_| codes::BROKEN);
    }
    let request = Request::from_parts(head, body);
    // What is not kept ends with this.
    let Answered { response, connection, in_use, .. } = origins.send(name.device, request).await?;
    let (mut head, body) = response.into_parts();
    settle(&mut head)?;
    if let Some(cache) = cache {
        cache.passed(&method, &uri, &mut head).await;
    }
    write_response(Response::from_parts(head, body), in_use.as_ref(), writer).await?;
    if let Some(mut connection) = connection {
        // It shuts down by itself, unless some of the request is left that its origin does not read.
        let _ = timeout(SHUTDOWN_MAX, connection.join_next()).await;
    }
    Ok(())
}

async fn write_response(
    response: Response<Incoming>,
    in_use: Option<&InUse>,
    writer: &mut FlowWriter,
) -> Result<(), u64> {
    let (head, mut body) = response.into_parts();
    let section = encode(&head)?;
    // A flow that is over says so itself.
    let over = |_| codes::BROKEN;
    put_answer(&section, writer).await.map_err(over)?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            tracing::debug!(%error, "an answer broke off");
            codes::BROKEN
        })?;
        if let Ok(data) = frame.into_data() {
            // What the device does not want yet stays with the web server.
            writer.wanted().await.map_err(over)?;
            writer.write_chunk(data).await.map_err(over)?;
        }
    }
    ended(&body, in_use)?;
    writer.shutdown().await.map_err(over)
}

/// Writes an answer's head.
async fn put_answer(section: &[u8], writer: &mut FlowWriter) -> io::Result<()> {
    answered(|| decode_response(section).ok().map(|response| response.status()));
    put(section, writer).await
}

/// An answer's way to its device.
pub(super) struct Way {
    meter: FlowMeter,
    status: watch::Receiver<Status>,
    /// The first byte of the body that goes over it.
    from: u64,
    /// What goes before that, in bytes.
    head: u64,
}

impl Way {
    /// Over this flow, from the answer's first byte on.
    pub(super) fn of(flow: &FlowStream) -> Self {
        Self { meter: flow.meter(), status: flow.status(), from: 0, head: 0 }
    }

    /// Whether the device has heard of the relay: it does not say its flow again to another.
    pub(super) fn has_acknowledged(&self) -> bool {
        self.meter.stats().is_some_and(|stats| stats.acknowledged > 0)
    }

    /// Returns when the device has acknowledged so much.
    pub(super) async fn acknowledged(&self, bytes: u64) {
        let [mut wait, most] = LOOK_AGAIN;
        while self.meter.stats().is_some_and(|stats| stats.acknowledged < bytes) {
            sleep(wait).await;
            // An eighth of the time that has passed: what was acknowledged is not noticed much later.
            wait = (wait * 9 / 8).min(most);
        }
    }

    /// What becomes of the flow.
    pub(super) fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Passes an object on while it is fetched. Returns once the device has all, or the flow is over; and with [`codes::PARKED`] once the device has been away for long, and the object can wait for it
    /// on disk alone.
    pub(super) async fn give(
        &mut self,
        object: &Object,
        fetched: impl Future<Output = ()>,
        writer: &mut FlowWriter,
    ) -> Result<(), u64> {
        let mut over = self.status.clone();
        let may_park = may_park(self.status.clone(), object);
        let mut fetching = pin!(async {
            fetched.await;
            pending::<()>().await;
        });
        tokio::select! {
            given = self.write(object, writer) => given?,
            () = &mut fetching => {}
            // Nobody waits for it any more.
            _ = over.wait_for(|status| status.over.is_some()) => {}
            () = may_park => return Err(codes::PARKED),
        }
        Ok(())
    }

    async fn write(&mut self, object: &Object, writer: &mut FlowWriter) -> Result<(), u64> {
        // A flow that is over says so itself.
        let over = |_| codes::BROKEN;
        let section = object.answer().await?;
        put_answer(&section, writer).await.map_err(over)?;
        self.head = writer.written();
        let (mut at, mut looked) = (self.from, self.from);
        while object.goes_on(at).await? {
            // The object has what the device does not want yet, and puts it on disk.
            let wanted = self.settling(object, writer.wanted()).await.map_err(over)?;
            let chunk = object.next(at, wanted).await?;
            let len = chunk.len() as u64;
            self.settling(object, writer.write_chunk(chunk)).await.map_err(over)?;
            at += len;
            if at - looked >= LOOK_EVERY {
                looked = at;
                self.look(object);
            }
            object.passed(at);
        }
        writer.shutdown().await.map_err(over)?;
        self.settling(object, writer.finished()).await.map_err(over)
    }

    /// Puts the object on disk if this takes long.
    async fn settling<T>(&self, object: &Object, act: impl Future<Output = T>) -> T {
        let mut act = pin!(act);
        tokio::select! {
            done = &mut act => return done,
            () = sleep(SETTLES_AFTER) => {}
        }
        self.look(object);
        let settling = async {
            object.settle().await;
            pending::<()>().await;
        };
        tokio::select! {
            done = act => done,
            () = settling => unreachable!("it never returns"),
        }
    }

    /// Tells the object what the device has acknowledged.
    fn look(&self, object: &Object) {
        let acknowledged = self.meter.stats().map_or(0, |stats| stats.acknowledged);
        object.release(self.from + acknowledged.saturating_sub(self.head));
    }
}

/// Returns once the device has been away for long, and all of the object is on disk.
async fn may_park(mut status: watch::Receiver<Status>, object: &Object) {
    while status.wait_for(|status| status.offline_since.is_some()).await.is_ok() {
        let parks = async {
            object.long_away().await;
            object.is_whole_on_disk().await;
        };
        tokio::select! {
            biased;
            _ = status.wait_for(|status| status.offline_since.is_none()) => {}
            () = parks => return,
        }
    }
    pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_address_are_one() {
        for (uri, is) in [
            ("http://LocalHost:80/A?b", Some("http://localhost/A?b")),
            ("https://a.example:443/", Some("https://a.example/")),
            ("https://a.example:80/", Some("https://a.example:80/")),
            ("http://[2001:DB8::1]:8080/", Some("http://[2001:db8::1]:8080/")),
            ("ftp://a.example/", None),
        ] {
            assert_eq!(normal(uri.parse().unwrap()).map(|uri| uri.to_string()).as_deref(), is, "{uri}");
        }
    }
}
