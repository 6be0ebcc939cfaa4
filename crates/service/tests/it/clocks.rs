//! A service whose wall clock jumps (`docs/time.md`): a new process at each jump, as its house is kept at each start.

use crate::support::device::*;
use crate::support::upstream::*;
use crate::support::*;
use hoop_http::{Clock, Readings};
use hoop_timekeeper::Reading;
use hoop_units::Timestamp;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const DAY: u64 = 86_400;
const START: u64 = 1_795_000_000;

/// Clocks that a test sets: boot, monotonic seconds, wall seconds.
struct Faked(Mutex<(u64, u64, u64)>);

impl Readings for Faked {
    fn mono(&self) -> Timestamp {
        Timestamp::from_secs(self.0.lock().unwrap().1)
    }

    fn read(&self) -> Reading {
        Reading { mono: self.mono(), wall_us: self.0.lock().unwrap().2 * 1_000_000, ntp_us: None }
    }

    fn boot(&self) -> String {
        self.0.lock().unwrap().0.to_string()
    }
}

/// A state folder on a machine whose clocks a test sets.
struct Machine {
    clocks: Arc<Faked>,
    folder: TempDir,
    upstream: SocketAddr,
}

impl Machine {
    /// One that has run for two days, so that its time is sure.
    async fn sure(upstream: SocketAddr) -> Self {
        let clocks = Arc::new(Faked(Mutex::new((1, 0, START))));
        let machine = Self { clocks, folder: tempfile::tempdir().unwrap(), upstream };
        machine.starts(1, 0, 0).await.stop().await;
        machine.starts(1, 2 * DAY, 2 * DAY).await.stop().await;
        machine
    }

    /// A process starts in this boot, so long after it, with the wall clock so long after [`START`]. It is clearing away when this returns, and has done so once it has stopped.
    async fn starts(&self, boot: u64, mono: u64, wall: u64) -> Sidecar {
        self.starts_at(boot, mono, START + wall).await
    }

    async fn starts_at(&self, boot: u64, mono: u64, wall: u64) -> Sidecar {
        *self.clocks.0.lock().unwrap() = (boot, mono, wall);
        let clock = Clock::with_readings(self.clocks.clone());
        let folder = self.folder.path().to_owned();
        let sidecar = Sidecar::on(self.upstream, folder, |config| config.clock = clock).await;
        // The worker begins to clear away before it takes up anything.
        let probe = ticket(&sidecar).await;
        seal(&probe, b"probe").is_taken_by(&sidecar).await;
        sidecar.reaches(&probe.id, "accepted").await;
        sidecar
    }

    /// A process takes an upload while the time is sure, which the application accepts, and ends.
    async fn accepts_once(&self) -> (Ticket, Sealed) {
        let one = self.starts(1, 2 * DAY, 2 * DAY).await;
        let ticket = ticket(&one).await;
        let sealed = seal(&ticket, b"once");
        sealed.is_taken_by(&one).await;
        one.reaches(&ticket.id, "accepted").await;
        one.forgets_bodies().await;
        one.stop().await;
        (ticket, sealed)
    }
}

/// How often this came.
fn times(upstream: &Upstream, body: &[u8]) -> usize {
    upstream.whole().iter().filter(|arrival| arrival.body == body).count()
}

/// 40 days ahead, ten years, before 1970's first month is over; within a boot and after one.
const JUMPS: [(u64, u64, u64); 5] = [
    (1, 3 * DAY, START + 43 * DAY),
    (1, 3 * DAY, START + 3_650 * DAY),
    (2, 0, START + 43 * DAY),
    (3, 0, START + 3_650 * DAY),
    (4, 0, 9),
];

#[tokio::test]
async fn an_accepted_upload_is_not_replayed_after_a_clock_jump() {
    let upstream = Upstream::willing().await;
    let machine = Machine::sure(upstream.address).await;
    let (_, sealed) = machine.accepts_once().await;
    for (boot, mono, wall) in JUMPS {
        // The second start forgets what the first has disposed of.
        for _ in 0..2 {
            machine.starts_at(boot, mono, wall).await.stop().await;
        }
        let jumped = machine.starts_at(boot, mono, wall).await;
        assert_eq!(sealed.post(&jumped).await.status, 200, "it says again that it has it");
        jumped.stop().await;
    }
    let right = machine.starts(4, 60, 3 * DAY).await;
    assert_eq!((sealed.post(&right).await.status, times(&upstream, b"once")), (200, 1));
    right.stop().await;
}

#[tokio::test]
async fn a_waiting_upload_outlives_a_clock_jump_and_expires_on_time() {
    let busy = Upstream::new(|_, arrival| match arrival.head.contains("from=busy") {
        true => answer("503 Service Unavailable", ""),
        false => answer("201 Created", "{}"),
    });
    let busy = busy.await;
    let machine = Machine::sure(busy.address).await;
    let one = machine.starts(1, 2 * DAY, 2 * DAY).await;
    let waits = ticket(&one).await;
    let sealed = seal_plaintext(&waits, &plaintext(&waits, "POST /upload?from=busy", "", b"later"));
    sealed.is_taken_by(&one).await;
    one.stop().await;
    for (boot, mono, wall) in JUMPS {
        let jumped = machine.starts_at(boot, mono, wall).await;
        assert_eq!(jumped.status(&waits.id).await["state"], "received");
        jumped.stop().await;
    }
    // Somebody has set it right, and it has stood so for two days; a week after its ticket's end it is over, in run time, too.
    machine.starts(4, 60, 3 * DAY).await.stop().await;
    machine.starts(4, 2 * DAY, 5 * DAY).await.stop().await;
    let late = machine.starts(4, 17 * DAY, 20 * DAY).await;
    late.reaches(&waits.id, "expired").await;
    late.stop().await;
}

#[tokio::test]
async fn a_forgotten_upload_is_refused_whatever_the_clock_says() {
    let upstream = Upstream::willing().await;
    let machine = Machine::sure(upstream.address).await;
    let (ticket, sealed) = machine.accepts_once().await;
    // Weeks pass, and it is forgotten.
    machine.starts(1, 60 * DAY, 60 * DAY).await.stop().await;
    let late = machine.starts(1, 60 * DAY, 60 * DAY).await;
    assert_eq!(late.send("GET", &format!("/hoop/uploads/{}", ticket.id), &[], b"").await.status, 404);
    late.stop().await;
    // The clock is set back to when its ticket was good, and stands there for two days.
    machine.starts(1, 60 * DAY, 2 * DAY).await.stop().await;
    let back = machine.starts(1, 62 * DAY, 4 * DAY).await;
    assert_eq!(sealed.post(&back).await.problem(), (410, "ticket-expired".into()));
    assert_eq!(times(&upstream, b"once"), 1);
    back.stop().await;
}

#[tokio::test]
async fn a_ticket_of_a_time_when_the_clock_was_ahead_is_good_once_it_is_right() {
    let upstream = Upstream::willing().await;
    let machine = Machine::sure(upstream.address).await;
    // A year ahead, for two days: it is believed.
    machine.starts(1, 2 * DAY, 367 * DAY).await.stop().await;
    let ahead = machine.starts(1, 4 * DAY, 369 * DAY).await;
    let ticket = ticket(&ahead).await;
    ahead.stop().await;
    machine.starts(1, 4 * DAY, 4 * DAY).await.stop().await;
    let right = machine.starts(1, 6 * DAY, 6 * DAY).await;
    let sealed = seal(&ticket, b"from tomorrow");
    // It is this service's own.
    sealed.is_taken_by(&right).await;
    right.reaches(&ticket.id, "accepted").await;
    right.stop().await;
}
