//! Fetches an answer into its [`Object`], at the origin's pace, and goes on where the origin broke off ([`fetch`]).

use super::heads::request_of;
use super::objects::Object;
use super::origins::{Answered, InUse, Origins, ended};
use crate::codes;
use crate::continuation::Version;
use crate::exchange::{SECTION_BYTES, via};
use bytes::Bytes;
use hoop_endpoint::DeviceId;
use hoop_head::{decode_response, encode_response};
use hoop_http::{UnclearLength, empty, end_hop, settle_length};
use http::header::{CONTENT_LENGTH, VIA};
use http::{HeaderMap, Request, request, response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long a connection has to shut down after its answer.
pub(super) const SHUTDOWN_MAX: Duration = Duration::from_secs(1);

/// An origin that has broken off is asked for the rest after so long, in milliseconds, again and again, for about a minute in which less than [`PROGRESS`] comes.
const AGAIN_AFTER: [u64; 9] = [100, 400, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000];

/// One that gives so much before it breaks off again is asked anew as soon as before, in bytes. Each time is a connection of the device's share: an origin that gives a byte each time would use
/// it up.
const PROGRESS: u64 = 64 << 10;

/// How often an origin was asked for the rest, and when it is next.
#[derive(Debug)]
struct Patience {
    tries: usize,
    /// How much was there when it was last asked at once.
    had: u64,
}

impl Patience {
    /// After how long an origin is asked again that broke off after so many bytes. None: not again.
    fn next(&mut self, has: u64) -> Option<Duration> {
        if has - self.had >= PROGRESS {
            (self.tries, self.had) = (0, has);
        }
        let after = AGAIN_AFTER.get(self.tries)?;
        self.tries += 1;
        Some(Duration::from_millis(*after))
    }
}

/// A body that comes, and the connection that it comes over.
#[derive(Debug)]
pub(super) struct Source {
    body: Incoming,
    /// How many bytes are there already.
    skips: u64,
    connection: Option<JoinSet<()>>,
    in_use: Option<InUse>,
}

impl Source {
    /// What comes next. None: the body has come to its end.
    ///
    /// # Errors
    /// The code that it breaks off with.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, u64> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| {
                tracing::debug!(%error, "an answer broke off");
                codes::BROKEN
            })?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
        ended(&self.body, self.in_use.as_ref()).map(|()| None)
    }

    /// Lets the connection shut down by itself, unless some of the request is left that its origin does not read.
    pub(super) async fn close(self) {
        if let Some(mut connection) = self.connection {
            let _ = timeout(SHUTDOWN_MAX, connection.join_next()).await;
        }
    }
}

/// Sends the request, and puts what comes into the object. `mark` says of the answer what the device is to know.
pub(super) async fn fetch(
    object: &Object,
    request: request::Parts,
    device: DeviceId,
    origins: &Origins,
    mark: impl FnOnce(&mut HeaderMap),
) {
    match origins.send(device, Request::from_parts(request.clone(), empty())).await {
        Ok(answered) => {
            let (mut head, source) = split(answered, 0);
            match settle(&mut head) {
                Ok(()) => {
                    mark(&mut head.headers);
                    pass_on(object, request, head, source, device, origins).await;
                }
                Err(code) => object.end(Err(code)).await,
            }
        }
        Err(code) => object.end(Err(code)).await,
    }
}

/// Puts an answer that has begun into the object.
pub(super) async fn pass_on(
    object: &Object,
    request: request::Parts,
    head: response::Parts,
    source: Source,
    device: DeviceId,
    origins: &Origins,
) {
    let version = Version::of(&request, &head);
    match encode(&head) {
        Ok(section) => {
            let section = Bytes::from(section);
            object.store_head(section.clone()).await;
            object.begin(section);
            bring(object, version.map(|version| (version, request)), Some(source), device, origins).await;
        }
        Err(code) => object.end(Err(code)).await,
    }
}

/// Fetches the rest of an object that an earlier process has left. False: nothing shows what its rest would be.
pub(super) async fn fetch_rest(object: &Object, device: DeviceId, origins: &Origins) -> bool {
    let Ok(answer) = object.answer().await else { return false };
    if is_complete(object).await {
        object.end(Ok(())).await;
        return true;
    }
    let (Ok(request), Ok(answer)) = (request_of(object.request()), decode_response(&answer)) else { return false };
    let ((request, ()), (answer, ())) = (request.into_parts(), answer.into_parts());
    let Some(version) = Version::of(&request, &answer) else { return false };
    bring(object, Some((version, request)), None, device, origins).await;
    true
}

/// Whether all of an answer has come, as its head says: an earlier process may have ended before it noted that.
pub(super) async fn is_complete(object: &Object) -> bool {
    let answer = object.answer().await.ok().and_then(|answer| decode_response(&answer).ok());
    let length = answer.as_ref().and_then(|answer| answer.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok());
    length == Some(object.came().0)
}

/// Brings a body to its end, from as many answers as it takes.
pub(super) async fn bring(
    object: &Object,
    mut again: Option<(Version, request::Parts)>,
    mut source: Option<Source>,
    device: DeviceId,
    origins: &Origins,
) {
    let mut patience = Patience { tries: 0, had: object.came().0 };
    loop {
        let code = match source.take() {
            None => codes::BROKEN,
            Some(mut source) => {
                match copy(&mut source, again.as_ref().and_then(|(version, _)| version.length()), object).await {
                    Err(code @ codes::NO_HTTP) => return object.end(Err(code)).await,
                    Ok(()) if again.as_ref().is_some_and(|(version, _)| version.is_short(object.came().0)) => {
                        codes::BROKEN
                    }
                    Ok(()) => {
                        object.end(Ok(())).await;
                        return source.close().await;
                    }
                    Err(code) => code,
                }
            }
        };
        let Some((version, request)) = &mut again else { return object.end(Err(code)).await };
        let (has, _) = object.came();
        if version.is_whole(has) {
            return object.end(Ok(())).await;
        }
        let Some(after) = patience.next(has) else { return object.end(Err(code)).await };
        sleep(after).await;
        tracing::debug!(has, "an origin broke off, and is asked for the rest");
        let rest = Request::from_parts(version.rest(request, has), empty());
        match origins.send(device, rest).await {
            Ok(answered) => {
                let (head, rest) = split(answered, 0);
                // An origin that is in trouble says so with one of these, and may be well again.
                if head.status.is_server_error() {
                    continue;
                }
                let Some(skips) = version.before(&head, has) else { return object.end(Err(codes::BROKEN)).await };
                source = Some(Source { skips, ..rest });
            }
            Err(code @ (codes::FORBIDDEN | codes::REVOKED)) => return object.end(Err(code)).await,
            Err(_) => {}
        }
    }
}

pub(super) fn split(Answered { response, connection, in_use, .. }: Answered, skips: u64) -> (response::Parts, Source) {
    let (head, body) = response.into_parts();
    (head, Source { body, skips, connection, in_use })
}

/// Puts what comes into the object, which has so many bytes at most.
async fn copy(source: &mut Source, most: Option<u64>, object: &Object) -> Result<(), u64> {
    while let Some(mut data) = source.next().await? {
        let skipped = source.skips.min(data.len() as u64);
        source.skips -= skipped;
        let data = data.split_off(skipped as usize);
        if most.is_some_and(|most| object.came().0 + data.len() as u64 > most) {
            tracing::debug!("an answer is longer than its version");
            return Err(codes::NO_HTTP);
        }
        if !data.is_empty() {
            object.push(data).await;
        }
    }
    if source.skips > 0 { Err(codes::BROKEN) } else { Ok(()) }
}

/// Makes an answer's head the one of the next hop.
pub(super) fn settle(head: &mut response::Parts) -> Result<(), u64> {
    settle_length(&mut head.headers).map_err(|UnclearLength| codes::NO_HTTP)?;
    end_hop(&mut head.headers);
    head.headers.append(VIA, via(head.version));
    Ok(())
}

/// A head as the device gets it.
pub(super) fn encode(head: &response::Parts) -> Result<Vec<u8>, u64> {
    let mut section = Vec::new();
    encode_response(head, &mut section).map_err(|error| {
        tracing::debug!(%error, "an origin's answer cannot be passed on");
        codes::NO_HTTP
    })?;
    if section.len() > SECTION_BYTES {
        return Err(codes::NO_HTTP);
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_that_gives_a_byte_each_time_is_asked_for_a_minute_at_most() {
        let mut patience = Patience { tries: 0, had: 0 };
        let asked: Vec<_> = (1..100).map_while(|has| patience.next(has)).collect();
        assert_eq!(asked.len(), AGAIN_AFTER.len());
        let mut patience = Patience { tries: 0, had: 0 };
        assert!((1..100).all(|times| patience.next(times * PROGRESS) == Some(Duration::from_millis(AGAIN_AFTER[0]))));
    }
}
