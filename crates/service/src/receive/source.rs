//! The bytes of a message as they come ([`Source`]), and how long a sender is waited for ([`Pace`]).
//!
//! Promises: a sender that is silent, or brings less than [`PIECE`] in its time, is cut off, whatever it has announced.
//! The time that the service takes to open and store bytes does not count against it.
//!
//! Bounds: one frame in memory.

use hoop_http::{Code, Place, Problem, makes_way};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::Instant;

/// How many bytes a sender has to bring within each `body_timeout` (default 60 s). That is 9 kbit/s. At 64 kbit/s it
/// takes eight seconds, so that the slowest uplink may be silent for most of a minute.
pub const PIECE: u64 = 64 * 1024;

/// How much is read and thrown away of a message that is answered early. A sender that is cut off while it sends may
/// never see the answer (RFC 9112 §9.6).
const DRAIN_MAX: u64 = 32 << 20;

/// How long that may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a sender may still keep the service waiting.
#[derive(Debug)]
struct Pace {
    /// The time for each piece.
    full: Duration,
    /// What is left of it for this piece.
    left: Duration,
    /// What has come of this piece.
    come: u64,
}

impl Pace {
    const fn new(full: Duration) -> Self {
        Self { full, left: full, come: 0 }
    }

    /// So many bytes have come after so long a wait.
    fn came(&mut self, bytes: u64, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
        self.come += bytes;
        if self.come >= PIECE {
            *self = Self::new(self.full);
        }
    }
}

/// A message's body.
pub struct Source {
    body: Incoming,
    pace: Pace,
    /// Whether any of it was asked for.
    begun: bool,
    /// Among all messages that are taken.
    place: Option<Place>,
}

impl Source {
    /// A body of which each 64 KiB, or what is left, may take `timeout` to come.
    pub const fn new(body: Incoming, timeout: Duration) -> Self {
        Self { body, pace: Pace::new(timeout), begun: false, place: None }
    }

    /// Gives it a place, which is told how the body comes, and may have to make way.
    pub fn takes_place(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Takes its place away.
    pub fn leaves_place(&mut self) {
        self.place = None;
    }

    /// Whether any of it was asked for.
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Waits for nothing more, not even while draining.
    pub const fn give_up(&mut self) {
        self.pace.left = Duration::ZERO;
    }

    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// `body-truncated`, `request-timeout` if the sender is too slow, or `too-many-requests` if it has to make way for others.
    pub async fn next(&mut self) -> Result<Option<bytes::Bytes>, Problem> {
        self.begun = true;
        loop {
            let asked = Instant::now();
            self.place.iter().for_each(Place::awaits);
            let frame = tokio::select! {
                biased;
                () = makes_way(self.place.as_ref()) => {
                    self.give_up();
                    let problem = Problem::new(Code::TooManyRequests, "it was slow, and makes way for another sender");
                    return Err(problem.retry_after(Duration::from_secs(2)));
                }
                frame = tokio::time::timeout(self.pace.left, self.body.frame()) => frame,
            };
            match frame {
                Ok(Some(Ok(frame))) => {
                    let data = frame.into_data().ok();
                    let came = data.as_ref().map_or(0, bytes::Bytes::len);
                    self.pace.came(came as u64, asked.elapsed());
                    self.place.iter().for_each(|place| place.comes(came));
                    if data.is_some() {
                        return Ok(data);
                    }
                    // Trailers.
                }
                Ok(Some(Err(_))) => return Err(Problem::new(Code::BodyTruncated, "the body broke off")),
                Ok(None) => {
                    self.place.iter().for_each(Place::goes_on);
                    return Ok(None);
                }
                Err(_) => {
                    self.give_up();
                    let detail = format!("less than 64 KiB came in {} s", self.pace.full.as_secs());
                    return Err(Problem::new(Code::RequestTimeout, detail));
                }
            }
        }
    }

    /// Throws away what comes, within bounds.
    pub async fn drain(&mut self) {
        let mut left = DRAIN_MAX;
        let draining = async {
            while let Ok(Some(data)) = self.next().await {
                left = left.saturating_sub(data.len() as u64);
                if left == 0 {
                    break;
                }
            }
        };
        // Out of time: the answer goes out all the same.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, draining).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// How long a sender that brings so many bytes a second in packets of `packet` is listened to, in seconds, at most
    /// three hours.
    fn listened(rate: u64, packet: u64) -> u64 {
        let mut pace = Pace::new(MINUTE);
        let between = Duration::from_nanos(1_000_000_000 * packet / rate);
        let mut listened = Duration::ZERO;
        while pace.left >= between && listened < 180 * MINUTE {
            pace.came(packet, between);
            listened += between;
        }
        listened.as_secs()
    }

    #[test]
    fn a_sender_at_64_kbit_a_second_is_listened_to_for_ever() {
        for packet in [1_448, 65_536] {
            assert!(listened(64_000 / 8, packet) >= 180 * 60 - 10, "in packets of {packet}");
        }
    }

    #[test]
    fn a_sender_of_a_byte_a_second_is_cut_off_within_a_minute() {
        assert!(listened(1, 1) <= 60);
        assert!(listened(1_000, 50) <= 60, "64 KiB in a minute is 1,093 a second");
    }

    #[test]
    fn a_sender_at_64_kbit_a_second_may_be_silent_for_fifty_seconds() {
        let mut pace = Pace::new(MINUTE);
        for _ in 0..100 {
            pace.came(1_448, Duration::from_secs(50));
            (0..45).for_each(|_| pace.came(1_448, Duration::from_millis(181)));
            assert_eq!(pace.left, MINUTE, "a new piece");
        }
    }
}
