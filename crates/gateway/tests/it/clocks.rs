//! A gateway whose wall clock jumps (`docs/time.md`).

use crate::support::*;
use hoop_gateway::Config;
use hoop_http::{Clock, Readings};
use hoop_timekeeper::Reading;
use hoop_units::{ByteRange, Timestamp, UnixTime};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DAY: u64 = 86_400;
const START: u64 = 1_795_000_000;

/// Clocks that a test sets: boot, monotonic seconds, wall seconds.
struct Faked(Mutex<(u64, u64, u64)>);

impl Faked {
    fn set(&self, boot: u64, mono: u64, wall: u64) {
        *self.0.lock().unwrap() = (boot, mono, wall);
    }
}

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

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_outlives_clock_jumps_and_expires_when_its_time_is_over() {
    let clocks = Arc::new(Faked(Mutex::new((1, 0, START))));
    let folder = tempfile::tempdir().unwrap();
    let begin = || {
        let clock = Clock::with_readings(clocks.clone());
        start(Config { clock, ..config(folder.path()) })
    };
    // A day passes: its time is sure.
    begin().await.stop().await;
    clocks.set(1, 2 * DAY, START + 2 * DAY);
    let one = begin().await;
    let z = sealed(1, 1_000, UnixTime((START + 2 * DAY) as u32 + 100));
    let waits = |status: &serde_json::Value| status["reason"].is_object() && status["state"] == "stored";
    assert_eq!(post(one.address, "http://127.0.0.1:9/hoop/post", &z).await.status, 201);
    until(one.address, id_of(&z), "a reason", waits).await;
    one.stop().await;
    // The house is kept at each start. 40 days ahead, ten years, in 1970; within a boot, and after one.
    for (boot, mono, wall) in [(1, 3 * DAY, 43 * DAY), (1, 3 * DAY, 3_650 * DAY), (2, 0, 43 * DAY), (3, 0, 3_650 * DAY)]
    {
        clocks.set(boot, mono, START + wall);
        let jumped = begin().await;
        // Taken after the house was kept: the scheduler does one after the other.
        until(jumped.address, id_of(&z), "it is kept", waits).await;
        jumped.stop().await;
    }
    clocks.set(4, 0, 0);
    begin().await.stop().await;
    // NTP has set it right, and its ticket has ended a week ago in run time, too.
    clocks.set(4, 2 * DAY, START + 5 * DAY);
    begin().await.stop().await;
    clocks.set(4, 12 * DAY, START + 15 * DAY);
    let late = begin().await;
    until_state(late.address, id_of(&z), "expired").await;
    late.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_its_prelude_is_dropped_after_ten_minutes_in_doubt_too() {
    let clocks = Arc::new(Faked(Mutex::new((1, 0, START))));
    let folder = tempfile::tempdir().unwrap();
    let begin = async |boot, mono, wall| {
        clocks.set(boot, mono, wall);
        start(Config { clock: Clock::with_readings(clocks.clone()), ..config(folder.path()) }).await
    };
    begin(1, 0, START).await.stop().await;
    // The box was off for three days, and nobody says that its clock is right.
    let late = START + 3 * DAY;
    let one = begin(2, 0, late).await;
    let z = sealed(1, 300_000, UnixTime(late as u32 + 7 * DAY as u32));
    let rest = ByteRange::new(border(1), z.len() as u64);
    assert_eq!(put_early(one.address, "http://127.0.0.1:9/hoop/post", &z, rest).await.status, 202);
    one.stop().await;
    let soon = begin(2, 500, late + 500).await;
    assert_eq!(head(soon.address, id_of(&z)).await.status, 200);
    soon.stop().await;
    let over = begin(2, 700, late + 700).await;
    until_dropped(over.address, id_of(&z)).await;
    over.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_that_ended_with_the_gateway_off_is_refused_once_time_is_sure() {
    let clocks = Arc::new(Faked(Mutex::new((1, 0, START))));
    let folder = tempfile::tempdir().unwrap();
    let begin = async |boot, wall| {
        clocks.set(boot, 0, START + wall);
        start(Config { clock: Clock::with_readings(clocks.clone()), ..config(folder.path()) }).await
    };
    let nowhere = "http://127.0.0.1:9/hoop/post";
    // Two days pass. The next look at the clocks believes them.
    let two_days_pass = |boot, wall| clocks.set(boot, 2 * DAY, START + wall + 2 * DAY);
    let until = |day: u64| UnixTime((START + day * DAY) as u32);
    let one = begin(1, 0).await;
    two_days_pass(1, 0);
    let known = sealed(1, 1_000, until(7));
    assert_eq!(post(one.address, nowhere, &known).await.status, 201);
    one.stop().await;
    // It was off for 40 days. As long as the time is in doubt, nobody is refused by it.
    let late = begin(2, 42 * DAY).await;
    let taken = sealed(2, 1_000, until(32));
    assert_eq!(post(late.address, nowhere, &taken).await.status, 201);
    two_days_pass(2, 42 * DAY);
    // That is within ten seconds.
    let mut reply = post(late.address, nowhere, &sealed(3, 1_000, until(32))).await;
    for number in 10..40 {
        if reply.status != 201 {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        reply = post(late.address, nowhere, &sealed(number, 1_000, until(32))).await;
    }
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (410, "ticket-expired"), "{reply:?}");
    assert_eq!(post(late.address, nowhere, &sealed(4, 1_000, until(45))).await.status, 201);
    // What was acknowledged has its week of run time.
    for z in [&known, &taken] {
        assert_eq!(head(late.address, id_of(z)).await.header("hoop-state"), "stored");
    }
    late.stop().await;
}
