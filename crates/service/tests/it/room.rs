//! Who may take how much of the disk, and for how long.

use crate::support::device::{Ticket, ask, begin, seal, ticket_from};
use crate::support::upstream::{Upstream, answer};
use crate::support::{PATIENCE, Sidecar, bytes, device, wire};
use hoop_http::Clock;
use hoop_service::{Config, Routes};
use serde_json::json;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// What each upload of the attack says that it will have: more than was promised to it at once.
const CLAIMED: u64 = 20 << 20;

fn behind_a_proxy(config: &mut Config) {
    config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
}

/// The sealed upload of somebody at that address, as far as it is taken.
async fn posted(sidecar: &Sidecar, address: &str, len: usize) -> (Ticket, wire::Reply) {
    let ticket = ticket_from(sidecar.address, address).await;
    let sealed = device::seal(&ticket, &bytes(len, 7));
    let reply = sidecar.send("POST", "/hoop/post", &[("X-Forwarded-For", address)], &sealed.z).await;
    (ticket, reply)
}

#[tokio::test]
async fn thousands_of_abandoned_uploads_do_not_take_the_disk() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        behind_a_proxy(config);
        config.max_stored_bytes = 32 << 30;
    });
    let sidecar = sidecar.await;
    let at = sidecar.address;
    let mut attackers = JoinSet::new();
    for n in 1..=9 {
        attackers.spawn(async move {
            let address = format!("203.0.113.{n}");
            let mut begun = 0;
            for _ in 0..15 {
                for ticket in device::tickets_from(at, &address, 16).await {
                    begun += u32::from(begin(at, &ticket, &address, CLAIMED).await.status == 202);
                }
            }
            begun
        });
    }
    let begun: u32 = attackers.join_all().await.into_iter().sum();
    assert!(begun >= 2_000, "{begun} were begun");
    let (ticket, reply) = posted(&sidecar, "198.51.100.7", 20 << 20).await;
    reply.is_taken();
    sidecar.reaches(&ticket.id, "accepted").await;
}

/// A payer has room for 1,024 uploads that have begun at once, and all payers for 65,536.
#[tokio::test]
async fn an_upload_with_less_than_a_record_takes_no_place_among_begun_ones() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        behind_a_proxy(config);
        config.tickets_per_minute = 20_000;
    });
    let sidecar = sidecar.await;
    let (at, address) = (sidecar.address, "203.0.113.1");
    let mut senders = JoinSet::new();
    for _ in 0..8 {
        senders.spawn(async move {
            for _ in 0..9 {
                for ticket in device::tickets_from(at, address, 16).await {
                    let reply = begin(at, &ticket, address, CLAIMED).await;
                    assert_eq!(reply.status, 202, "{reply:?}");
                }
            }
        });
    }
    senders.join_all().await;
}

#[tokio::test]
async fn one_address_fills_its_share_and_another_has_room() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        behind_a_proxy(config);
        config.address_quota_bytes = Some(5 << 19);
    });
    let sidecar = sidecar.await;
    // An IPv6 household is one address.
    let mut replies = Vec::new();
    for address in ["2001:db8::1", "2001:db8::2"] {
        let ticket = ticket_from(sidecar.address, address).await;
        let sealed = seal(&ticket, &bytes(CLAIMED as usize, 3));
        // Without its first record nothing of it leaves again.
        let range = sealed.records(1, 17);
        let fields = [
            ("Content-Range", format!("bytes {range}/{}", sealed.z.len())),
            ("Hoop-Prelude", sealed.prelude.to_header()),
            ("X-Forwarded-For", address.to_owned()),
        ];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        let body = &sealed.z[range.start as usize..range.end as usize];
        replies.push(sidecar.send("PUT", &format!("/hoop/post/{}", sealed.id), &fields, body).await);
    }
    // One MiB has come, and as much again is promised.
    let full = replies.pop().unwrap();
    assert_eq!(replies[0].status, 202, "{replies:?}");
    assert_eq!((full.problem(), full.field("retry-after")), ((507, "spool-full".into()), Some("60")));
    assert!(full.json()["detail"].as_str().unwrap().contains("the share of one address"), "{full:?}");
    let (ticket, reply) = posted(&sidecar, "2001:db8:0:1::1", 2 << 20).await;
    reply.is_taken();
    sidecar.reaches(&ticket.id, "accepted").await;
}

#[tokio::test]
async fn an_unused_promise_evicts_nothing_and_takes_no_room() {
    let upstream = Upstream::new(|_, _| answer("403 Forbidden", "no")).await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        behind_a_proxy(config);
        config.max_stored_bytes = 9 << 20;
        config.address_quota_bytes = Some(9 << 20);
    });
    let sidecar = sidecar.await;
    let (kept, _) = posted(&sidecar, "198.51.100.7", 4 << 20).await;
    sidecar.reaches(&kept.id, "rejected").await;
    for n in 0..40 {
        let address = format!("203.0.113.{n}");
        let ticket = ticket_from(sidecar.address, &address).await;
        for _ in 0..2 {
            assert_eq!(begin(sidecar.address, &ticket, &address, CLAIMED).await.status, 202);
        }
    }
    let mut silent = Vec::new();
    for n in 0..8 {
        let ticket = ticket_from(sidecar.address, &format!("203.0.113.{n}")).await;
        let sealed = seal(&ticket, &bytes(2 << 20, n));
        let request = sealed.put_request(sealed.records(0, 32));
        let mut stream = TcpStream::connect(sidecar.address).await.unwrap();
        stream.write_all(&request[..request.len() - (2 << 20)]).await.unwrap();
        silent.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(sidecar.bodies().contains(&kept.id), "nobody needed its room");
    drop(silent);
    let (_, reply) = posted(&sidecar, "198.51.100.8", 6 << 20).await;
    reply.is_taken();
    assert!(!sidecar.bodies().contains(&kept.id), "it made way for what came");
}

#[tokio::test]
async fn rejected_uploads_that_are_kept_make_way_all_at_once() {
    let upstream = Upstream::new(|_, _| answer("403 Forbidden", "no")).await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        behind_a_proxy(config);
        config.max_stored_bytes = 9 << 20;
        config.address_quota_bytes = Some(9 << 20);
    });
    let sidecar = sidecar.await;
    let mut kept = Vec::new();
    for _ in 0..40 {
        let (ticket, _) = posted(&sidecar, "198.51.100.7", 200_000).await;
        sidecar.reaches(&ticket.id, "rejected").await;
        kept.push(ticket.id);
    }
    let (large, reply) = posted(&sidecar, "198.51.100.8", 6 << 20).await;
    reply.is_taken();
    sidecar.reaches(&large.id, "rejected").await;
    let left = kept.iter().filter(|id| sidecar.bodies().contains(id)).count();
    assert!((1..30).contains(&left), "as many as were needed, and not {left} of 40 are left");
    for id in &kept {
        assert_eq!(sidecar.status(id).await["state"], "rejected", "what it came to is known all the same");
    }
}

#[tokio::test]
async fn a_user_whom_the_application_names_pays_wherever_the_upload_comes_from() {
    let upstream = Upstream::new(|_, arrival| match arrival.fields("cookie").first() {
        Some(&"session=alice") if arrival.line().starts_with("GET /me ") => answer("200 OK", r#"{"id":"alice"}"#),
        Some(&"session=bob") if arrival.line().starts_with("GET /me ") => answer("200 OK", r#"{"id":"bob"}"#),
        _ => answer("201 Created", ""),
    });
    let upstream = upstream.await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        behind_a_proxy(config);
        config.routes = Routes::parse("[user]\npath = \"/me\"\njson = \"/id\"").unwrap();
        config.owner_quota_bytes = Some(3 << 20);
    });
    let sidecar = sidecar.await;
    let sealed = async |cookie: &str| {
        let reply = ask(sidecar.address, cookie, &json!({})).await.json();
        seal(&Ticket::parse(&reply["tickets"][0]), &bytes(4 << 20, 9))
    };
    let [first, second, bobs] =
        [sealed("session=alice").await, sealed("session=alice").await, sealed("session=bob").await];
    assert_eq!(first.put(sidecar.address, first.records(0, 20)).await.status, 202);
    // What has come of the second is of nobody known, until record 0 says that it is Alice's.
    assert_eq!(second.put(sidecar.address, second.records(5, 15)).await.status, 202);
    let full = second.put(sidecar.address, second.records(0, 5)).await;
    assert_eq!(full.problem(), (507, "spool-full".into()));
    assert!(full.json()["detail"].as_str().unwrap().contains("this user's share"), "{full:?}");
    let missing = sidecar.status(&second.id).await["missing"].as_str().unwrap().to_owned();
    assert!(missing.starts_with(&second.layout.record(0).start.to_string()), "what came before stays: {missing}");
    assert_eq!(bobs.put(sidecar.address, bobs.records(0, 20)).await.status, 202);
    // Once the first has ended there is room for the second; nothing was lost.
    let stop = [("Hoop-Version", "1"), ("Cookie", "session=alice"), ("Content-Type", "application/json")];
    let stopped = sidecar.send("POST", &format!("/hoop/uploads/{}", first.id), &stop, br#"{"action":"stop"}"#).await;
    assert_eq!(stopped.status, 200, "{stopped:?}");
    assert_eq!(second.put(sidecar.address, second.records(0, 5)).await.status, 202);
}

#[tokio::test]
async fn a_user_the_application_names_has_room_at_an_address_a_guest_has_filled() {
    let upstream = Upstream::new(|_, arrival| match arrival.fields("cookie").first() {
        Some(&"session=alice") if arrival.line().starts_with("GET /me ") => answer("200 OK", r#"{"id":"alice"}"#),
        _ => answer("201 Created", ""),
    });
    let upstream = upstream.await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        config.routes = Routes::parse("[user]\npath = \"/me\"\njson = \"/id\"").unwrap();
        config.address_quota_bytes = Some(5 << 19);
    });
    let sidecar = sidecar.await;
    let guests = seal(&device::ticket(&sidecar).await, &bytes(CLAIMED as usize, 3));
    assert_eq!(guests.put(sidecar.address, guests.records(1, 17)).await.status, 202);
    let others = seal(&device::ticket(&sidecar).await, &bytes(2 << 20, 4));
    assert_eq!(others.put(sidecar.address, others.records(0, 8)).await.problem(), (507, "spool-full".into()));
    assert_eq!(sidecar.bodies(), [guests.id.as_str()], "nothing of it is written");
    for whole in [false, true] {
        let reply = ask(sidecar.address, "session=alice", &json!({})).await.json();
        let alices = seal(&Ticket::parse(&reply["tickets"][0]), &bytes(2 << 20, 9));
        let reply = match whole {
            true => alices.post(&sidecar).await,
            false => alices.put(sidecar.address, alices.records(0, 8)).await,
        };
        reply.is_taken();
        let rest = alices.put(sidecar.address, alices.records(8, alices.layout.records())).await;
        rest.is_taken();
        sidecar.reaches(&alices.id, "accepted").await;
    }
}

/// Its body would stay on disk, deleted and open, and count for nobody.
#[tokio::test]
async fn a_message_ends_once_another_has_brought_all_of_its_upload() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.body_timeout = Duration::from_secs(3600)).await;
    let sealed = seal(&device::ticket(&sidecar).await, &bytes(2 << 20, 5));
    let request = sealed.put_request(sealed.records(0, sealed.layout.records()));
    let mut slow = TcpStream::connect(sidecar.address).await.unwrap();
    slow.write_all(&request[..request.len() / 2]).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while sidecar.bodies().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "nothing of it is written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sealed.is_taken_by(&sidecar).await;
    sidecar.reaches(&sealed.id, "accepted").await;
    let mut answer = [0; 12];
    tokio::time::timeout(PATIENCE, slow.read_exact(&mut answer)).await.expect("it ends").unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 20"), "{answer:?}");
}

#[tokio::test]
async fn an_upload_without_record_0_is_forgotten_after_an_hour() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let tickets = [device::ticket(&sidecar).await, device::ticket(&sidecar).await, device::ticket(&sidecar).await];
    let [headless, begun, paused] = [0, 1, 2].map(|n| seal(&tickets[n], &bytes(200_000, n as u64)));
    assert_eq!(headless.put(sidecar.address, headless.records(1, 3)).await.status, 202);
    assert_eq!(paused.put(sidecar.address, paused.records(1, 3)).await.status, 202);
    let token = ("Hoop-Token", tickets[2].token.as_str());
    let fields = [("Hoop-Version", "1"), token, ("Content-Type", "application/json")];
    let pause = sidecar.send("POST", &format!("/hoop/uploads/{}", paused.id), &fields, br#"{"action":"pause"}"#).await;
    assert_eq!(pause.status, 200, "{pause:?}");
    assert_eq!(begun.put(sidecar.address, begun.records(0, 2)).await.status, 202);
    let dir = sidecar.stop().await.unwrap();
    let ahead = |secs| Clock::with_wall(move || SystemTime::now() + Duration::from_secs(secs));
    // What is cleared away is cleared away at the start, too.
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |config| config.clock = ahead(3_500)).await;
    assert_eq!(headless.put(sidecar.address, headless.records(2, 3)).await.status, 202);
    assert_eq!(sidecar.bodies().len(), 3);
    sidecar.stop().await;
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |config| config.clock = ahead(3_700)).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while sidecar.bodies() != [begun.id.as_str()] {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", sidecar.bodies());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(sidecar.send("HEAD", &format!("/hoop/post/{}", headless.id), &[], b"").await.status, 404);
    for sealed in [&headless, &begun] {
        sealed.is_taken_by(&sidecar).await;
        sidecar.reaches(&sealed.id, "accepted").await;
    }
    assert_eq!(paused.post(&sidecar).await.problem().1, "upload-paused", "as its owner said");
}

/// A pause without its mark would keep one until its ticket's end.
#[tokio::test]
async fn an_upload_without_record_0_is_forgotten_though_its_resumer_hung_up() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.tickets_per_minute = 10_000).await;
    for n in 0..300 {
        let ticket = device::ticket(&sidecar).await;
        let sealed = seal(&ticket, &bytes(200_000, n));
        assert_eq!(sealed.put(sidecar.address, sealed.records(1, 3)).await.status, 202);
        let path = format!("/hoop/uploads/{}", sealed.id);
        let fields = [("Hoop-Version", "1"), ("Hoop-Token", &ticket.token), ("Content-Type", "application/json")];
        assert_eq!(sidecar.send("POST", &path, &fields, br#"{"action":"pause"}"#).await.status, 200);
        let mut resume = TcpStream::connect(sidecar.address).await.unwrap();
        resume.write_all(&wire::request("POST", &path, &fields, br#"{"action":"resume"}"#)).await.unwrap();
        for _ in 0..n {
            tokio::task::yield_now().await;
        }
        drop(resume);
    }
    let dir = sidecar.stop().await.unwrap();
    let ahead = Clock::with_wall(move || SystemTime::now() + Duration::from_secs(3_700));
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |config| config.clock = ahead).await;
    sidecar.forgets_bodies().await;
}

#[tokio::test]
async fn an_addresss_ended_uploads_make_room_for_its_own_and_stay_known() {
    let body = "a".repeat(16 << 10);
    let upstream = Upstream::new(move |_, _| answer("201 Created", &body)).await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        behind_a_proxy(config);
        (config.max_ended_bytes, config.tickets_per_minute) = (2 << 20, 10_000);
    });
    let sidecar = sidecar.await;
    let (others, _) = posted(&sidecar, "198.51.100.7", 100).await;
    sidecar.reaches(&others.id, "accepted").await;
    let attacker = "203.0.113.9";
    let mut posts = Vec::new();
    for _ in 0..20 {
        for ticket in device::tickets_from(sidecar.address, attacker, 16).await {
            let sealed = seal(&ticket, b"small");
            sealed.is_taken_by(&sidecar).await;
            posts.push((ticket, sealed));
        }
    }
    for (ticket, _) in &posts {
        sidecar.reaches(&ticket.id, "accepted").await;
    }
    let sent = upstream.arrivals().len();
    assert_eq!(sent, posts.len() + 1);
    // 320 answers of 17 KB have come, and the share of an address is 128 KiB.
    let (first, sealed) = &posts[0];
    let status = sidecar.status(&first.id).await;
    let told = [&status["state"], &status["shortened"], &status["answer"], &status["receipt_v2"], &status["reason"]];
    assert_eq!(told, [&json!("accepted"), &json!(true), &json!(null), &json!(null), &json!(null)]);
    let receipt = sidecar.send("GET", &format!("/hoop/uploads/{}?receipt", first.id), &[], b"").await;
    assert_eq!(receipt.problem(), (404, "not-found".into()));
    assert!(receipt.json()["detail"].as_str().unwrap().contains("was let go"), "{receipt:?}");
    // It is known for good all the same: neither it nor another one with its ticket goes to the application.
    assert_eq!(sealed.post(&sidecar).await.field("hoop-state"), Some("accepted"));
    let other = device::seal_with_salt(first, &device::plaintext(first, "POST /upload", "", b"other"), [9; 16]);
    assert_eq!(other.post(&sidecar).await.problem(), (409, "upload-conflict".into()));
    assert_eq!(upstream.arrivals().len(), sent);
    // As many of that address have their answers as there is room for, and whoever is elsewhere has.
    let mut whole = 0;
    for (ticket, _) in &posts {
        whole += usize::from(sidecar.status(&ticket.id).await["shortened"] == false);
    }
    assert!((1..8).contains(&whole), "{whole}");
    let status = sidecar.status(&others.id).await;
    assert_eq!(status["shortened"], false);
    assert!(device::open_answer(&others, &status).ends_with("aaa"));
}

#[tokio::test]
async fn the_reserve_of_the_disk_is_left_alone() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.reserve_bytes = 1 << 60).await;
    let ticket = device::ticket(&sidecar).await;
    let full = seal(&ticket, b"no room").post(&sidecar).await;
    assert_eq!(full.problem(), (507, "spool-full".into()));
    assert!(full.json()["detail"].as_str().unwrap().contains("the disk is nearly full"), "{full:?}");
    assert!(sidecar.bodies().is_empty());
}

#[tokio::test]
async fn an_address_gets_so_many_tickets_a_minute_and_another_its_own() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| {
        behind_a_proxy(config);
        config.tickets_per_minute = 20;
    });
    let sidecar = sidecar.await;
    // Anybody can make cookies up.
    let asks = async |address: &str, cookie: &str, count: u8| {
        let fields = [
            ("Hoop-Version", "1"),
            ("Content-Type", "application/json"),
            ("X-Forwarded-For", address),
            ("Cookie", cookie),
        ];
        sidecar.send("POST", "/hoop/tickets", &fields, json!({"count": count}).to_string().as_bytes()).await
    };
    assert_eq!(asks("203.0.113.9", "session=1", 16).await.status, 200);
    let refused = asks("203.0.113.9", "session=2", 16).await;
    assert_eq!(refused.problem(), (429, "too-many-requests".into()));
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=36).contains(&wait), "{wait}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("this address"), "{refused:?}");
    assert_eq!(asks("198.51.100.7", "session=1", 16).await.status, 200);
}

/// Each change is synced, and anybody can make cookies up.
#[tokio::test]
async fn an_address_changes_so_much_a_minute_and_another_as_well() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, behind_a_proxy).await;
    let saves = async |address: &str, n: usize| {
        let cookie = format!("session={n}");
        let fields = [
            ("Hoop-Version", "1"),
            ("Content-Type", "application/json"),
            ("X-Forwarded-For", address),
            ("Cookie", &cookie),
        ];
        sidecar.send("PUT", "/hoop/settings", &fields, b"{\"policy\":\"never\"}").await
    };
    let mut refused = None;
    for n in 0..2_000 {
        let answer = saves("203.0.113.9", n).await;
        if answer.status != 200 {
            refused = Some((n, answer));
            break;
        }
    }
    let (n, refused) = refused.expect("an end of changes");
    assert!(n >= 600, "a minute's worth at once, and not {n}");
    assert_eq!(refused.problem(), (429, "too-many-requests".into()));
    assert!(refused.json()["detail"].as_str().unwrap().contains("this address has changed"), "{refused:?}");
    assert_eq!(saves("198.51.100.7", 1).await.status, 200);
}

#[tokio::test]
async fn settings_and_notes_leave_the_reserve_of_the_disk_alone_too() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::with(upstream.address, |config| config.reserve_bytes = 1 << 60).await;
    let fields = [("Hoop-Version", "1"), ("Content-Type", "application/json"), ("Cookie", "session=made-up")];
    let full = sidecar.send("PUT", "/hoop/settings", &fields, b"{\"policy\":\"never\"}").await;
    assert_eq!(full.problem(), (507, "spool-full".into()));
}
