//! The owner's page and `/metrics`, over real sockets.

use crate::support::service::{Service, Weather, plain};
use crate::support::{LATER, Reply, config, get, id_of, post, sealed, send, status, until, until_state};
use hoop_gateway::{Config, Gateway};
use hoop_http::{empty, full, shutdown};
use http::{Method, Request};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tempfile::TempDir;

struct House {
    address: SocketAddr,
    admin: SocketAddr,
    stop: hoop_http::ShutdownTrigger,
    task: tokio::task::JoinHandle<()>,
}

impl House {
    async fn start(folder: &Path) -> Self {
        let admin = Some((Ipv4Addr::LOCALHOST, 0).into());
        let gateway = Gateway::open(Config { admin, ..config(folder) }).await.unwrap();
        let (address, admin) = (gateway.address(), gateway.admin_address().unwrap());
        let (stop, shutdown) = shutdown();
        Self { address, admin, stop, task: tokio::spawn(gateway.run(shutdown)) }
    }

    async fn stop(self) {
        self.stop.trigger();
        self.task.await.unwrap();
    }

    async fn press(&self, button: &str, form: &str) -> Reply {
        let request = Request::post(button).header("content-type", "application/x-www-form-urlencoded");
        send(self.admin, request, full(form.to_owned())).await
    }

    async fn text(&self, path: &str) -> String {
        let reply = send(self.admin, Request::get(path), empty()).await;
        assert_eq!(reply.status, 200, "{path}");
        String::from_utf8(reply.body.to_vec()).unwrap()
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_deliveries_stay_paused_over_a_restart_and_all_go_out_on_resume() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let folder = folder();
    let house = House::start(folder.path()).await;
    assert_eq!(house.press("/pause", "").await.status, 303);
    let z = sealed(1, 1000, LATER);
    assert_eq!(post(house.address, &service.dest(), &z).await.status, 201);
    assert!(house.text("/metrics").await.contains("hoop_gateway_paused 1"));
    house.stop().await;
    let house = House::start(folder.path()).await;
    assert_eq!(status(house.address, id_of(&z)).await["state"], "stored");
    assert_eq!(service.count(&Method::PUT, "/"), 0);
    assert!(house.text("/").await.contains("Deliveries are paused."));
    assert_eq!(house.press("/resume", "").await.status, 303);
    until_state(house.address, id_of(&z), "accepted").await;
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_sees_who_uploads_where_and_drops_one_or_all_of_a_device() {
    let service = Service::start(
        |_, method, _, _| if *method == Method::PUT { Weather::Answer(plain(503, "")) } else { Weather::Fair },
    )
    .await;
    let folder = folder();
    let house = House::start(folder.path()).await;
    let uploads: Vec<_> = (1..=3).map(|seed| sealed(seed, 1000, LATER)).collect();
    for z in &uploads {
        assert_eq!(post(house.address, &service.dest(), z).await.status, 201);
    }
    let page = house.text("/").await;
    for seen in [&id_of(&uploads[0]).to_hex(), "127.0.0.1", &service.origin] {
        assert!(page.contains(seen), "{seen}: {page}");
    }
    assert_eq!(house.press("/drop", &format!("id={}", id_of(&uploads[0]))).await.status, 303);
    let dropped = status(house.address, id_of(&uploads[0])).await;
    assert_eq!((&dropped["state"], &dropped["reason"]["code"]), (&"stopped".into(), &"upload-stopped".into()));
    let again = post(house.address, &service.dest(), &uploads[0]).await;
    assert_eq!((again.status.as_u16(), again.code()), (410, "upload-stopped".into()), "nothing of it is kept");
    assert_eq!(status(house.address, id_of(&uploads[1])).await["finished_at"], serde_json::Value::Null);
    assert_eq!(house.press("/drop", "device=127.0.0.1").await.status, 303);
    for z in &uploads {
        until_state(house.address, id_of(z), "stopped").await;
    }
    assert_eq!(house.press("/drop", "id=00000000000000000000000000000009").await.code(), "upload-unknown");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_another_page_nor_another_name_gets_at_the_owners_page() {
    let folder = folder();
    let house = House::start(folder.path()).await;
    for origin in ["https://evil.example", "null", &format!("http://{}", house.address)] {
        let request = Request::post("/pause").header("origin", origin);
        assert_eq!(send(house.admin, request, empty()).await.code(), "origin-forbidden", "{origin}");
    }
    let own = Request::post("/resume").header("origin", format!("http://{}", house.admin));
    assert_eq!(send(house.admin, own, empty()).await.status, 303);
    assert_eq!(get(house.address, "/metrics").await.status, 404, "the LAN has no metrics");
    assert_eq!(get(house.address, "/uploads").await.status, 404);
    house.stop().await;
    let open = Config { admin: Some(([0, 0, 0, 0], 0).into()), ..config(folder.path()) };
    let error = Gateway::open(open).await.unwrap_err().to_string();
    assert!(error.contains("for this machine alone"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_and_name_nothing_and_nobody() {
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let folder = folder();
    let house = House::start(folder.path()).await;
    let z = sealed(1, 100_000, LATER);
    post(house.address, &service.dest(), &z).await;
    until(house.address, id_of(&z), "accepted", |status| status["state"] == "accepted").await;
    assert_eq!(post(house.address, "https://10.0.0.1/hoop/post", &z).await.status, 403);
    let metrics = house.text("/metrics").await;
    for line in [
        "hoop_gateway_uploads{state=\"accepted\"} 1",
        &format!("hoop_gateway_received_bytes_total {}", z.len()),
        &format!("hoop_gateway_sent_bytes_total {}", z.len()),
        "hoop_gateway_refused_requests_total{code=\"dest-forbidden\"} 1",
        "hoop_gateway_attempts_total 1",
        "hoop_gateway_paused 0",
    ] {
        assert!(metrics.lines().any(|own| own == line), "{line}\n{metrics}");
    }
    for secret in [&id_of(&z).to_hex(), "127.0.0.1", "photos", "hoop/post", "10.0.0.1"] {
        assert!(!metrics.contains(secret), "{secret}");
    }
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<u64>().is_ok(), "{line}");
    }
    house.stop().await;
}
