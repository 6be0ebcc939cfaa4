//! Requests that may be made once alone ([`Upload`]): the relay keeps each until it is whole, and here is kept what it has not got on its disk yet.
//!
//! Bounds: of a body, as much as a flow may have written and not acknowledged ([`FlowConnector::send_buffer`](hoop_relay::FlowConnector::send_buffer)), and one piece.

use crate::destination::Destination;
use crate::failure::Failure;
use crate::question::{Came, Leaves, NoAnswer, become_of, length, read_answer};
use crate::tunnel::{Dialer, Dialled, REFUSED_FOR, Uploads};
use bytes::Bytes;
use hoop_endpoint::{FlowError, FlowId, FlowReader, FlowWriter, ended};
use hoop_relay::codes;
use hoop_relay::exchange::put;
use hoop_relay::status::Listed;
use hoop_relay::upload::{JournalId, Told, greeted};
use hoop_units::UnixTime;
use http::request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// So often the relay may lose an upload before any more of it has come.
const LOST_MAX: usize = 16;

/// A piece is short that has less, in bytes.
const SHORT: usize = 4 << 10;

/// After so long a relay that ends is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The relay's journal, which it is asked for if it was not before. None: it takes no uploads.
///
/// # Errors
/// [`Failure::NoRelay`], if there has been none for too long.
pub(crate) async fn journal(dialer: &Arc<Dialer>, destination: &Destination) -> Result<Option<JournalId>, Failure> {
    tokio::select! {
        journal = ask_journal(dialer, destination) => Ok(journal),
        // Also of whoever waits for another that asks.
        () = dialer.connector.is_in_vain(Instant::now()) => Err(Failure::NoRelay),
    }
}

async fn ask_journal(dialer: &Arc<Dialer>, destination: &Destination) -> Option<JournalId> {
    let mut known = dialer.uploads.lock().await;
    match *known {
        Uploads::Taken(journal) => return Some(journal),
        Uploads::Refused(at) if at.elapsed() < REFUSED_FOR => return None,
        Uploads::Refused(_) | Uploads::Unasked => {}
    }
    let Dialled { flow, listed: _listed } = dialer.upload(destination, None).ok()?;
    let mut status = flow.status();
    let (mut reader, mut writer) = flow.into_split();
    // What is no request it answers with its journal alone.
    let asked = async {
        writer.shutdown().await?;
        greeted(&mut reader).await
    };
    match asked.await {
        Ok((journal, _)) => *known = Uploads::Taken(journal),
        Err(_) if status.borrow_and_update().over == Some(FlowError::Ended(codes::MALFORMED)) => {
            *known = Uploads::Refused(Instant::now());
        }
        Err(_) => {}
    }
    match *known {
        Uploads::Taken(journal) => Some(journal),
        _ => None,
    }
}

/// A request's body, of which what the relay may lose is kept.
struct Sending {
    body: Option<Incoming>,
    /// What lies from `base` on.
    kept: VecDeque<Bytes>,
    base: u64,
    length: u64,
    most: u64,
    /// A relay may have had all of it.
    was_given: bool,
}

/// Why no more of a request is sent.
enum NoMore {
    /// The flow is over.
    Over,
    /// The program's request breaks off.
    NoRequest,
    /// What the relay lacks is not here any more.
    Gone,
}

impl Sending {
    /// What lies before `offset` is needed no more.
    fn release(&mut self, offset: u64) {
        while let Some(piece) = self.kept.front()
            && self.base + piece.len() as u64 <= offset
        {
            self.base += piece.len() as u64;
            self.kept.pop_front();
        }
    }

    /// Keeps a piece. Short ones are copied, since each may hold a larger buffer, and joined: of those that follow each other, each is less than half of the one before.
    fn keep(&mut self, mut data: Bytes) {
        if data.len() < SHORT {
            data = Bytes::copy_from_slice(&data);
            while let Some(last) = self.kept.pop_back_if(|last| last.len() < SHORT && last.len() < 2 * data.len()) {
                data = [last, data].concat().into();
            }
        }
        self.kept.push_back(data);
    }

    /// The piece that lies at `offset`, from there on.
    fn at(&self, offset: u64) -> Option<Bytes> {
        let mut at = self.base;
        for piece in &self.kept {
            let end = at + piece.len() as u64;
            if offset < end {
                return Some(piece.slice(offset.checked_sub(at)? as usize..));
            }
            at = end;
        }
        None
    }

    /// Sends all of it, from where the relay has it on.
    async fn send(&mut self, writer: &mut FlowWriter, told: &mut watch::Receiver<Option<Told>>) -> Result<(), NoMore> {
        let over = |_: io::Error| NoMore::Over;
        let first = *told.wait_for(Option::is_some).await.map_err(|_| NoMore::Over)?;
        let mut at = match first {
            Some(Told::Has(bytes)) => bytes,
            // It has kept nothing before.
            Some(Told::Streamed) => 0,
            Some(Told::Whole) | None => return writer.shutdown().await.map_err(over),
        };
        loop {
            let news = *told.borrow_and_update();
            let is_streamed = match news {
                Some(Told::Whole) => return writer.shutdown().await.map_err(over),
                Some(Told::Has(bytes)) => {
                    self.release(bytes);
                    false
                }
                Some(Told::Streamed) => {
                    self.release(at);
                    true
                }
                None => false,
            };
            if at < self.base {
                return Err(NoMore::Gone);
            }
            if let Some(piece) = self.at(at) {
                at += piece.len() as u64;
                self.was_given |= at >= self.length;
                writer.write_chunk(piece).await.map_err(over)?;
                continue;
            }
            if at >= self.length {
                self.was_given = true;
                writer.shutdown().await.map_err(over)?;
                return Ok(());
            }
            if !is_streamed && at - self.base >= self.most {
                told.changed().await.map_err(|_| NoMore::Over)?;
                continue;
            }
            let Some(body) = &mut self.body else { return Err(NoMore::NoRequest) };
            let frame = tokio::select! {
                frame = body.frame() => frame,
                // One that is streamed goes on after this.
                changed = told.changed(), if !is_streamed => match changed {
                    Ok(()) => continue,
                    Err(_) => return Err(NoMore::Over),
                },
            };
            let Some(Ok(frame)) = frame else { return Err(NoMore::NoRequest) };
            let data = frame.into_data().unwrap_or_default();
            if !data.is_empty() {
                self.keep(data);
            }
        }
    }
}

/// What a flow of an upload has come to.
enum Tried {
    Answered(Came),
    /// There is no answer, and this is what is left to send.
    Failed(NoAnswer, Sending),
}

/// An upload, over as many flows as it takes.
pub(crate) struct Upload<'a> {
    pub(crate) dialer: &'a Arc<Dialer>,
    pub(crate) destination: &'a Destination,
    pub(crate) deadline: Option<UnixTime>,
    pub(crate) head: &'a request::Parts,
    /// The head's section.
    pub(crate) section: &'a [u8],
    pub(crate) journal: JournalId,
}

impl Upload<'_> {
    /// Has the relay make the request, once.
    pub(crate) async fn make(self, body: Incoming) -> Result<Came, Failure> {
        let mut sending = Sending {
            body: Some(body),
            kept: VecDeque::new(),
            base: 0,
            length: length(&self.head.headers).unwrap_or(0),
            most: self.dialer.connector.send_buffer(),
            was_given: false,
        };
        let mut journal = self.journal;
        let mut first: Option<FlowId> = None;
        let (mut lost, mut had) = (0, 0);
        loop {
            let dialled = self.dialer.upload(self.destination, first.map(|first| (first, journal)));
            let dialled = dialled.map_err(|failure| after_loss(failure, first, &sending))?;
            dialled.flow.set_deadline(self.deadline);
            let id = first.unwrap_or(dialled.flow.name().flow);
            let (no, rest) = match self.attempt(dialled, id, first.is_none(), sending, &mut journal).await {
                Tried::Answered(came) => return Ok(came),
                Tried::Failed(no, rest) => (no, rest),
            };
            sending = rest;
            if sending.base > had {
                (lost, had) = (0, sending.base);
            }
            lost += 1;
            if lost > LOST_MAX {
                return Err(after_loss(Failure::Broken, first, &sending));
            }
            match no.over {
                // The relay has said its journal, and so it knows the device.
                _ if no.is_lost(true) => {
                    if !no.was_attached {
                        // It was said by a relay that ends.
                        sleep(AGAIN_AFTER).await;
                    }
                    first = Some(id);
                }
                Some(FlowError::Ended(codes::UNKNOWN_EXCHANGE)) => {
                    // Nothing of it was passed on, or it may be twice.
                    let may_begin_anew = !sending.was_given || self.head.method.is_idempotent();
                    if !may_begin_anew || sending.base > 0 {
                        return Err(after_loss(Failure::Broken, first, &sending));
                    }
                    first = None;
                }
                over => {
                    if over == Some(FlowError::Ended(codes::MALFORMED)) {
                        // It may have been replaced by an older one.
                        *self.dialer.uploads.lock().await = Uploads::Refused(Instant::now());
                    }
                    over.inspect(|over| self.dialer.connector.say_refused(&self.destination.to_string(), *over, false));
                    return Err(after_loss(over.map_or(Failure::Broken, Into::into), first, &sending));
                }
            }
        }
    }

    /// Sends it over a flow, and waits for the answer's head. `journal`: in, the one that the relay has as far as is known; out, the one that it says.
    async fn attempt(
        &self,
        Dialled { flow, listed }: Dialled,
        id: FlowId,
        is_first: bool,
        sending: Sending,
        journal: &mut JournalId,
    ) -> Tried {
        let (meter, mut status) = (flow.meter(), flow.status());
        let (mut reader, mut writer) = flow.into_split();
        // Of a new upload it is known before that the relay has nothing.
        let (tell, told) = watch::channel(is_first.then_some(Told::Has(0)));
        let (whole, answered) = oneshot::channel();
        let written = put(self.section, &mut writer).await;
        let leaves = Leaves { dialer: self.dialer.clone(), kept: id, status: status.clone() };
        let sent = tokio::spawn(send(sending, writer, told, answered, leaves, listed));
        let came = async {
            written?;
            self.answer(&mut reader, &tell, journal).await
        };
        match came.await.map_err(|error| become_of(&error, &meter, &mut status)) {
            Ok((section, rest)) => match read_answer(&section) {
                Ok(head) => Tried::Answered(Came { flow: id, head, reader, rest, whole }),
                Err(no) => self.failed(no, whole, tell, sent).await,
            },
            Err(no) => self.failed(no, whole, tell, sent).await,
        }
    }

    /// Waits for the answer's head, and passes on what the relay says before.
    async fn answer(
        &self,
        reader: &mut FlowReader,
        tell: &watch::Sender<Option<Told>>,
        journal: &mut JournalId,
    ) -> io::Result<(Bytes, Bytes)> {
        let (id, mut told) = greeted(reader).await?;
        *journal = id;
        *self.dialer.uploads.lock().await = Uploads::Taken(id);
        loop {
            tell.send_replace(Some(told));
            if !matches!(told, Told::Has(_)) {
                return hoop_relay::exchange::read_head(reader).await;
            }
            told = Told::read(reader).await?;
        }
    }

    async fn failed(
        &self,
        no: NoAnswer,
        whole: oneshot::Sender<()>,
        tell: watch::Sender<Option<Told>>,
        sent: JoinHandle<Sending>,
    ) -> Tried {
        drop((whole, tell));
        match sent.await {
            Ok(sending) => Tried::Failed(no, sending),
            // It was stopped with all else.
            Err(_) => std::future::pending().await,
        }
    }
}

/// What a program hears. `first`: a relay was lost before. Unless this says that the request was not passed on, the one that was lost may have done that.
fn after_loss(failure: Failure, first: Option<FlowId>, sending: &Sending) -> Failure {
    let is_not_passed_on = matches!(
        failure,
        Failure::NoName
            | Failure::Refused
            | Failure::NoRoute
            | Failure::Forbidden
            | Failure::Untrusted
            | Failure::NoTls
            | Failure::NoRequest
    );
    match first.is_some() && sending.was_given && !is_not_passed_on {
        true => Failure::Unclear,
        false => failure,
    }
}

/// Sends a request's body, and resets the upload if the body breaks off, if nobody waits for the answer any more, or if there has been no relay for too long. `answered`: the answer is whole, or
/// was dropped.
async fn send(
    mut sending: Sending,
    mut writer: FlowWriter,
    mut told: watch::Receiver<Option<Told>>,
    mut answered: oneshot::Receiver<()>,
    leaves: Leaves,
    _listed: Listed,
) -> Sending {
    let carried = async {
        tokio::select! {
            // What is sent is known before the answer is.
            biased;
            sent = sending.send(&mut writer, &mut told) => Some(match sent {
                Ok(()) => (&mut answered).await.map_err(|_| ended::GIVEN_UP),
                Err(NoMore::NoRequest) => Err(codes::MALFORMED),
                Err(NoMore::Gone) => Err(ended::LOST),
                // It says so itself, and another flow may go on with it.
                Err(NoMore::Over) => return None,
            }),
            // What nobody has read by the answer's end nobody will.
            _ = &mut answered => Some(Err(ended::GIVEN_UP)),
        }
    };
    let carried = tokio::select! {
        carried = carried => carried,
        () = leaves.dialer.connector.is_in_vain(Instant::now()) => Some(Err(ended::GIVEN_UP)),
    };
    if let Some(carried) = carried {
        tokio::spawn(leaves.end(writer, carried));
    }
    sending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_relay_has_not_is_kept_and_no_more() {
        let pieces = ["0123", "45", "6789"].map(|piece| Bytes::from_static(piece.as_bytes()));
        let mut sending = Sending { body: None, kept: pieces.into(), base: 0, length: 10, most: 100, was_given: false };
        sending.release(5);
        assert_eq!((sending.base, sending.kept.len()), (4, 2), "whole pieces");
        assert_eq!(sending.at(5).as_deref(), Some(&b"5"[..]));
        assert_eq!(sending.at(6).as_deref(), Some(&b"6789"[..]));
        assert_eq!((sending.at(3), sending.at(10)), (None, None));
        sending.release(10);
        assert_eq!((sending.base, sending.kept.len()), (10, 0));
        for at in 0..100_000_u32 {
            sending.keep(Bytes::copy_from_slice(&[at as u8]));
        }
        assert!(sending.kept.len() < 100, "{} pieces", sending.kept.len());
        assert!((0..100_000).all(|at| sending.at(10 + at).unwrap()[0] == at as u8));
    }
}
