//! What all devices share beside disk and connections, and that none of them has it alone. Loopback's addresses stand for devices.

use crate::bounds::{Device, gateway_with, limits, shut, status};
use crate::support::service::{Service, Weather};
use crate::support::{LATER, id_of, sealed};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_gateway::Permits;
use hoop_seal::signing::Permit;
use hoop_seal::{Keyring, KwsId, ServiceKey};
use http::Method;
use std::net::SocketAddr;

/// A permit that has the form of one, signed by nobody's key.
fn strangers_permit(z: &[u8], origin: &str) -> String {
    let ring = Keyring::new(ServiceKey::new(KwsId([9; 4]), [9; 32]));
    let permit = Permit { upload_id: id_of(z), max_bytes: z.len() as u64, expires: LATER, gateway: None };
    URL_SAFE_NO_PAD.encode(ring.sign_permit(origin, &permit))
}

async fn silent() -> Service {
    Service::start(|_, _, _, _| Weather::Silence).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_has_silent_services_looked_at_leaves_places_for_others() {
    let (gateway, _folder) = gateway_with(|config| config.device = limits(|_| {})).await;
    let to = gateway.address;
    let mut services = Vec::new();
    for _ in 0..10 {
        services.push(silent().await);
    }
    // All at once, each with a permit of no use and without.
    let asked = services.iter().zip(1..).flat_map(|(service, seed)| {
        let z = sealed(seed, 10, LATER);
        let permit = strangers_permit(&z, &service.origin);
        [String::new(), format!(" HTTP/1.1\r\nHoop-Permit: {permit}\r\nX:")].map(|permit| {
            let (z, dest) = (z.clone(), service.dest());
            tokio::spawn(async move { Device(2).say(to, &format!("POST /offload?dest={dest}{permit}"), &z).await })
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    let not_hoop = Service::start(|_, _, _, _| Weather::Answer(crate::support::service::plain(404, ""))).await;
    let refused = Device(3).post(to, &not_hoop.dest(), &sealed(30, 10, LATER)).await;
    assert!(refused.contains("dest-not-hoop"), "it was looked at: {refused}");
    let fair = Service::start(|_, _, _, _| Weather::Fair).await;
    let z = sealed(31, 10, LATER);
    let permit = strangers_permit(&z, &fair.origin);
    let head = format!("POST /offload?dest={} HTTP/1.1\r\nHoop-Permit: {permit}\r\nX:", fair.dest());
    let refused = Device(3).say(to, &head, &z).await;
    assert!(refused.contains("permit-invalid"), "its keys were asked for: {refused}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_permits_are_demanded_no_service_is_asked_for_whoever_shows_none() {
    let (gateway, _folder) = gateway_with(|config| config.permits = Permits::Required).await;
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let z = sealed(1, 10, LATER);
    let (to, dest) = (gateway.address, service.dest());
    let none = Device(2).post(to, &dest, &z).await;
    assert!(none.contains("permit-required"), "{none}");
    let broken = Device(2).say(to, &format!("POST /offload?dest={dest} HTTP/1.1\r\nHoop-Permit: AAAA\r\nX:"), &z).await;
    assert!(broken.contains("permit-invalid"), "{broken}");
    assert_eq!(service.count(&Method::GET, "/"), 0);
    gateway.stop().await;
}

/// Begins a resumable upload of which nothing comes.
async fn create(device: Device, to: SocketAddr, dest: &str) -> String {
    let head = format!("POST /offload?dest={dest} HTTP/1.1\r\nUpload-Complete: ?0\r\nUpload-Length: 1000\r\nX:");
    device.say(to, &head, b"").await
}

/// Each is synced when it is begun and when it is let go.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_begins_and_drops_resumable_uploads_is_limited_per_minute() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|limits| limits.begun_per_minute = 10);
        config.sync = false;
    })
    .await;
    let (to, dest) = (gateway.address, service.dest());
    let mut begun = 0;
    let refused = loop {
        let answer = create(Device(2), to, &dest).await;
        if status(&answer) != "201" {
            break answer;
        }
        begun += 1;
        assert!(begun < 100, "without end");
        let location = answer.lines().find_map(|line| line.strip_prefix("location: ")).expect("a place");
        let gone = Device(2).say(to, &format!("DELETE {location} HTTP/1.1\r\nX:"), b"").await;
        assert_eq!(status(&gone), "204", "{gone}");
    };
    assert!(begun >= 10 && status(&refused) == "429" && refused.contains("retry-after"), "{begun}: {refused}");
    assert_eq!(status(&create(Device(3), to, &dest).await), "201");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_begin_resumable_uploads_and_leave_them_lock_nobody_out() {
    let service = shut().await;
    let (gateway, _folder) = gateway_with(|config| {
        config.device = limits(|_| {});
        config.sync = false;
    })
    .await;
    let (to, dest) = (gateway.address, service.dest());
    for device in 2..6 {
        for _ in 0..64 {
            let begun = create(Device(device), to, &dest).await;
            assert_eq!(status(&begun), "201", "{begun}");
        }
        assert_eq!(status(&create(Device(device), to, &dest).await), "429");
    }
    for _ in 0..3 {
        let begun = create(Device(6), to, &dest).await;
        assert!(status(&begun) == "201" && begun.contains("location: "), "{begun}");
    }
    gateway.stop().await;
}
