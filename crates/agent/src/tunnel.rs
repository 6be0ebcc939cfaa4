//! Connections of programs as flows: [`Dialer`].

use crate::destination::Destination;
use crate::failure::Failure;
use crate::socket::{Left, UnderWay};
use hoop_endpoint::{FlowError, FlowMeter, FlowStream, ended};
use hoop_relay::FlowConnector;
use hoop_relay::copy::copy_both;
use hoop_relay::status::{Listed, Listing};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep};

/// Opens flows, and lists them as long as they are there.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) connector: FlowConnector,
    pub(crate) listing: Arc<Listing>,
    /// Programs are told that they are connected only when they are, also by name.
    pub(crate) waits: bool,
    pub(crate) exchanges: Exchanges,
}

/// Whether the relay makes requests: one that is older carries connections alone.
#[derive(Debug, Default)]
pub(crate) struct Exchanges(Mutex<Known>);

#[derive(Clone, Copy, Default, Debug)]
enum Known {
    #[default]
    Unasked,
    Made,
    /// The relay knows none, and was asked then.
    Refused(Instant),
}

/// How long a destination may still answer a program that has closed its connection, once the relay keeps all that it wrote.
const OUTLIVES: Duration = Duration::from_secs(10);

/// How long a relay that knows no exchanges is not asked again: it may be replaced by a newer one.
const REFUSED_FOR: Duration = Duration::from_secs(3_600);

impl Exchanges {
    /// The relay has made one.
    pub(crate) fn are_known(&self) -> bool {
        matches!(*self.0.lock(), Known::Made)
    }

    /// The relay has refused one, since it knows none.
    pub(crate) fn are_refused(&self) -> bool {
        matches!(*self.0.lock(), Known::Refused(at) if at.elapsed() < REFUSED_FOR)
    }

    pub(crate) fn learn(&self, is_known: bool) {
        *self.0.lock() = if is_known { Known::Made } else { Known::Refused(Instant::now()) };
    }
}

/// A flow to a destination.
pub(crate) struct Dialled {
    pub(crate) flow: FlowStream,
    pub(crate) listed: Listed,
}

impl Dialer {
    /// A connection for a program that is told of it. By an address, it is waited for, since the program may try another address. By a name, the relay tries them all, so
    /// that the program begins at once, which saves a round trip.
    pub(crate) async fn dial(&self, destination: &Destination) -> Result<Dialled, Failure> {
        if destination.is_name() && !self.waits {
            return self.open(destination);
        }
        let listed = self.listing.add(&destination.to_string());
        let flow = self.connector.connect(&destination.to_string()).await?;
        listed.made(flow.meter(), flow.position());
        Ok(Dialled { flow, listed })
    }

    /// A connection that is taken for made.
    pub(crate) fn open(&self, destination: &Destination) -> Result<Dialled, Failure> {
        let listed = self.listing.add(&destination.to_string());
        let flow = self.connector.open(&destination.to_string()).map_err(|_| Failure::TooMany)?;
        listed.made(flow.meter(), flow.position());
        Ok(Dialled { flow, listed })
    }

    /// A flow for one request to there, which the relay makes.
    pub(crate) fn exchange(&self, destination: &Destination) -> Result<Dialled, Failure> {
        let listed = self.listing.add(&destination.to_string());
        let flow = self.connector.exchange().map_err(|_| Failure::TooMany)?;
        listed.made(flow.meter(), flow.position());
        Ok(Dialled { flow, listed })
    }

    /// Carries a program's connection to its end, or until the program has gone. What it wrote is delivered, unless it has reset its connection.
    pub(crate) async fn carry(
        &self,
        mut program: impl AsyncRead + AsyncWrite + Unpin,
        under_way: &UnderWay,
        destination: &Destination,
        Dialled { mut flow, listed: _listed }: Dialled,
    ) {
        under_way.begins();
        let (begun, meter) = (Instant::now(), flow.meter());
        let carried = async {
            copy_both(&mut program, &mut flow).await?;
            under_way.ends();
            flow.finished().await
        };
        let left = async {
            if under_way.program_left().await == Left::Closed {
                outlives(&meter, under_way).await;
            }
        };
        let carried = tokio::select! {
            carried = carried => carried,
            // A flow of which one way has ended is not reset by itself.
            () = left => {
                if under_way.has_ended() {
                    flow.reset(ended::GIVEN_UP);
                }
                return;
            }
            // Dropped, the flow is given up, and so is the program's connection.
            () = self.connector.is_in_vain(begun) => return,
        };
        let Err(error) = carried else { return };
        tracing::debug!(%error, %destination, "a carried connection broke off");
        self.say_over(destination, &flow, FlowError::of(&error));
        if under_way.has_ended() {
            tokio::select! {
                () = outlives(&meter, under_way) => {}
                () = self.connector.is_in_vain(begun) => {}
            }
            flow.reset(ended::GIVEN_UP);
        }
    }

    /// Says why a flow is over, if people can do something about it.
    fn say_over(&self, destination: &Destination, flow: &FlowStream, error: Option<FlowError>) {
        let over = error.or_else(|| flow.status().borrow().over);
        let stats = flow.stats();
        let was_known = stats.acknowledged > 0 || stats.read > 0;
        over.inspect(|error| self.connector.say_refused(&destination.to_string(), *error, was_known));
    }
}

/// Returns when the relay keeps all that a program has said, some time after the program has gone.
async fn outlives(meter: &FlowMeter, program: &UnderWay) {
    loop {
        sleep(OUTLIVES).await;
        let is_kept = meter.stats().is_none_or(|stats| stats.acknowledged >= stats.written);
        if is_kept && program.has_ended() {
            return;
        }
    }
}
