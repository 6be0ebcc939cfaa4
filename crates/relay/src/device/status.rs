//! What is carried for a program, told to whoever asks ([`Listing`], [`tell`]): on a socket beside the program's, to the user that it runs as and to nobody else.
//!
//! Whoever connects is told all of it in lines of text, and then the end of the stream. A line is a title, a carrier or a connection.

use super::link::Link;
use hoop_carrier::Kind;
use hoop_endpoint::{CarrierStatus, FlowMeter};
use hoop_units::plain;
use parking_lot::Mutex;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::fmt::Write as _;
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
pub(crate) struct Listing(Mutex<Known>);

/// A connection's place among them. It goes with this.
#[derive(Debug)]
pub(crate) struct Listed {
    listing: Arc<Listing>,
    number: u64,
}

impl Listing {
    /// A connection is being made to there.
    pub(crate) fn add(self: &Arc<Self>, destination: &str) -> Listed {
        let mut known = self.0.lock();
        let number = known.next;
        known.next += 1;
        let connection = Connection { destination: destination.to_owned(), since: Instant::now(), made: None };
        known.connections.insert(number, connection);
        Listed { listing: self.clone(), number }
    }
}

impl Listed {
    /// It is made. `before`: so many bytes were read that are not the program's.
    pub(crate) fn made(&self, meter: FlowMeter, before: u64) {
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
    loop {
        match asked.accept().await {
            Ok((asking, _)) if is_own(&asking) => {
                let _ = timeout(TELL_MAX, answer(asking, report(title, link, listing))).await;
            }
            Ok(_) => tracing::debug!("another user asks what is carried"),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a question");
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
    let (carriers, known) = (link.device().carriers(), listing.0.lock());
    let absent_since = link.absence().borrow().filter(|_| !known.connections.is_empty());
    let mut text = plain::line(title);
    match absent_since {
        Some(since) => {
            let trouble = link.troubles();
            let cause = trouble.borrow().as_ref().map(|trouble| format!(": {}", plain::line(&trouble.cause)));
            let _ = writeln!(text, ", not reached for {}{}", time(since.elapsed()), cause.unwrap_or_default());
        }
        None if carriers.is_empty() => text += ", nothing to carry\n",
        None => text += "\n",
    }
    carriers.iter().for_each(|carrier| carrier_line(&mut text, carrier));
    known.connections.values().for_each(|connection| connection_line(&mut text, connection));
    text
}

fn carrier_line(text: &mut String, carrier: &CarrierStatus) {
    let kind = match carrier.kind {
        Kind::Quic => "QUIC",
        Kind::WebSocket => "WebSocket",
        Kind::Memory => "memory",
    };
    let _ = write!(text, "  carrier {}: {kind}, up for {}", plain::line(&carrier.network), time(carrier.age));
    if let Some(heard) = carrier.heard {
        let _ = write!(text, ", heard {} ago", time(heard));
    }
    if let Some(rtt) = carrier.rtt {
        let _ = write!(text, ", round trip {} ms", rtt.as_millis());
    }
    *text += if carrier.is_silent { ", silent now\n" } else { "\n" };
}

fn connection_line(text: &mut String, connection: &Connection) {
    let (destination, age) = (plain::line(&connection.destination), time(connection.since.elapsed()));
    let _ = match &connection.made {
        None => writeln!(text, "  {destination}: connecting for {age}"),
        Some(made) => {
            let stats = made.meter.stats().unwrap_or_default();
            let (waits, read) = (stats.written - stats.acknowledged, stats.read.saturating_sub(made.before));
            writeln!(
                text,
                "  {destination}: for {age}, {} bytes sent of which {waits} wait, {read} received",
                stats.written
            )
        }
    };
}

/// A time as people say it.
fn time(time: Duration) -> String {
    match time.as_secs() {
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
        let told = [0, 119, 120, 7_199, 7_200, 90_000].map(|secs| time(Duration::from_secs(secs)));
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "25 h"]);
    }

    #[test]
    fn a_connection_is_listed_as_long_as_it_is_there() {
        let listing = Arc::<Listing>::default();
        let listed = listing.add("10.9.1.1:80\u{1b}");
        let mut text = String::new();
        listing.0.lock().connections.values().for_each(|connection| connection_line(&mut text, connection));
        assert_eq!(text, "  10.9.1.1:80\\u001b: connecting for 0 s\n");
        drop(listed);
        assert!(listing.0.lock().connections.is_empty());
    }
}
