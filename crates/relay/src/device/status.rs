//! What is carried for programs: a [`Listing`] of connections, a [`Report`] of all, and who tells it (`tell`) on a socket beside a program's, to the user that it runs as and to
//! nobody else.
//!
//! Whoever connects there is told all of it in lines of text, and then the end of the stream. A line is a title, a carrier or a connection.

use super::link::Link;
use hoop_carrier::Kind;
use hoop_endpoint::{CarrierStatus, FlowMeter};
use hoop_http::Lines;
use hoop_units::plain;
use parking_lot::Mutex;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep, timeout};

/// Whoever asks reads the answer at once; others wait meanwhile.
const TELL_MAX: Duration = Duration::from_secs(2);

/// A connection of a program's.
#[derive(Debug)]
struct Connection {
    destination: String,
    from: Option<String>,
    since: Instant,
    /// None: it is not made.
    made: Option<Made>,
}

#[derive(Debug)]
struct Made {
    meter: FlowMeter,
    /// What was read before it was the program's.
    before: u64,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    connections: BTreeMap<u64, Connection>,
}

/// The connections that are carried.
#[derive(Debug, Default)]
pub struct Listing(Mutex<Known>);

/// A connection's place among them. It goes with this.
#[derive(Debug)]
pub struct Listed {
    listing: Arc<Listing>,
    number: u64,
}

impl Listing {
    /// A connection is being made to there.
    pub fn add(self: &Arc<Self>, destination: &str) -> Listed {
        self.add_from(destination, None)
    }

    /// A connection is being made to there. `from`: where it came from, if that is to be told.
    pub fn add_from(self: &Arc<Self>, destination: &str, from: Option<&str>) -> Listed {
        let mut known = self.0.lock();
        let number = known.next;
        known.next += 1;
        let (destination, from) = (destination.to_owned(), from.map(str::to_owned));
        let connection = Connection { destination, from, since: Instant::now(), made: None };
        known.connections.insert(number, connection);
        Listed { listing: self.clone(), number }
    }
}

impl Listed {
    /// It is made. `before`: so many bytes were read that are not the program's.
    pub fn made(&self, meter: FlowMeter, before: u64) {
        if let Some(connection) = self.listing.0.lock().connections.get_mut(&self.number) {
            (connection.since, connection.made) = (Instant::now(), Some(Made { meter, before }));
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.listing.0.lock().connections.remove(&self.number);
    }
}

/// Tells whoever asks, as long as it is polled.
pub(crate) async fn tell(asked: UnixListener, title: &str, link: &Link, listing: &Listing) {
    let lines = Lines::new();
    loop {
        match asked.accept().await {
            Ok((asking, _)) if is_own(&asking) => {
                let _ = timeout(TELL_MAX, answer(asking, report(title, link, listing))).await;
            }
            Ok(_) => tracing::debug!("another user asks what is carried"),
            Err(error) => {
                lines.warn("cannot accept a question", &error);
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn is_own(asking: &UnixStream) -> bool {
    asking.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw())
}

async fn answer(mut asking: UnixStream, report: String) -> std::io::Result<()> {
    asking.write_all(report.as_bytes()).await?;
    asking.shutdown().await
}

fn report(title: &str, link: &Link, listing: &Listing) -> String {
    format!("{}{}", plain::line(title), Report::of(link, listing))
}

/// What is carried at one moment. As text it is what follows a title: how the relay is reached, then a line for each carrier and connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// For how many seconds the relay has been out of reach, while there are connections.
    pub not_reached_secs: Option<u64>,
    /// Why, if that is known.
    pub cause: Option<String>,
    /// What carries.
    pub carriers: Vec<CarrierReport>,
    /// What is carried.
    pub connections: Vec<ConnectionReport>,
}

/// A carrier.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CarrierReport {
    /// The name of its way: an interface, or `any`.
    pub network: String,
    /// `QUIC`, `WebSocket` or `memory`.
    pub kind: String,
    /// How long it has been up.
    pub up_secs: u64,
    /// When a flow's bytes last came over it.
    pub heard_secs_ago: Option<u64>,
    /// Its round trip.
    pub round_trip_ms: Option<u64>,
    /// Whether it is silent now.
    pub is_silent: bool,
}

/// A connection of a program's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// `HOST:PORT`.
    pub destination: String,
    /// Where it came from, if that is told: an interface, or the address of another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How long it has been made, or waited for.
    pub secs: u64,
    /// Its bytes; none: it is not made.
    pub bytes: Option<BytesReport>,
}

/// The bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BytesReport {
    /// Those that the program wrote.
    pub sent: u64,
    /// Of these, what the relay has not acknowledged.
    pub waiting: u64,
    /// Those that have come.
    pub received: u64,
}

impl Report {
    /// What is carried now.
    pub fn of(link: &Link, listing: &Listing) -> Self {
        let known = listing.0.lock();
        let absent_since = link.absence().borrow().filter(|_| !known.connections.is_empty());
        let trouble = link.troubles();
        let cause = trouble.borrow().as_ref().filter(|_| absent_since.is_some()).map(|trouble| trouble.cause.clone());
        Self {
            not_reached_secs: absent_since.map(|since| since.elapsed().as_secs()),
            cause,
            carriers: link.device().carriers().iter().map(CarrierReport::of).collect(),
            connections: known.connections.values().map(ConnectionReport::of).collect(),
        }
    }
}

impl CarrierReport {
    fn of(carrier: &CarrierStatus) -> Self {
        Self {
            network: carrier.network.to_string(),
            kind: match carrier.kind {
                Kind::Quic => "QUIC",
                Kind::WebSocket => "WebSocket",
                Kind::Memory => "memory",
            }
            .to_owned(),
            up_secs: carrier.age.as_secs(),
            heard_secs_ago: carrier.heard.map(|heard| heard.as_secs()),
            round_trip_ms: carrier.rtt.map(|rtt| u64::try_from(rtt.as_millis()).unwrap_or(u64::MAX)),
            is_silent: carrier.is_silent,
        }
    }
}

impl ConnectionReport {
    fn of(connection: &Connection) -> Self {
        let bytes = connection.made.as_ref().map(|made| {
            let stats = made.meter.stats().unwrap_or_default();
            let (waiting, received) = (stats.written - stats.acknowledged, stats.read.saturating_sub(made.before));
            BytesReport { sent: stats.written, waiting, received }
        });
        let (destination, from) = (connection.destination.clone(), connection.from.clone());
        Self { destination, from, secs: connection.since.elapsed().as_secs(), bytes }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.not_reached_secs, &self.cause) {
            (Some(secs), Some(cause)) => writeln!(f, ", not reached for {}: {}", time(secs), plain::line(cause))?,
            (Some(secs), None) => writeln!(f, ", not reached for {}", time(secs))?,
            (None, _) if self.carriers.is_empty() => writeln!(f, ", nothing to carry")?,
            (None, _) => writeln!(f)?,
        }
        self.carriers.iter().try_for_each(|carrier| carrier.fmt(f))?;
        self.connections.iter().try_for_each(|connection| connection.fmt(f))
    }
}

impl fmt::Display for CarrierReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  carrier {}: {}, up for {}",
            plain::line(&self.network),
            plain::line(&self.kind),
            time(self.up_secs)
        )?;
        self.heard_secs_ago.map_or(Ok(()), |heard| write!(f, ", heard {} ago", time(heard)))?;
        self.round_trip_ms.map_or(Ok(()), |ms| write!(f, ", round trip {ms} ms"))?;
        writeln!(f, "{}", if self.is_silent { ", silent now" } else { "" })
    }
}

impl fmt::Display for ConnectionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}", plain::line(&self.destination))?;
        self.from.iter().try_for_each(|from| write!(f, ", from {}", plain::line(from)))?;
        let age = time(self.secs);
        match self.bytes {
            None => writeln!(f, ": connecting for {age}"),
            Some(BytesReport { sent, waiting, received }) => {
                writeln!(f, ": for {age}, {sent} bytes sent of which {waiting} wait, {received} received")
            }
        }
    }
}

/// A time as people say it.
fn time(secs: u64) -> String {
    match secs {
        secs @ 0..120 => format!("{secs} s"),
        secs @ 120..7_200 => format!("{} min", secs / 60),
        secs => format!("{} h", secs / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_by_its_largest_unit() {
        let told = [0, 119, 120, 7_199, 7_200, 90_000].map(time);
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "25 h"]);
    }

    #[test]
    fn a_connection_is_listed_as_long_as_it_is_there() {
        let listing = Arc::<Listing>::default();
        let listed = listing.add("10.9.1.1:80\u{1b}");
        let told: Vec<_> = listing.0.lock().connections.values().map(ConnectionReport::of).collect();
        assert_eq!(told[0].to_string(), "  10.9.1.1:80\\u001b: connecting for 0 s\n");
        drop(listed);
        assert!(listing.0.lock().connections.is_empty());
        let _listed = listing.add_from("10.9.1.1:80", Some("hoop0"));
        let told: Vec<_> = listing.0.lock().connections.values().map(ConnectionReport::of).collect();
        assert_eq!(told[0].to_string(), "  10.9.1.1:80, from hoop0: connecting for 0 s\n");
    }
}
