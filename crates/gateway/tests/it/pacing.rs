//! The hours of delivery over real sockets; the rates are measured in the lab (`bench/run background`).

use crate::support::service::{Service, Weather};
use crate::support::{GENEROUS, LATER, Running, config, head, id_of, post, sealed, send, start, status, until_state};
use hoop_dispatch::{DailyWindow, Hours};
use hoop_gateway::Pacing;
use hoop_http::{Clock, full};
use http::{Method, Request};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const NOON: u64 = 1_795_003_200;
const OPEN: u64 = NOON + 30 * 60;
const SHUT: u64 = NOON + 90 * 60;

/// A gateway that delivers from noon to one, and whose clock shows `time`.
async fn gateway(folder: &Path, time: &Arc<AtomicU64>) -> Running {
    let seen = time.clone();
    let mut config = config(folder);
    config.clock = Clock::with_wall(move || SystemTime::UNIX_EPOCH + Duration::from_secs(seen.load(Ordering::Relaxed)));
    let hours = Hours::new(vec![DailyWindow { from: 12 * 60, to: 13 * 60, rate: None }]).unwrap();
    config.pacing = Pacing { hours, utc_offset: Some(0), ..Pacing::default() };
    start(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_the_window_goes_what_would_miss_its_deadline_and_nothing_else() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &Arc::new(AtomicU64::new(SHUT))).await;
    let offer = async |seed, deadline: Option<u64>| {
        let z = sealed(seed, 100_000, LATER);
        let request = Request::post(format!("/offload?dest={}", service.dest()));
        let request = deadline.iter().fold(request, |request, deadline| request.header("hoop-deadline", *deadline));
        assert_eq!(send(gateway.address, request, full(z.clone())).await.status, 201);
        id_of(&z)
    };
    let (never, missed) = (offer(1, None).await, offer(2, Some(SHUT - 1)).await);
    let (tomorrow, soon) = (offer(3, Some(OPEN + 2 * 86_400)).await, offer(4, Some(SHUT + 3_600)).await);
    until_state(gateway.address, soon, "accepted").await;
    // From half past one until noon.
    let wait = 22 * 3_600 + 1_800;
    for waits in [never, missed, tomorrow] {
        let status = status(gateway.address, waits).await;
        assert_eq!(
            (&status["state"], status["next_attempt"].as_u64()),
            (&"stored".into(), Some(SHUT + wait)),
            "{status}"
        );
        assert_eq!(
            head(gateway.address, waits).await.header("retry-after"),
            wait.to_string(),
            "a page is told as well"
        );
    }
    assert_eq!(head(gateway.address, soon).await.header("retry-after"), "", "nothing more happens to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_the_window_nothing_begins_and_what_is_under_way_pauses() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let folder = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicU64::new(SHUT));
    let gateway = gateway(folder.path(), &time).await;
    // Each that is stored makes the gateway look up, as its own tick does.
    let offer = async |seed| {
        let z = sealed(seed, 100_000, LATER);
        assert_eq!(post(gateway.address, &service.dest(), &z).await.status, 201);
        id_of(&z)
    };
    let first = offer(1).await;
    offer(2).await;
    assert_eq!(status(gateway.address, first).await["state"], "stored");
    assert_eq!(service.count(&Method::PUT, "/"), 0);

    time.store(OPEN, Ordering::Relaxed);
    offer(3).await;
    until_state(gateway.address, first, "accepted").await;

    // One whose service keeps it waiting: by itself that would end after two minutes.
    service.set_mood(|_, method, _, _| if *method == Method::PUT { Weather::Silence } else { Weather::Fair });
    let before = service.count(&Method::PUT, "/");
    let kept = offer(4).await;
    let end = tokio::time::Instant::now() + GENEROUS;
    while service.count(&Method::PUT, "/") == before {
        assert!(tokio::time::Instant::now() < end, "it is not sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    service.set_mood(|_, _, _, _| Weather::Fair);
    let end = tokio::time::Instant::now() + GENEROUS;
    for seed in (5..).step_by(2) {
        time.store(SHUT, Ordering::Relaxed);
        offer(seed).await;
        // Whether the gateway has looked up by now nobody can see; if not, it does the next time.
        tokio::time::sleep(Duration::from_millis(50)).await;
        time.store(OPEN, Ordering::Relaxed);
        offer(seed + 1).await;
        if status(gateway.address, kept).await["state"] == "accepted" {
            break;
        }
        assert!(tokio::time::Instant::now() < end, "it was not stopped");
    }
}
