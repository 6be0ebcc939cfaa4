//! Connections of programs as flows: [`Dialer`].

use crate::destination::Destination;
use crate::failure::Failure;
use crate::socket::{Left, UnderWay};
use crate::upstream::Upstream;
use hoop_endpoint::{FlowError, FlowId, FlowMeter, FlowStream, Status, ended};
use hoop_relay::FlowConnector;
use hoop_relay::copy::copy_both;
use hoop_relay::status::{Listed, Listing};
use hoop_relay::upload::JournalId;
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// Opens flows, and lists them as long as they are there.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) connector: FlowConnector,
    pub(crate) listing: Arc<Listing>,
    /// Programs are told that they are connected only when they are, also by name.
    pub(crate) waits: bool,
    pub(crate) exchanges: Exchanges,
    pub(crate) uploads: tokio::sync::Mutex<Uploads>,
    /// How it speaks TLS itself with hosts that are entrusted; none: no host is.
    pub(crate) tls: Option<Arc<ClientConfig>>,
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

/// Whether the relay takes uploads.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) enum Uploads {
    #[default]
    Unasked,
    /// It does, and this is its journal.
    Taken(JournalId),
    /// It knew none, and was asked then.
    Refused(Instant),
}

/// How long a destination may still answer a program that has closed its connection, once the relay keeps all that it wrote.
const OUTLIVES: Duration = Duration::from_secs(10);

/// How long a destination may take nothing of what a program has written that has closed its connection. Systems have as much patience, or less.
const STALLS_MAX: Duration = Duration::from_secs(60);

/// How long a relay that knows no exchanges is not asked again: it may be replaced by a newer one.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(3_600);

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
        self.open_from(destination, None)
    }

    /// A connection that is taken for made, and listed with where it came from.
    pub(crate) fn open_from(&self, destination: &Destination, from: Option<&str>) -> Result<Dialled, Failure> {
        let listed = self.listing.add_from(&destination.to_string(), from);
        let flow = self.connector.open(&destination.to_string()).map_err(|_| Failure::TooMany)?;
        listed.made(flow.meter(), flow.position());
        Ok(Dialled { flow, listed })
    }

    /// A flow for one request to there, which the relay makes; or for the rest of an answer to an earlier one, after so many bytes of its body.
    pub(crate) fn exchange(
        &self,
        destination: &Destination,
        earlier: Option<(FlowId, u64)>,
    ) -> Result<Dialled, Failure> {
        let listed = self.listing.add(&destination.to_string());
        let opened = match earlier {
            None => self.connector.exchange(),
            Some((flow, from)) => self.connector.resume_exchange(flow, from),
        };
        let flow = opened.map_err(|_| Failure::TooMany)?;
        listed.made(flow.meter(), flow.position());
        Ok(Dialled { flow, listed })
    }

    /// A flow for one request to there that the relay keeps until it is whole; or that goes on with an earlier one.
    pub(crate) fn upload(
        &self,
        destination: &Destination,
        earlier: Option<(FlowId, JournalId)>,
    ) -> Result<Dialled, Failure> {
        let listed = self.listing.add(&destination.to_string());
        let flow = self.connector.upload(earlier).map_err(|_| Failure::TooMany)?;
        listed.made(flow.meter(), flow.position());
        Ok(Dialled { flow, listed })
    }

    /// Carries a program's connection to its end, or until the program has gone. What it wrote is delivered, unless it has reset its connection.
    pub(crate) async fn carry(
        &self,
        program: impl AsyncRead + AsyncWrite + Unpin,
        under_way: &UnderWay,
        destination: &Destination,
        Dialled { flow, listed }: Dialled,
    ) {
        self.carry_over(program, under_way, destination, Upstream::Plain(flow), listed).await;
    }

    /// The same over what may be TLS.
    pub(crate) async fn carry_over(
        &self,
        mut program: impl AsyncRead + AsyncWrite + Unpin,
        under_way: &UnderWay,
        destination: &Destination,
        mut upstream: Upstream,
        _listed: Listed,
    ) {
        under_way.begins();
        let (begun, meter, status) = (Instant::now(), upstream.flow().meter(), upstream.flow().status());
        let carried = async {
            copy_both(&mut program, &mut upstream).await?;
            under_way.ends();
            upstream.flow().finished().await
        };
        let left = async {
            if under_way.program_left().await == Left::Closed {
                outlives(&meter, &status, under_way).await;
            }
        };
        let carried = tokio::select! {
            carried = carried => carried,
            // A flow of which one way has ended is not reset by itself.
            () = left => {
                if under_way.has_ended() {
                    upstream.reset(ended::GIVEN_UP);
                }
                return;
            }
            // Dropped, the flow is given up, and so is the program's connection.
            () = self.connector.is_in_vain(begun) => return,
        };
        let Err(error) = carried else { return };
        tracing::debug!(%error, %destination, "a carried connection broke off");
        self.say_over(destination, upstream.flow(), FlowError::of(&error));
        if under_way.has_ended() {
            tokio::select! {
                () = outlives(&meter, &status, under_way) => {}
                () = self.connector.is_in_vain(begun) => {}
            }
            upstream.reset(ended::GIVEN_UP);
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

/// Returns when the flow of a program that has gone is needed no more.
async fn outlives(meter: &FlowMeter, status: &watch::Receiver<Status>, program: &UnderWay) {
    let mut outliving = Outliving { kept: 0, moved_at: Instant::now() };
    loop {
        let (is_over, is_offline) = {
            let status = status.borrow();
            (status.over.is_some(), status.network.is_none())
        };
        let Some(stats) = meter.stats().filter(|_| !is_over) else { return };
        sleep(OUTLIVES).await;
        let is_kept = stats.acknowledged >= stats.written && program.has_ended();
        if is_kept || outliving.has_stalled(stats.acknowledged, is_offline, Instant::now()) {
            return;
        }
    }
}

/// How far what a program has left behind has come.
struct Outliving {
    kept: u64,
    /// When more was kept, or the relay was out of reach.
    moved_at: Instant,
}

impl Outliving {
    /// Whether the relay is there and has kept nothing more for [`STALLS_MAX`].
    fn has_stalled(&mut self, kept: u64, is_offline: bool, now: Instant) -> bool {
        if kept > self.kept || is_offline {
            (self.kept, self.moved_at) = (kept, now);
        }
        now.duration_since(self.moved_at) >= STALLS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_left_behind_is_given_up_once_nothing_of_it_moves() {
        let begun = Instant::now();
        let at = |secs| begun + Duration::from_secs(secs);
        let mut outliving = Outliving { kept: 0, moved_at: begun };
        assert!(!outliving.has_stalled(5, false, at(50)));
        assert!(!outliving.has_stalled(6, false, at(100)), "it moves");
        assert!(!outliving.has_stalled(6, false, at(159)));
        assert!(!outliving.has_stalled(6, true, at(3_600)), "without the relay it waits");
        assert!(!outliving.has_stalled(6, false, at(3_659)));
        assert!(outliving.has_stalled(6, false, at(3_660)));
    }
}
