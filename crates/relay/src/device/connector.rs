//! Opens flows to destinations, and waits until the relay has reached them: [`FlowConnector`].

use super::link::Link;
use crate::codes;
use crate::diagnostics::{Said, refusal};
use crate::upload::JournalId;
use crate::wire::{CONNECT, HTTP, MADE, TCP, UPLOAD, resumption, upload_resumption};
use hoop_endpoint::{Device, FlowError, FlowId, FlowOptions, FlowStream, OpenError, ended};
use parking_lot::Mutex;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// What a relay is that does not know [`CONNECT`].
const OLD: &str =
    "the relay is older than this device, and cannot say what it reached: connections are made at once, and fail later";

/// So many flows at once have what was asked for: 4 MiB each by default, which a fast link fills. Programs may have a thousand that they do not read.
const WIDE: usize = 32;

/// What a further one may have come and not read, and written and not acknowledged, in bytes each: 21 Mbit/s at 100 ms.
const NARROW_BYTES: u64 = 256 << 10;

/// Why there is no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// The relay says why ([`crate::codes`]), or the flow is over for another reason.
    #[error("{}", .0.map_or("the relay said nothing".to_owned(), |error| error.to_string()))]
    Refused(Option<FlowError>),
    /// There was no relay for too long.
    #[error("the relay was out of reach for too long")]
    GivenUp,
    /// The relay said what is no answer.
    #[error("the relay broke the protocol")]
    Protocol,
    /// There can be no more flows, or the destination is too long.
    #[error(transparent)]
    NoFlow(#[from] OpenError),
}

/// Says each thing once.
struct Teller {
    tell: Box<dyn Fn(String) + Send + Sync>,
    said: Mutex<Said>,
}

/// Opens flows over a [`Link`], for programs that connect. What there is to be known is told once, in words.
pub struct FlowConnector {
    device: Device,
    options: FlowOptions,
    teller: Teller,
    /// The relay does not know [`CONNECT`].
    is_old: AtomicBool,
    /// Since when there is no relay.
    absence: watch::Receiver<Option<Instant>>,
    give_up_after: Option<Duration>,
}

impl std::fmt::Debug for FlowConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowConnector").field("device", &self.device).finish_non_exhaustive()
    }
}

impl FlowConnector {
    /// With these options for each flow. `give_up_after`: so long there may be no relay; none: it is waited for. `tell` gets each sentence once.
    pub fn new(
        link: &Link,
        options: FlowOptions,
        give_up_after: Option<Duration>,
        tell: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        Self {
            device: link.device().clone(),
            options,
            teller: Teller { tell: Box::new(tell), said: Mutex::default() },
            is_old: AtomicBool::new(false),
            absence: link.absence(),
            give_up_after,
        }
    }

    /// Says it, unless it was said.
    pub fn say(&self, words: String) {
        // The lock is not held while it is told.
        let news = self.teller.said.lock().news(words, std::time::Instant::now());
        news.into_iter().for_each(|words| (self.teller.tell)(words));
    }

    /// Says why a connection to `destination` is over, if people can do something about it. `was_known`: the relay knew the flow.
    pub fn say_refused(&self, destination: &str, error: FlowError, was_known: bool) {
        refusal(destination, error, was_known).into_iter().for_each(|words| self.say(words));
    }

    /// A connection to `HOST:PORT` that is taken for made. If it cannot be, the flow ends ([`crate::codes`]).
    ///
    /// # Errors
    /// If there can be no more flows, or the destination is too long.
    pub fn open(&self, destination: &str) -> Result<FlowStream, OpenError> {
        self.open_as(TCP, destination)
    }

    /// A flow for one HTTP exchange ([`crate::exchange`]). A relay that knows none ends it with [`codes::MALFORMED`].
    ///
    /// # Errors
    /// If there can be no more flows.
    pub fn exchange(&self) -> Result<FlowStream, OpenError> {
        self.device.open(HTTP, self.options())
    }

    /// A flow that goes on with an earlier exchange (`docs/edge.md`): `flow` is that of the exchange, and `from` how many bytes of its answer's body are here. A relay that has nothing of it ends the flow with [`codes::UNKNOWN_EXCHANGE`], and an older one with
    /// [`codes::MALFORMED`].
    ///
    /// # Errors
    /// If there can be no more flows.
    pub fn resume_exchange(&self, flow: FlowId, from: u64) -> Result<FlowStream, OpenError> {
        self.device.open(&resumption(flow, from), self.options())
    }

    /// A flow for an upload ([`crate::upload`]), or one that goes on with an earlier one: the id of its first flow, and of the journal of the relay that had it. An older relay ends it with [`codes::MALFORMED`], and one that has nothing of the earlier one with
    /// [`codes::UNKNOWN_EXCHANGE`].
    ///
    /// # Errors
    /// If there can be no more flows.
    pub fn upload(&self, earlier: Option<(FlowId, JournalId)>) -> Result<FlowStream, OpenError> {
        match earlier {
            None => self.device.open(UPLOAD, self.options()),
            Some((flow, journal)) => self.device.open(&upload_resumption(flow, journal), self.options()),
        }
    }

    /// How much of one more flow may be written and not acknowledged, in bytes.
    pub fn send_buffer(&self) -> u64 {
        self.options().send_buffer
    }

    fn open_as(&self, kind: &str, destination: &str) -> Result<FlowStream, OpenError> {
        let opened = self.device.open(&format!("{kind}{destination}"), self.options());
        opened.inspect_err(|error| self.say(format!("a connection is not carried: {error}")))
    }

    /// Those of one more flow.
    fn options(&self) -> FlowOptions {
        beside(self.device.flows(), self.options.clone())
    }

    /// Waits until the relay has reached `HOST:PORT`. Dropped before, it gives the connection up.
    ///
    /// # Errors
    /// If it has not.
    pub async fn connect(&self, destination: &str) -> Result<FlowStream, ConnectError> {
        if self.is_old.load(Ordering::Relaxed) {
            return Ok(self.open(destination)?);
        }
        // Dropped, it is given up.
        let mut flow = self.open_as(CONNECT, destination)?;
        let said = tokio::select! {
            said = flow.read_u8() => said,
            () = self.is_in_vain(Instant::now()) => return Err(ConnectError::GivenUp),
        };
        match said.map_err(|error| FlowError::of(&error).or_else(|| flow.status().borrow().over)) {
            Ok(MADE) => Ok(flow),
            Err(Some(FlowError::Ended(codes::MALFORMED))) => {
                if !self.is_old.swap(true, Ordering::Relaxed) {
                    self.say(OLD.to_owned());
                }
                Ok(self.open(destination)?)
            }
            Ok(_) => {
                flow.reset(ended::PROTOCOL);
                Err(ConnectError::Protocol)
            }
            Err(error) => {
                tracing::debug!(?error, destination, "the relay makes no connection");
                error.inspect(|error| self.say_refused(destination, *error, false));
                Err(ConnectError::Refused(error))
            }
        }
    }

    /// Returns once there has been no relay for too long, for a connection that has `begun` then; never if it is waited for.
    pub async fn is_in_vain(&self, begun: Instant) {
        let (Some(patience), mut absence) = (self.give_up_after, self.absence.clone()) else { return pending().await };
        loop {
            let since = *absence.borrow_and_update();
            let in_vain = async {
                match since {
                    Some(since) => sleep_until(since.max(begun) + patience).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = in_vain => break,
                changed = absence.changed() => if changed.is_err() { return pending().await },
            }
        }
        self.say(format!("there was no relay for {} s: connections are given up", patience.as_secs_f64()));
    }
}

/// The options of one more flow beside so many.
fn beside(flows: usize, mut options: FlowOptions) -> FlowOptions {
    if flows >= WIDE {
        options.window = options.window.min(NARROW_BYTES);
        options.send_buffer = options.send_buffer.min(NARROW_BYTES);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_flows_of_a_device_that_nobody_reads_take_little_each() {
        let held = |flows| {
            let options = beside(flows, FlowOptions::default());
            options.window + options.send_buffer
        };
        assert_eq!(held(0), 4 << 20);
        assert!((0..1_024).map(held).sum::<u64>() < 640 << 20);
        let asked = FlowOptions { window: 1_000, ..FlowOptions::default() };
        assert_eq!(beside(1_000, asked).window, 1_000, "no more than was asked for");
    }
}
