//! Permits: where a service, or the gateway's owner, demands them, nothing is stored without its consent.

use crate::support::service::{Service, Weather, well_known};
use crate::support::{
    LATER, Reply, Running, border, config, get, head, id_of, post, put_request, sealed, send, start, until_state,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_gateway::{Config, Permits};
use hoop_http::{full, json};
use hoop_seal::signing::{GATEWAY_PROOF_LEN, GatewayId, GatewayProof, Permit};
use hoop_seal::{Keyring, KwsId, ServiceKey};
use hoop_units::{ByteRange, UnixTime};
use http::{Method, Request, StatusCode};
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use tempfile::TempDir;

fn ring(secret: u8) -> Keyring {
    Keyring::new(ServiceKey::new(KwsId([1, 2, 3, 4]), [secret; 32]))
}

/// A service that publishes the keys of `ring`, and says this of permits; its origin comes with the first request.
async fn service(demands: &'static str) -> Service {
    Service::start(move |_, _, path, headers| {
        if path != "/.well-known/hoop" {
            return Weather::Fair;
        }
        let origin = format!("http://{}", headers["host"].to_str().unwrap());
        Weather::Answer(json(StatusCode::OK, &document(&origin, demands, &ring(7))))
    })
    .await
}

fn document(origin: &str, demands: &str, ring: &Keyring) -> Value {
    let mut document = well_known(origin);
    document["permits"] = demands.into();
    let keys: serde_json::Map<String, Value> =
        ring.signing_keys().map(|(id, key)| (id.to_string(), key.to_string().into())).collect();
    document["signing_keys"] = keys.into();
    document
}

async fn gateway(folder: &Path, change: impl FnOnce(&mut Config)) -> Running {
    let mut config = config(folder);
    change(&mut config);
    start(config).await
}

/// A permit for `z`, changed somehow, signed by `ring` for `origin`.
fn permit(z: &[u8], origin: &str, ring: &Keyring, change: impl FnOnce(&mut Permit)) -> Vec<u8> {
    let mut permit = Permit { upload_id: id_of(z), max_bytes: z.len() as u64, expires: LATER, gateway: None };
    change(&mut permit);
    ring.sign_permit(origin, &permit).to_vec()
}

/// Puts all of `z`, with this permit.
async fn put(to: &Running, dest: &str, z: &[u8], permit: Option<&[u8]>) -> Reply {
    let mut request = put_request(dest, z, &format!("bytes 0-{}/{}", z.len() - 1, z.len()));
    if let Some(permit) = permit {
        request = request.header("hoop-permit", URL_SAFE_NO_PAD.encode(permit));
    }
    send(to.address, request, full(z.to_vec())).await
}

fn kept_bytes(folder: &TempDir) -> usize {
    let shards = std::fs::read_dir(folder.path().join("uploads")).unwrap();
    shards.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_fills_the_disk_without_the_services_consent() {
    let folder = tempfile::tempdir().unwrap();
    let (demands, offers) = (service("required").await, service("offered").await);
    let gateway = gateway(folder.path(), |_| {}).await;
    let z = sealed(1, 200_000, LATER);
    let other = sealed(2, 10, LATER);
    let (origin, dest) = (&demands.origin, demands.dest());
    let now =
        UnixTime(u32::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap());
    let stranger: GatewayId = "0123456789abcdef0123456789abcdef".parse().unwrap();
    let mut altered = permit(&z, origin, &ring(7), |_| {});
    altered[30] ^= 1;
    for (what, wrong, code) in [
        ("none", None, "permit-required"),
        (
            "another upload's",
            Some(permit(&z, origin, &ring(7), |permit| permit.upload_id = id_of(&other))),
            "permit-invalid",
        ),
        ("for less", Some(permit(&z, origin, &ring(7), |permit| permit.max_bytes -= 1)), "permit-invalid"),
        (
            "expired",
            Some(permit(&z, origin, &ring(7), |permit| permit.expires = UnixTime(now.0 - 1000))),
            "ticket-expired",
        ),
        (
            "another gateway's",
            Some(permit(&z, origin, &ring(7), |permit| permit.gateway = Some(stranger))),
            "permit-invalid",
        ),
        ("forged", Some(permit(&z, origin, &ring(8), |_| {})), "permit-invalid"),
        ("another service's", Some(permit(&z, &offers.origin, &ring(7), |_| {})), "permit-invalid"),
        ("altered", Some(altered), "permit-invalid"),
        ("cut", Some(permit(&z, origin, &ring(7), |_| {})[..112].to_vec()), "permit-invalid"),
        ("empty", Some(Vec::new()), "permit-invalid"),
    ] {
        let reply = put(&gateway, &dest, &z, wrong.as_deref()).await;
        assert_eq!(reply.code(), code, "{what}: {reply:?}");
        assert!(reply.status.is_client_error(), "{what}");
    }
    let whole = post(gateway.address, &dest, &z).await;
    assert_eq!(whole.code(), "permit-required", "nor as a whole");
    let early = Request::put(format!("/offload/{}?dest={dest}", id_of(&z)))
        .header("content-range", format!("bytes {}-{}/{}", border(1), z.len() - 1, z.len()))
        .header("hoop-early", "?1");
    let early = send(gateway.address, early, full(z[border(1) as usize..].to_vec())).await;
    assert_eq!(early.code(), "prelude-needed", "nor early");
    assert_eq!(kept_bytes(&folder), 0, "not one file");

    let right = permit(&z, origin, &ring(7), |_| {});
    assert_eq!(put(&gateway, &dest, &z, Some(&right)).await.status, 201);
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(
        post(gateway.address, &offers.dest(), &other).await.status,
        201,
        "where it is only offered it is not needed"
    );
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumable_upload_without_permit_is_refused_before_any_byte_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let service = service("required").await;
    let gateway = gateway(folder.path(), |_| {}).await;
    let z = sealed(1, 200_000, LATER);
    let create = |complete: &str| {
        Request::post(format!("/offload?dest={}", service.dest()))
            .header("upload-draft-interop-version", 8)
            .header("upload-complete", complete)
            .header("upload-length", z.len())
    };
    let permit = URL_SAFE_NO_PAD.encode(permit(&z, &service.origin, &ring(7), |_| {}));
    // All of it, its beginning, less than its prelude, and nothing yet.
    for (complete, len) in [("?1", z.len()), ("?0", 100_000), ("?0", 20), ("?0", 0)] {
        let reply = send(gateway.address, create(complete), full(z[..len].to_vec())).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (403, "permit-required"), "{len}: {reply:?}");
        assert_eq!(reply.header("location"), "", "nothing to go on with");
    }
    assert_eq!(kept_bytes(&folder), 0, "not one file");

    let created = send(gateway.address, create("?0").header("hoop-permit", &permit), full(z[..100_000].to_vec())).await;
    assert_eq!((created.status.as_u16(), created.header("upload-offset")), (201, "100000"), "{created:?}");
    let rest = || {
        Request::patch(created.header("location"))
            .header("upload-offset", 100_000)
            .header("upload-complete", "?1")
            .header("content-type", "application/partial-upload")
    };
    let without = send(gateway.address, rest(), full(z[100_000..].to_vec())).await;
    assert_eq!((without.status.as_u16(), without.code().as_str()), (403, "permit-required"), "nor later parts");
    let whole = send(gateway.address, rest().header("hoop-permit", &permit), full(z[100_000..].to_vec())).await;
    assert_eq!(whole.status, 201, "{whole:?}");
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert_eq!(service.bytes(id_of(&z)), z);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_for_this_gateway_is_taken_and_the_service_sees_who_delivers() {
    let proofs = Arc::new(Mutex::new(Vec::new()));
    let seen = proofs.clone();
    let service = service("required").await;
    let origin = service.origin.clone();
    service.set_mood(move |_, method, path, headers| {
        if path == "/.well-known/hoop" {
            return Weather::Answer(json(StatusCode::OK, &document(&origin, "required", &ring(7))));
        }
        if *method == Method::PUT {
            seen.lock().unwrap().push(headers["hoop-gateway"].to_str().unwrap().to_owned());
        }
        Weather::Fair
    });
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), |_| {}).await;
    let name: GatewayId = get(gateway.address, "/test").await.json()["gateway"].as_str().unwrap().parse().unwrap();
    let z = sealed(1, 1000, LATER);
    let bound = permit(&z, &service.origin, &ring(7), |permit| permit.gateway = Some(name));
    assert_eq!(put(&gateway, &service.dest(), &z, Some(&bound)).await.status, 201);
    until_state(gateway.address, id_of(&z), "accepted").await;
    let proof = URL_SAFE_NO_PAD.decode(&proofs.lock().unwrap()[0]).unwrap();
    assert_eq!(proof.len(), GATEWAY_PROOF_LEN);
    let proof = GatewayProof::open(&proof, &service.origin, id_of(&z)).unwrap();
    assert_eq!(proof.gateway, name);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_that_the_owner_demands_are_checked_even_while_the_line_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let service = service("offered").await;
    let required = |config: &mut Config| config.permits = Permits::Required;
    let first = gateway(folder.path(), required).await;
    let (origin, dest) = (service.origin.clone(), service.dest());
    let z = sealed(1, 1000, LATER);
    assert_eq!(put(&first, &dest, &z, None).await.code(), "permit-required");
    assert_eq!(put(&first, &dest, &z, Some(&permit(&z, &origin, &ring(7), |_| {}))).await.status, 201);
    first.stop().await;
    service.stop().await;
    // The line is down, and the gateway began anew.
    let second = gateway(folder.path(), required).await;
    let z = sealed(2, 1000, LATER);
    assert_eq!(put(&second, &dest, &z, Some(&permit(&z, &origin, &ring(7), |_| {}))).await.status, 201);
    assert_eq!(put(&second, &dest, &z, Some(&permit(&z, &origin, &ring(8), |_| {}))).await.code(), "permit-invalid");
    let nobody = "http://127.0.0.1:9";
    let reply = put(&second, &format!("{nobody}/hoop/post"), &z, Some(&permit(&z, nobody, &ring(7), |_| {}))).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (503, "permit-unverifiable"));
    assert_eq!(reply.header("retry-after"), "30");
    let upload = sealed(3, 200_000, LATER);
    let range = ByteRange::new(0, border(1));
    let part = put_request(&dest, &upload, &format!("bytes 0-{}/{}", range.end - 1, upload.len())).header(
        "hoop-permit",
        URL_SAFE_NO_PAD.encode(permit(&upload, &origin, &ring(7), |permit| permit.max_bytes = range.end)),
    );
    let part = send(second.address, part, full(upload[..range.end as usize].to_vec())).await;
    assert_eq!(part.code(), "permit-invalid", "the whole counts, not the message");
    assert_eq!(head(second.address, id_of(&upload)).await.status, 404);
    second.stop().await;
}
