//! What is asked of the relay over one flow ([`ask`]), and asked again where the relay has lost it ([`Continuation`]).
//!
//! A relay that was restarted knows no flow of its predecessor's. It may have what that had put on disk, and goes on there. One that has nothing is asked for the rest of the same version, which
//! only an origin can give that names its versions ([`Version`]).

use crate::destination::Destination;
use crate::failure::Failure;
use crate::tunnel::{Dialer, Dialled};
use bytes::Bytes;
use hoop_endpoint::{FlowError, FlowId, FlowMeter, FlowReader, FlowWriter, NetworkStats, Refusal, Status, ended};
use hoop_head::{decode_response, encode_request};
use hoop_http::end_hop;
use hoop_relay::codes;
use hoop_relay::continuation::Version;
use hoop_relay::exchange::{FlowBody, SECTION_BYTES, put, read_head, via};
use hoop_relay::status::Listed;
use hoop_units::UnixTime;
use http::header::{CONTENT_LENGTH, HeaderMap, VIA};
use http::{request, response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// So often the relay may lose an exchange before any more of its answer has come.
const LOST_MAX: usize = 16;

/// So much of a body is read at once that is passed over.
const SKIP_BYTES: usize = 64 << 10;

/// An answer has begun.
pub(crate) struct Came {
    /// The flow that it comes over.
    pub(crate) flow: FlowId,
    pub(crate) head: response::Parts,
    pub(crate) reader: FlowReader,
    /// What has come of its body.
    pub(crate) rest: Bytes,
    /// To be told that the answer is whole. Dropped before, the exchange is given up.
    pub(crate) whole: oneshot::Sender<()>,
}

/// There is no answer.
pub(crate) struct NoAnswer {
    /// What became of the flow.
    pub(crate) over: Option<FlowError>,
    /// The relay had the flow.
    pub(crate) was_attached: bool,
}

impl NoAnswer {
    /// The relay knows nothing of the flow any more. `is_known`: it has known the device. Otherwise it may have had the flow, and have gone before it said so.
    pub(crate) fn is_lost(&self, is_known: bool) -> bool {
        (is_known || self.was_attached) && is_loss(self.over)
    }
}

/// Whether a flow ended so of which the relay may have more on disk, by another flow: it was restarted since, or has parked what there was.
const fn is_loss(over: Option<FlowError>) -> bool {
    matches!(over, Some(FlowError::Refused(Refusal::Unknown) | FlowError::Ended(codes::PARKED)))
}

impl Came {
    /// Its body, of which `length` bytes are to come.
    pub(crate) fn into_body(self, length: Option<u64>) -> (FlowBody, oneshot::Sender<()>) {
        (FlowBody::new(self.reader, self.rest, length), self.whole)
    }

    /// Passes over so many bytes of its body.
    async fn skip(&mut self, mut bytes: u64) -> io::Result<()> {
        while bytes > 0 {
            if self.rest.is_empty() {
                self.rest = self.reader.read_chunk(SKIP_BYTES).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            }
            let skipped = bytes.min(self.rest.len() as u64);
            self.rest = self.rest.split_off(skipped as usize);
            bytes -= skipped;
        }
        Ok(())
    }
}

/// How long a body is, as its head says.
pub(crate) fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The head as the relay gets it; None if heads of exchanges cannot say it.
pub(crate) fn section(head: &request::Parts) -> Option<Vec<u8>> {
    let (mut head, mut section) = (head.clone(), Vec::new());
    end_hop(&mut head.headers);
    head.headers.append(VIA, via(head.version));
    let encoded = encode_request(&head, &mut section);
    encoded.inspect_err(|error| tracing::debug!(%error, "a request goes over a connection of its own")).ok()?;
    (section.len() <= SECTION_BYTES).then_some(section)
}

/// Says this over a new flow, and waits for an answer's head. `kept`: the flow by which the relay has the answer already, if it has.
pub(crate) async fn ask(
    dialled: Dialled,
    kept: Option<FlowId>,
    section: &[u8],
    body: Option<Incoming>,
    dialer: &Arc<Dialer>,
) -> Result<Came, NoAnswer> {
    let Dialled { flow, listed } = dialled;
    let (id, meter, mut status) = (flow.name().flow, flow.meter(), flow.status());
    let status_of_flow = flow.status();
    let (mut reader, mut writer) = flow.into_split();
    let asked = async {
        if !section.is_empty() {
            put(section, &mut writer).await?;
        }
        let (whole, answered) = oneshot::channel();
        let leaves = Leaves { dialer: dialer.clone(), kept: kept.unwrap_or(id), status: status_of_flow };
        tokio::spawn(send(body, writer, answered, leaves, listed));
        let (section, rest) = read_head(&mut reader).await?;
        Ok((whole, section, rest))
    };
    let (whole, section, rest) = asked.await.map_err(|error: io::Error| become_of(&error, &meter, &mut status))?;
    Ok(Came { flow: id, head: read_answer(&section)?, reader, rest, whole })
}

/// What became of a flow that brings no answer.
pub(crate) fn become_of(error: &io::Error, meter: &FlowMeter, status: &mut watch::Receiver<Status>) -> NoAnswer {
    tracing::debug!(%error, "no answer");
    let over = status.borrow_and_update().over;
    let attached = |(_, of_network): &(_, NetworkStats)| !of_network.attached.is_zero();
    NoAnswer { over, was_attached: meter.stats().is_some_and(|stats| stats.networks.iter().any(attached)) }
}

/// An answer's head, of this section.
pub(crate) fn read_answer(section: &[u8]) -> Result<response::Parts, NoAnswer> {
    let head = decode_response(section).ok().filter(|head| !head.status().is_informational());
    let no_http = NoAnswer { over: Some(FlowError::Ended(codes::NO_HTTP)), was_attached: true };
    head.map(|head| head.into_parts().0).ok_or(no_http)
}

/// Sends a request's body, and resets the exchange if the body breaks off, if nobody waits for the answer any more, or if there has been no relay for too long. `answered`: the
/// answer is whole, or was dropped.
async fn send(
    mut body: Option<Incoming>,
    mut writer: FlowWriter,
    mut answered: oneshot::Receiver<()>,
    leaves: Leaves,
    listed: Listed,
) {
    let in_vain = leaves.dialer.connector.is_in_vain(Instant::now());
    let carried = async {
        let sent = async {
            while let Some(body) = &mut body
                && let Some(frame) = body.frame().await
            {
                let data = frame.map_err(io::Error::other)?.into_data().unwrap_or_default();
                writer.write_chunk(data).await?;
            }
            writer.shutdown().await
        };
        tokio::select! {
            sent = sent => match sent {
                Ok(()) => (&mut answered).await.map_err(|_| ended::GIVEN_UP),
                Err(_) => Err(codes::MALFORMED),
            },
            // What nobody has read by the answer's end nobody will.
            _ = &mut answered => Err(ended::GIVEN_UP),
        }
    };
    let carried = tokio::select! {
        carried = carried => carried,
        () = in_vain => Err(ended::GIVEN_UP),
    };
    drop(listed);
    leaves.end(writer, carried).await;
}

/// The end of an exchange, which the relay is told also if it has parked the answer.
pub(crate) struct Leaves {
    pub(crate) dialer: Arc<Dialer>,
    /// The flow by which the relay has the answer.
    pub(crate) kept: FlowId,
    /// Of the flow that ends.
    pub(crate) status: watch::Receiver<Status>,
}

impl Leaves {
    /// Ends the flow, with a code or in order.
    pub(crate) async fn end(mut self, writer: FlowWriter, carried: Result<(), u64>) {
        let may_be_parked = match carried {
            Err(code) => {
                // If it is over by now, another flow may go on with the answer.
                let may_be_parked = {
                    let status = self.status.borrow();
                    status.over.is_none() && (status.offline_since.is_some() || status.wants_carrier)
                };
                writer.reset(code);
                may_be_parked
            }
            Ok(()) => {
                drop(writer);
                self.status.wait_for(|status| status.over.is_some()).await.is_ok_and(|status| is_loss(status.over))
            }
        };
        if may_be_parked && let Ok(flow) = self.dialer.connector.resume_exchange(self.kept, u64::MAX) {
            // It has nothing from there on, and removes the rest.
            let (mut reader, mut writer) = flow.into_split();
            let _ = writer.shutdown().await;
            let _ = reader.read_chunk(SKIP_BYTES).await;
        }
    }
}

/// How often the relay has lost an exchange, and none of its answer has come since. Pure.
#[derive(Default, Debug)]
struct Losses {
    times: usize,
    /// After so many bytes it went on last.
    at: Option<u64>,
}

impl Losses {
    /// Whether it may go on after so many bytes.
    fn goes_on_after(&self, at: u64) -> bool {
        self.times < LOST_MAX || self.at.is_none_or(|from| at > from)
    }

    /// It goes on after so many bytes.
    fn goes_on(&mut self, at: u64) {
        let has_come = self.at.is_none_or(|from| at > from);
        self.times = if has_come { 1 } else { self.times + 1 };
        self.at = Some(at);
    }
}

/// A request without a body that may be asked again, and what its answer goes on with.
pub(crate) struct Continuation {
    dialer: Arc<Dialer>,
    pub(crate) destination: Destination,
    deadline: Option<UnixTime>,
    request: request::Parts,
    /// The flow that a relay knows the exchange by.
    flow: FlowId,
    /// Where its answer's body begins within the one that the program is given.
    base: u64,
    losses: Losses,
    /// What the program has begun to read.
    begun: Option<(Option<Version>, Option<u64>)>,
}

impl Continuation {
    pub(crate) fn new(
        dialer: Arc<Dialer>,
        destination: Destination,
        deadline: Option<UnixTime>,
        request: request::Parts,
        flow: FlowId,
    ) -> Self {
        Self { dialer, destination, deadline, request, flow, base: 0, losses: Losses::default(), begun: None }
    }

    fn dial(&self, earlier: Option<(FlowId, u64)>) -> Result<Dialled, Failure> {
        let dialled = self.dialer.exchange(&self.destination, earlier)?;
        dialled.flow.set_deadline(self.deadline);
        Ok(dialled)
    }

    /// The program is given this answer.
    pub(crate) fn begin(&mut self, came: &Came) {
        self.begun = Some((Version::of(&self.request, &came.head), length(&came.head.headers)));
    }

    /// Whether an exchange can go on that has ended so after `at` bytes: the relay lost it; or it broke off once more where the relay alone did not know how to go on, and something has come since.
    pub(crate) fn goes_on_after(&self, over: Option<FlowError>, at: u64) -> bool {
        let has_version = matches!(&self.begun, Some((Some(_), _)));
        match over {
            over if is_loss(over) => self.losses.goes_on_after(at),
            Some(FlowError::Ended(codes::BROKEN)) => has_version && self.losses.at.is_some_and(|from| at > from),
            _ => false,
        }
    }

    /// The answer once more, after `at` bytes of its body, from what the relay has of it or from the origin.
    pub(crate) async fn go_on(&mut self, at: u64) -> Result<Came, Failure> {
        self.losses.goes_on(at);
        for _ in 0..LOST_MAX {
            let asked = match at.checked_sub(self.base) {
                Some(from) => self.resume(from).await?,
                None => None,
            };
            let asked = match asked {
                Some(asked) => asked,
                None => self.anew(at).await?,
            };
            match asked {
                Ok(came) => return Ok(came),
                Err(no) if no.is_lost(true) => {}
                Err(no) => return Err(no.over.map_or(Failure::Broken, Into::into)),
            }
        }
        Err(Failure::Broken)
    }

    /// What the relay has of the exchange. None: nothing.
    async fn resume(&self, from: u64) -> Result<Option<Result<Came, NoAnswer>>, Failure> {
        let dialled = self.dial(Some((self.flow, from)))?;
        let asked = ask(dialled, Some(self.flow), &[], None, &self.dialer).await;
        let is_unknown =
            |no: &NoAnswer| matches!(no.over, Some(FlowError::Ended(codes::UNKNOWN_EXCHANGE | codes::MALFORMED)));
        Ok(match asked {
            Err(no) if is_unknown(&no) => None,
            asked => Some(asked),
        })
    }

    /// What the origin gives: the whole if the program has nothing yet, and otherwise the rest.
    async fn anew(&mut self, at: u64) -> Result<Result<Came, NoAnswer>, Failure> {
        let request = match &self.begun {
            None => self.request.clone(),
            Some((Some(version), _)) => version.rest(&self.request, at),
            // Nothing would show that it is the same.
            Some((None, _)) => return Err(Failure::Broken),
        };
        let section = section(&request).ok_or(Failure::Broken)?;
        let dialled = self.dial(None)?;
        let mut came = match ask(dialled, None, &section, None, &self.dialer).await {
            Ok(came) => came,
            no => return Ok(no),
        };
        if let Some((Some(version), length)) = &mut self.begun {
            let skips = version.before(&came.head, at).ok_or(Failure::Broken)?;
            *length = length.or(version.length());
            came.skip(skips).await.map_err(|_| Failure::Broken)?;
            self.base = at - skips;
        }
        self.flow = came.flow;
        Ok(Ok(came))
    }

    /// How many bytes are to come after the first `at`.
    pub(crate) fn left(&self, at: u64) -> Option<u64> {
        let (_, length) = self.begun.as_ref()?;
        length.map(|length| length.saturating_sub(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_loses_an_answer_each_time_is_asked_so_often_and_no_more() {
        let mut losses = Losses::default();
        let mut asked = |at, most| {
            let times = (0..most).take_while(|_| {
                let goes_on = losses.goes_on_after(at);
                losses.goes_on(at);
                goes_on
            });
            times.count()
        };
        assert_eq!(asked(0, 1_000), LOST_MAX);
        assert_eq!((asked(5, 3), asked(6, 1_000)), (3, LOST_MAX), "something has come");
    }
}
