//! What became of a program's attempts to connect, for the program to ask: [`ConnectResults`].
//!
//! A Unix socket takes a connection at once, and fails with one errno. So the library in the program (`crates/hoop/preload/preload.c`) asks on a second socket how an
//! attempt has ended, by the number that is in its socket's name, and the number stays with the socket through `dup`, `fork` and `exec`.
//!
//! ```text
//! question = kind (1 byte) | number (8 bytes) | key (32 bytes, where other users are served)
//! answer   = an errno, or 0 or UNKNOWN (4 bytes of the machine's order)
//! ```
//!
//! On the same socket the library asks for addresses that stand for names ([`RemoteNames`]). The number is then the name's length, followed by seven zeros; the name comes last.
//! The answer is an IPv4 address (4 bytes of the network's order), and 0.0.0.0 if there can be no such name.
//!
//! Bounds: an entry for each connection that is there, and [`KEPT`] of those that are over; [`ASKING_MAX`] questions at once.

use super::names::RemoteNames;
use hoop_http::Lines;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// Attempts that are over and can still be asked for: more than a program has descriptors by default. The oldest go first, and then read as a reset.
const KEPT: usize = 4_096;

/// Questions at once. More wait to be accepted.
const ASKING_MAX: usize = 4_096;

/// The library says it at once.
const QUESTION_TIME: Duration = Duration::from_secs(5);

/// The length of the key that other users have to say.
pub const KEY_BYTES: usize = 32;

/// Whether both are the same; it takes as long wherever they differ.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}

/// What names an attempt: drawn by the library.
pub(crate) type Number = [u8; 8];

/// The answer to who asks for what is not known.
const UNKNOWN: i32 = -1;

/// How a question is meant.
mod kind {
    /// How is it now?
    pub(super) const NOW: u8 = b'?';
    /// How does it end?
    pub(super) const END: u8 = b'w';
    /// `connect` is called once more: the first who learns so that it is made is told 0, as by Linux, and others EISCONN.
    pub(super) const AGAIN: u8 = b'c';
    /// Which address stands for a name?
    pub(super) const NAME: u8 = b'n';
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Waits,
    Made { is_told: bool },
    Failed(Errno),
}

#[derive(Debug, Default)]
struct Known {
    results: HashMap<Number, Verdict>,
    /// Those that are over, in the order in which they ended.
    over: VecDeque<Number>,
}

/// What became of attempts to connect.
#[derive(Debug, Default)]
pub(crate) struct ConnectResults {
    known: Mutex<Known>,
    changed: Notify,
}

/// An attempt. Dropped while it waits, it has failed with `ECONNABORTED`.
#[derive(Debug)]
pub(crate) struct Attempt {
    results: Arc<ConnectResults>,
    number: Number,
}

impl Attempt {
    pub(crate) fn begin(results: Arc<ConnectResults>, number: Number) -> Self {
        results.set(number, Verdict::Waits);
        Self { results, number }
    }

    pub(crate) fn made(&self) {
        self.results.set(self.number, Verdict::Made { is_told: false });
    }

    pub(crate) fn failed(&self, errno: Errno) {
        self.results.set(self.number, Verdict::Failed(errno));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut known = self.results.known.lock();
        let waits = known.results.get_mut(&self.number).filter(|verdict| **verdict == Verdict::Waits);
        if let Some(verdict) = waits {
            *verdict = Verdict::Failed(Errno::CONNABORTED);
        }
        known.over.push_back(self.number);
        if known.over.len() > KEPT
            && let Some(oldest) = known.over.pop_front()
        {
            known.results.remove(&oldest);
        }
        drop(known);
        self.results.changed.notify_waiters();
    }
}

impl ConnectResults {
    fn set(&self, number: Number, verdict: Verdict) {
        self.known.lock().results.insert(number, verdict);
        self.changed.notify_waiters();
    }

    fn answer(&self, asked: u8, number: Number) -> i32 {
        match self.known.lock().results.get_mut(&number) {
            None => UNKNOWN,
            Some(Verdict::Waits) if asked == kind::AGAIN => Errno::ALREADY.raw_os_error(),
            Some(Verdict::Waits) => Errno::INPROGRESS.raw_os_error(),
            Some(Verdict::Made { .. }) if asked == kind::NOW => 0,
            // Who waited for the end is told by `connect`, too.
            Some(Verdict::Made { is_told }) => match std::mem::replace(is_told, true) && asked == kind::AGAIN {
                true => Errno::ISCONN.raw_os_error(),
                false => 0,
            },
            Some(Verdict::Failed(errno)) => errno.raw_os_error(),
        }
    }

    /// The answer to who waits for the end. The connection that is asked for may not have been accepted yet.
    async fn end(&self, number: Number) -> i32 {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.answer(kind::END, number) {
                UNKNOWN => {}
                answer if answer == Errno::INPROGRESS.raw_os_error() => {}
                answer => return answer,
            }
            changed.await;
        }
    }

    /// Answers questions, as long as it is polled.
    pub(crate) async fn serve(self: Arc<Self>, listener: UnixListener, key: Option<String>, names: Arc<RemoteNames>) {
        let (places, lines) = (Arc::new(Semaphore::new(ASKING_MAX)), Lines::new());
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((asking, _)) => {
                    let (results, key, names) = (self.clone(), key.clone(), names.clone());
                    tokio::spawn(async move {
                        let _place = place;
                        results.serve_one(asking, key, &names).await
                    });
                }
                Err(error) => {
                    lines.warn("cannot accept a question", &error);
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn serve_one(&self, mut asking: UnixStream, key: Option<String>, names: &RemoteNames) -> Option<()> {
        let (mut question, mut said) = ([0; 9], vec![0; key.as_ref().map_or(0, String::len)]);
        let mut name = Vec::new();
        let heard = async {
            asking.read_exact(&mut question).await?;
            asking.read_exact(&mut said).await?;
            if let [kind::NAME, len, ..] = question {
                name.resize(len.into(), 0);
                asking.read_exact(&mut name).await?;
            }
            io::Result::Ok(())
        };
        timeout(QUESTION_TIME, heard).await.ok()?.ok()?;
        if key.is_some_and(|key| !is_same(key.as_bytes(), &said)) {
            return None;
        }
        let [asked, number @ ..] = question;
        let answer = match asked {
            kind::NOW | kind::AGAIN => self.answer(asked, number),
            kind::END => tokio::select! {
                answer = self.end(number) => answer,
                // A signal has ended the call.
                _ = asking.read_u8() => return None,
            },
            kind::NAME => {
                let address = str::from_utf8(&name).ok().and_then(|name| names.address_of(name));
                return asking.write_all(&address.unwrap_or(Ipv4Addr::UNSPECIFIED).octets()).await.ok();
            }
            _ => return None,
        };
        asking.write_all(&answer.to_ne_bytes()).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_connects_again_is_told_0_and_others_that_it_is_connected() {
        let results = Arc::new(ConnectResults::default());
        let number = [7; 8];
        assert_eq!(results.answer(kind::NOW, number), UNKNOWN);
        let attempt = Attempt::begin(results.clone(), number);
        assert_eq!(results.answer(kind::AGAIN, number), Errno::ALREADY.raw_os_error());
        assert_eq!(results.answer(kind::NOW, number), Errno::INPROGRESS.raw_os_error());
        attempt.made();
        assert_eq!(results.answer(kind::NOW, number), 0);
        assert_eq!(results.answer(kind::AGAIN, number), 0);
        assert_eq!(results.answer(kind::AGAIN, number), Errno::ISCONN.raw_os_error());
    }

    #[tokio::test]
    async fn whoever_waits_learns_the_end_also_of_what_had_not_begun() {
        let results = Arc::new(ConnectResults::default());
        let waiting = [[1; 8], [2; 8], [3; 8]].map(|number| {
            let results = results.clone();
            tokio::spawn(async move { results.end(number).await })
        });
        tokio::task::yield_now().await;
        let [made, failed, dropped] = [[1; 8], [2; 8], [3; 8]].map(|number| Attempt::begin(results.clone(), number));
        tokio::task::yield_now().await;
        made.made();
        failed.failed(Errno::CONNREFUSED);
        drop(dropped);
        let [made, failed, dropped] = waiting;
        assert_eq!(made.await.unwrap(), 0);
        assert_eq!(failed.await.unwrap(), Errno::CONNREFUSED.raw_os_error());
        assert_eq!(dropped.await.unwrap(), Errno::CONNABORTED.raw_os_error());
    }

    #[test]
    fn the_oldest_ended_attempts_are_forgotten_and_open_ones_stay() {
        let results = Arc::new(ConnectResults::default());
        let there = Attempt::begin(results.clone(), [0xff; 8]);
        there.made();
        let number = |at: usize| (at as u64).to_be_bytes();
        for at in 0..=KEPT {
            Attempt::begin(results.clone(), number(at)).failed(Errno::CONNREFUSED);
        }
        assert_eq!(results.answer(kind::NOW, number(0)), UNKNOWN);
        assert_eq!(results.answer(kind::NOW, number(1)), Errno::CONNREFUSED.raw_os_error());
        assert_eq!(results.answer(kind::NOW, [0xff; 8]), 0);
        assert_eq!(results.known.lock().results.len(), KEPT + 1);
    }
}
