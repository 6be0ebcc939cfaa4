//! Rows and bodies that are broken hold up no others.

use crate::support::device::{Sealed, seal, ticket};
use crate::support::upstream::{Behaviour, Upstream, answer};
use crate::support::{PATIENCE, Sidecar, bytes};
use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The index of a service that is stopped.
fn index(dir: &Path) -> Connection {
    Connection::open(dir.join("index.sqlite")).unwrap()
}

fn id(sealed: &Sealed) -> [u8; 16] {
    sealed.prelude.key_id()[5..21].try_into().unwrap()
}

#[tokio::test]
async fn an_interrupted_upload_is_taken_up_despite_unreadable_rows() {
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::before(upstream.address).await;
    let mut uploads = Vec::new();
    for n in 0..3 {
        let sealed = seal(&ticket(&sidecar).await, &bytes(200_000, n));
        assert_eq!(sealed.put(sidecar.address, sealed.records(0, 2)).await.status, 202);
        uploads.push(sealed);
    }
    uploads.sort_by_key(|sealed| sealed.id.clone());
    let dir = sidecar.stop().await.unwrap();
    let (index, damaged) =
        (index(dir.path()), "UPDATE uploads SET state = ?1, reason_code = 'of tomorrow' WHERE id = ?2");
    index.execute(damaged, ("replaying", id(&uploads[0]))).unwrap();
    index.execute(damaged, ("received", id(&uploads[1]))).unwrap();
    let last = "UPDATE uploads SET state = 'committing' WHERE id = ?1";
    index.execute(last, [id(&uploads[2])]).unwrap();
    drop(index);
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |_| {}).await;
    let status = sidecar.reaches(&uploads[2].id, "unknown").await;
    assert_eq!(status["reason"]["code"], "answer-lost");
    let next = ticket(&sidecar).await;
    seal(&next, b"behind a row that cannot be claimed").post(&sidecar).await;
    sidecar.reaches(&next.id, "accepted").await;
    sidecar.stop().await;
}

/// The disk has lost some of it. Whoever still has it sends that again.
#[tokio::test]
async fn what_a_damaged_body_has_lost_is_missing_again_and_taken_again() {
    let busy = Upstream::new(|_, _| answer("503 Service Unavailable", "")).await;
    let sidecar = Sidecar::before(busy.address).await;
    let mut uploads = Vec::new();
    for n in 0..4 {
        let sealed = seal(&ticket(&sidecar).await, &bytes(300_000, n));
        sealed.is_taken_by(&sidecar).await;
        uploads.push(sealed);
    }
    let dir = sidecar.stop().await.unwrap();
    let paused = "UPDATE uploads SET paused = 1, next_attempt = NULL WHERE id = ?1";
    index(dir.path()).execute(paused, [id(&uploads[3])]).unwrap();
    let body = |n: usize| dir.path().join("bodies").join(&uploads[n].id);
    let record = |sealed: &Sealed, index| sealed.layout.record(index);
    let spoilt = record(&uploads[0], 4);
    let mut sealed = uploads[0].z.clone();
    sealed[spoilt.start as usize + 9] ^= 1;
    std::fs::write(body(0), &sealed).unwrap();
    for n in [1, 3] {
        let len = record(&uploads[n], 2).start + 77;
        std::fs::File::options().write(true).open(body(n)).unwrap().set_len(len).unwrap();
    }
    std::fs::remove_file(body(2)).unwrap();
    let upstream = Upstream::willing().await;
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |_| {}).await;
    let firsts =
        [spoilt.start, record(&uploads[1], 2).start, uploads[2].prelude.len() as u64, record(&uploads[3], 2).start];
    for (sealed, first) in uploads.iter().zip(firsts) {
        let status = sidecar.reaches(&sealed.id, "receiving").await;
        assert_eq!(status["missing"], format!("{first}-{}", sealed.z.len() - 1), "{status}");
    }
    assert!(upstream.whole().is_empty(), "nothing of a record that does not open was sent");
    index(dir.path()).execute("UPDATE uploads SET paused = 0", ()).unwrap();
    for sealed in &uploads {
        sealed.is_taken_by(&sidecar).await;
        sidecar.reaches(&sealed.id, "accepted").await;
    }
    sidecar.stop().await;
}

#[tokio::test]
async fn a_body_that_cannot_be_deleted_blocks_no_other() {
    let upstream = Upstream::new(|_, _| answer("201 Created", "")).await;
    let sidecar = Sidecar::before(upstream.address).await;
    let mut uploads = Vec::new();
    for n in 0..2 {
        let ticket = ticket(&sidecar).await;
        let sealed = seal(&ticket, &bytes(1_000, n));
        sealed.post(&sidecar).await;
        sidecar.reaches(&ticket.id, "accepted").await;
        uploads.push(sealed);
    }
    sidecar.forgets_bodies().await;
    uploads.sort_by_key(|sealed| sealed.id.clone());
    let dir = sidecar.stop().await.unwrap();
    index(dir.path()).execute("UPDATE uploads SET has_body = 1", ()).unwrap();
    let bodies = dir.path().join("bodies");
    std::fs::create_dir(bodies.join(&uploads[0].id)).unwrap();
    std::fs::write(bodies.join(&uploads[1].id), b"left over").unwrap();
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |_| {}).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while sidecar.bodies() != [uploads[0].id.clone()] {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", sidecar.bodies());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sidecar.stop().await;
}

#[tokio::test]
async fn a_body_without_an_upload_is_deleted_after_a_day_and_no_other() {
    let upstream = Upstream::new(|_, _| Behaviour::Deaf).await;
    let sidecar = Sidecar::before(upstream.address).await;
    let sealed = seal(&ticket(&sidecar).await, &bytes(200_000, 1));
    assert_eq!(sealed.put(sidecar.address, sealed.records(0, 1)).await.status, 202);
    let dir = sidecar.stop().await.unwrap();
    let bodies = dir.path().join("bodies");
    let (old, new) = ("0".repeat(32), "f".repeat(32));
    for name in [&old, &new, &sealed.id] {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(bodies.join(name)).unwrap();
        if name != &new {
            file.set_modified(SystemTime::now() - Duration::from_secs(25 * 3600)).unwrap();
        }
    }
    let sidecar = Sidecar::on(upstream.address, dir.path().to_owned(), |_| {}).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while bodies.join(&old).exists() {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(bodies.join(&new).exists() && bodies.join(&sealed.id).exists());
    assert_eq!(sealed.put(sidecar.address, sealed.records(1, 4)).await.status, 202);
    sidecar.stop().await;
}
