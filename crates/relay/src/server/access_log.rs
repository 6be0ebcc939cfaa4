//! One line for each flow that a device opens, when it is over: [`AccessLog`]. Off by default: it says who went where.
//!
//! What carries a flow says to the flow's line what is asked and answered ([`asked`], [`answered`]), wherever it learns of it: the line is the task's.

use super::refusals::Refusals;
use crate::codes;
use hoop_endpoint::{DeviceId, FlowError, FlowStream, FlowTally, Status, ended};
use http::{Method, StatusCode, Uri};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio::task_local;

/// Lines a minute of a device for flows that cost it nothing: they are over as soon as they begin, and it may open thousands a second.
const CHEAP_MAX: u32 = 120;

/// Of an address so many letters are written down.
const TO_MAX: usize = 1_024;

task_local! {
    static LINE: RefCell<Line>;
}

/// Writes lines with the target `access`, if it is on.
#[derive(Clone, Debug)]
pub(crate) struct AccessLog {
    /// None: it is off.
    cheap: Option<Arc<Refusals>>,
}

impl AccessLog {
    pub fn new(is_on: bool) -> Self {
        let cheap =
            Refusals::new(CHEAP_MAX, "more of a device's flows end at once than are written down in this minute");
        Self { cheap: is_on.then(|| Arc::new(cheap)) }
    }

    /// Lets `carrying` carry the flow to its end, and writes what came of it, also if that is dropped before.
    pub async fn note<F: Future<Output = ()>>(
        self,
        flow: FlowStream,
        kind: Kind,
        carrying: impl FnOnce(FlowStream) -> F,
    ) {
        let Some(cheap) = self.cheap else { return carrying(flow).await };
        let line = Line::new(&flow, kind, cheap);
        // The line outlives what carries.
        LINE.scope(RefCell::new(line), carrying(flow)).await;
    }
}

/// What a flow is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A TCP connection.
    Connection,
    /// An HTTP exchange, or the rest of one that an earlier relay began.
    Exchange,
    /// The same, which is kept on disk until its answer has arrived.
    Upload,
}

/// What is known of a flow.
#[derive(Debug)]
struct Line {
    kind: Kind,
    device: DeviceId,
    /// `HOST:PORT` of a connection, or the URL without what may hold secrets.
    to: String,
    method: Option<Method>,
    status: Option<StatusCode>,
    /// By which the relay has ended it.
    code: Option<u64>,
    tally: FlowTally,
    over: watch::Receiver<Status>,
    begun: Instant,
    is_written: bool,
    /// The relay tries to reach a destination.
    is_tried: bool,
    /// How many lines there are of what costs nothing.
    cheap: Arc<Refusals>,
}

impl Line {
    fn new(flow: &FlowStream, kind: Kind, cheap: Arc<Refusals>) -> Self {
        let to = match kind {
            Kind::Connection => flow.service().split_once(':').map_or("", |(_, to)| to),
            Kind::Exchange | Kind::Upload => "",
        };
        Self {
            kind,
            device: flow.name().device,
            to: to.chars().take(TO_MAX).collect(),
            method: None,
            status: None,
            code: None,
            tally: flow.tally(),
            over: flow.status(),
            begun: Instant::now(),
            is_written: true,
            is_tried: false,
            cheap,
        }
    }

    /// Whether the device asked for nothing, for what this relay refuses, or ended it before anything was done for it.
    fn is_cheap(&self) -> bool {
        match self.code {
            Some(code) => matches!(code, codes::MALFORMED | codes::FORBIDDEN | codes::TOO_MANY),
            None => self.status.is_none() && !self.is_tried,
        }
    }

    /// How it ended: `whole`, a code of `docs/run.md` or `docs/flow.md`, or `relay` if this relay ended first.
    fn end(&self) -> String {
        // What the relay gives up since the flow is over has another reason.
        match self.over.borrow().over {
            Some(FlowError::Gone) => "relay".to_owned(),
            Some(FlowError::Ended(code) | FlowError::Reset(code)) if code != ended::FINISHED => format!("{code:#x}"),
            _ => self.code.map_or_else(|| "whole".to_owned(), |code| format!("{code:#x}")),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.is_written || (self.is_cheap() && !self.cheap.are_written(self.device, Instant::now())) {
            return;
        }
        let stats = self.tally.stats();
        tracing::info!(
            target: "access",
            kind = match self.kind {
                Kind::Connection => "connection",
                Kind::Exchange => "exchange",
                Kind::Upload => "upload",
            },
            device = hex::encode(self.device.0),
            method = self.method.as_ref().map(Method::as_str),
            to = self.to,
            status = self.status.map(|status| status.as_u16()),
            received = stats.read,
            sent = stats.written,
            ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            end = self.end(),
            "a flow is over"
        );
    }
}

fn tell(say: impl FnOnce(&mut Line)) {
    // Without a line nobody wants to know.
    let _ = LINE.try_with(|line| say(&mut line.borrow_mut()));
}

/// What the flow of this task asks for.
pub(super) fn asked(method: &Method, uri: &Uri) {
    tell(|line| {
        line.method = Some(method.clone());
        line.to = without_secrets(uri).chars().take(TO_MAX).collect();
    });
}

/// What it is answered with. `status` is asked only where that is to be written.
pub(super) fn answered(status: impl FnOnce() -> Option<StatusCode>) {
    tell(|line| line.status = status());
}

/// It asks for nothing but what this relay is: no line is written.
pub(super) fn asked_nothing() {
    tell(|line| line.is_written = false);
}

/// The relay tries to reach what the flow of this task asks for.
pub(super) fn tried() {
    tell(|line| line.is_tried = true);
}

/// The relay ends it with a code.
pub(super) fn ended_with(code: u64) {
    tell(|line| line.code = Some(code));
}

/// An address without its query, and without a name and a password before the host.
fn without_secrets(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{}://{host}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_query_or_before_the_host_is_not_written_down() {
        for (uri, is) in [
            ("http://a.example/b?token=secret", "http://a.example/b"),
            ("https://a.example:8443/?q", "https://a.example:8443/"),
            ("http://a.example/%20", "http://a.example/%20"),
            ("http://me:secret@a.example:81/b", "http://a.example:81/b"),
            ("http://[2001:db8::1]:81/", "http://[2001:db8::1]:81/"),
        ] {
            assert_eq!(without_secrets(&uri.parse().unwrap()), is);
        }
    }
}
