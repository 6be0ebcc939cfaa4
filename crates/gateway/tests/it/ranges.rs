//! Cut-through: what is stored of an upload leaves while the rest still comes, or never comes from this device.

use crate::support::service::{Service, Weather};
use crate::support::{
    GENEROUS, LATER, Running, border, config, connect, head, id_of, post, put, put_request, sealed, start, until,
    until_state,
};
use bytes::Bytes;
use hoop_gateway::Config;
use hoop_http::{Body, Clock, streamed};
use hoop_units::{ByteRange, ContentRange};
use http::{HeaderMap, Method};
use http_body::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::sync::mpsc;

async fn gateway_with(change: impl FnOnce(&mut Config)) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    change(&mut config);
    (start(config).await, folder)
}

/// A body whose sender is the test.
struct Fed(mpsc::Receiver<Bytes>);

impl http_body::Body for Fed {
    type Data = Bytes;
    type Error = hoop_http::BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A device that puts all of `z` in one message, and says when how much of it goes out.
struct Device {
    feed: mpsc::Sender<Bytes>,
    answer: tokio::task::JoinHandle<Option<u16>>,
    z: Bytes,
    sent: usize,
}

impl Device {
    async fn begin(gateway: &Running, dest: &str, z: &[u8]) -> Self {
        let (feed, frames) = mpsc::channel(1);
        let body: Body = streamed(Fed(frames));
        let range = ContentRange { range: ByteRange::new(0, z.len() as u64), total: z.len() as u64 };
        let request = put_request(dest, z, &range.to_string())
            .header("host", gateway.address.to_string())
            .header("content-length", z.len());
        let mut connection = connect(gateway.address).await;
        let request = request.body(body).unwrap();
        let answer =
            tokio::spawn(async move { connection.send(request).await.ok().map(|answer| answer.status().as_u16()) });
        Self { feed, answer, z: Bytes::copy_from_slice(z), sent: 0 }
    }

    /// Sends so many bytes more.
    async fn send(&mut self, bytes: usize) {
        let end = (self.sent + bytes).min(self.z.len());
        self.feed.send(self.z.slice(self.sent..end)).await.unwrap();
        self.sent = end;
    }

    /// Walks off: the connection is gone.
    fn walk_off(self) {
        self.answer.abort();
    }

    async fn answer(self) -> u16 {
        drop(self.feed);
        tokio::time::timeout(GENEROUS, self.answer).await.unwrap().unwrap().unwrap()
    }
}

fn fair(_: usize, _: &Method, _: &str, _: &HeaderMap) -> Weather {
    Weather::Fair
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_leave_while_others_arrive_and_the_monitor_has_both_numbers() {
    let service = Service::start(fair).await;
    let (gateway, _folder) = gateway_with(|_| {}).await;
    let z = sealed(1, 6 << 20, LATER);
    let mut device = Device::begin(&gateway, &service.dest(), &z).await;
    device.send(3 << 20).await;
    let half = until(gateway.address, id_of(&z), "half of it at the service", |status| {
        // What has left is told at once, and may still be on its way.
        status["delivered"].as_u64() >= Some(border(47)) && service.bytes(id_of(&z)).len() as u64 >= border(47)
    })
    .await;
    assert_eq!(
        (&half["state"], &half["stored"], &half["delivered"]),
        (&"receiving".into(), &border(47).into(), &border(47).into())
    );
    assert_eq!(half["missing"], format!("{}-{}", border(47), z.len() - 1));
    assert!(service.bytes(id_of(&z))[..border(47) as usize] == z[..border(47) as usize]);
    device.send(z.len()).await;
    assert_eq!(device.answer().await, 201);
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert!(service.bytes(id_of(&z)) == z);
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_uploads_are_delivered_after_a_device_left_and_completed_later() {
    let service = Service::start(fair).await;
    let (gateway, folder) = gateway_with(|_| {}).await;
    let z = sealed(1, 1 << 20, LATER);
    let mut device = Device::begin(&gateway, &service.dest(), &z).await;
    device.send(300_000).await;
    // Less than a step has, but whole records; and the connection breaks rather than ends. What waits in the socket then is lost.
    let file = folder.path().join(format!("uploads/01/{}.z", id_of(&z)));
    let end = tokio::time::Instant::now() + GENEROUS;
    while std::fs::metadata(&file).map_or(0, |file| file.len()) < border(4) {
        assert!(tokio::time::Instant::now() < end, "the gateway does not read it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    device.walk_off();
    until(gateway.address, id_of(&z), "what it left at the service", |status| status["delivered"] == border(4)).await;
    gateway.stop().await;
    let gateway = start(config(folder.path())).await;
    assert_eq!(head(gateway.address, id_of(&z)).await.header("hoop-missing"), format!("{}-{}", border(4), z.len() - 1));
    let rest = ByteRange::new(border(4), z.len() as u64);
    assert_eq!(put(gateway.address, &service.dest(), &z, rest).await.status, 201);
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert!(service.bytes(id_of(&z)) == z);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_stores_a_silent_senders_records_before_it_gives_up_on_it() {
    let service = Service::start(fair).await;
    let (gateway, _folder) = gateway_with(|_| {}).await;
    let z = sealed(1, 1 << 20, LATER);
    let mut device = Device::begin(&gateway, &service.dest(), &z).await;
    device.send(300_000).await;
    until(gateway.address, id_of(&z), "what it sent at the service", |status| status["delivered"] == border(4)).await;
    device.send(z.len()).await;
    assert_eq!(device.answer().await, 201, "it was only slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_with_a_part_each_make_one_upload_and_send_only_their_own() {
    let service = Service::start(fair).await;
    let offset = Arc::new(AtomicU64::new(0));
    let seen = offset.clone();
    let clock = Clock::with_wall(move || SystemTime::now() + Duration::from_secs(seen.load(Ordering::Relaxed)));
    let (a, _a) = gateway_with(|config| config.clock = clock).await;
    let (b, _b) = gateway_with(|_| {}).await;
    let z = sealed(1, 2 << 20, LATER);
    let (id, middle, end) = (id_of(&z), border(9), z.len() as u64);
    assert_eq!(put(a.address, &service.dest(), &z, ByteRange::new(0, middle)).await.status, 202);
    until(a.address, id, "its part at the service", |status| status["delivered"] == middle).await;
    assert_eq!(put(b.address, &service.dest(), &z, ByteRange::new(middle, end)).await.status, 202);
    until_state(b.address, id, "accepted").await;
    assert!(service.bytes(id) == z);
    assert_eq!(service.count(&Method::PUT, "/hoop/post/"), 2, "nothing is sent twice");
    let resting = until(a.address, id, "a rest", |status| {
        status["next_attempt"].as_u64() >= status["created"].as_u64().map(|created| created + 60)
    })
    .await;
    assert_eq!(resting["state"], "receiving", "nobody has told it");
    // It asks after a while; something new makes it look at the clock before the half minute is over.
    offset.store(7 * 60 * 60, Ordering::Relaxed);
    post(a.address, &service.dest(), &sealed(2, 1_000, LATER)).await;
    let told = until_state(a.address, id, "accepted").await;
    assert_eq!((&told["stored"], &told["missing"]), (&middle.into(), &"".into()));
    let again = put(a.address, &service.dest(), &z, ByteRange::new(middle, end)).await;
    assert_eq!((again.status.as_u16(), again.header("hoop-missing")), (201, ""), "nothing more is wanted");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_by_another_way_is_not_sent() {
    let service = Service::start(fair).await;
    let (a, _a) = gateway_with(|_| {}).await;
    let (b, _b) = gateway_with(|_| {}).await;
    let z = sealed(1, 2 << 20, LATER);
    put(a.address, &service.dest(), &z, ByteRange::new(border(4), z.len() as u64)).await;
    until(a.address, id_of(&z), "its part at the service", |status| {
        status["delivered"].as_u64() >= Some(z.len() as u64 - border(4))
    })
    .await;
    put(b.address, &service.dest(), &z, ByteRange::new(border(2), border(7))).await;
    until(b.address, id_of(&z), "the rest of its part", |status| {
        status["delivered"].as_u64() >= Some(z.len() as u64 - border(2))
    })
    .await;
    // What the one gateway has sent may still be on its way in when the other is told that it is there.
    let came = || service.state.lock().unwrap().uploads[&id_of(&z).to_string()].received;
    for _ in 0..1_000 {
        if came() >= z.len() as u64 - border(2) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(came(), z.len() as u64 - border(2), "no byte came twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_cut_through_nothing_leaves_before_all_is_stored() {
    let service = Service::start(fair).await;
    let (gateway, _folder) = gateway_with(|config| config.cut_through = false).await;
    let (z, other) = (sealed(1, 2 << 20, LATER), sealed(2, 1_000, LATER));
    put(gateway.address, &service.dest(), &z, ByteRange::new(0, border(9))).await;
    post(gateway.address, &service.dest(), &other).await;
    until_state(gateway.address, id_of(&other), "accepted").await;
    assert!(service.bytes(id_of(&z)).is_empty());
    put(gateway.address, &service.dest(), &z, ByteRange::new(border(9), z.len() as u64)).await;
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert!(service.bytes(id_of(&z)) == z);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_refused_for_good_by_the_service_ends_an_incomplete_upload() {
    let service = Service::start(|_, method, _, _| match *method {
        Method::PUT => {
            Weather::Answer(hoop_http::Problem::new(hoop_http::Code::TicketForeign, "because").into_response())
        }
        _ => Weather::Fair,
    })
    .await;
    let (gateway, _folder) = gateway_with(|_| {}).await;
    let z = sealed(1, 2 << 20, LATER);
    put(gateway.address, &service.dest(), &z, ByteRange::new(0, border(9))).await;
    until_state(gateway.address, id_of(&z), "refused").await;
    let rest = put(gateway.address, &service.dest(), &z, ByteRange::new(border(9), z.len() as u64)).await;
    assert_eq!(rest.code(), "ticket-foreign", "{rest:?}");
}
