//! What is written at one end comes out at the other.

use crate::common::*;
use hoop_endpoint::{FlowError, FlowOptions, ended};
use rand_core::Rng as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

#[tokio::test]
async fn a_flow_carries_both_streams_and_ends_when_both_are_whole() {
    let world = World::new();
    world.connect("wifi");
    let (mut device, mut server) = world.flow(FlowOptions::default()).await;
    assert_eq!(server.service(), "test");
    assert_eq!(server.name(), device.name());
    device.write_all(b"hello").await.unwrap();
    let mut five = [0; 5];
    server.read_exact(&mut five).await.unwrap();
    assert_eq!(&five, b"hello");
    let down = tokio::spawn(async move {
        write_all(&mut server, 2, 3_000_000, 1).await;
        read_all(&mut server, 1, 0).await;
        server.finished().await.unwrap();
    });
    device.shutdown().await.unwrap();
    read_all(&mut device, 2, 3_000_000).await;
    device.finished().await.unwrap();
    down.await.unwrap();
    let mut status = device.status();
    let over = status.wait_for(|status| status.over.is_some()).await.unwrap().over;
    assert_eq!(over, Some(FlowError::Ended(ended::FINISHED)));
}

/// One life of a flow: both ends send all the time while carriers come and go.
async fn live(seed: u64, multipath: bool) {
    let seeded = Seeded(seed);
    let mut rng = rng(seed);
    let world = World::new();
    let options = FlowOptions { multipath, window: 10_000 + rng.next_u64() % 1_000_000, ..FlowOptions::default() };
    let (up, down) = (1 + rng.next_u64() % 8_000_000, 1 + rng.next_u64() % 8_000_000);
    let mut device = world.device.open("test", options).unwrap();
    let mut carriers = vec![world.connect("first")];
    let mut server = world.server.accept().await.unwrap();
    let work = async {
        let (mut device_read, mut device_write) = tokio::io::split(&mut device);
        let (mut server_read, mut server_write) = tokio::io::split(&mut server);
        tokio::join!(
            write_all(&mut device_write, 1, up, seed),
            write_all(&mut server_write, 2, down, seed),
            read_all(&mut server_read, 1, up),
            read_all(&mut device_read, 2, down),
        );
    };
    let mishaps = async {
        for _ in 0..40 {
            sleep(Duration::from_micros(rng.next_u64() % 10_000)).await;
            match rng.next_u32() % 4 {
                0 => carriers.push(world.connect(["wifi", "mobile"][rng.next_u32() as usize % 2])),
                1 if carriers.len() > 1 => carriers.swap_remove(rng.next_u32() as usize % carriers.len()).close(),
                2 => {
                    carriers.drain(..).for_each(|carrier| carrier.close());
                    sleep(Duration::from_micros(rng.next_u64() % 5_000)).await;
                    carriers.push(world.connect("after"));
                }
                _ => {}
            }
        }
    };
    let both = async { tokio::join!(work, mishaps) };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("it comes to its end");
    tokio::time::timeout(Duration::from_secs(60), device.finished()).await.expect("it is told").unwrap();
    drop(seeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_carriers_do_both_streams_come_whole_and_once() {
    let first = seed();
    for seed in first..first + number("HOOP_CUTS", 20) {
        live(seed, seed % 2 == 0).await;
    }
}

#[tokio::test]
async fn a_thousand_flows_share_one_carrier() {
    let world = World::new();
    world.connect("wifi");
    let mut flows = Vec::new();
    for of in 0..1_000 {
        let mut device = world.device.open("test", FlowOptions::default()).unwrap();
        flows.push(tokio::spawn(async move {
            let to = async { device.write_all(&bytes(of, 0, 5_000)).await.unwrap() };
            to.await;
            device.shutdown().await.unwrap();
            read_all(&mut device, of, 5_000).await;
        }));
    }
    let serve = async {
        for _ in 0..1_000 {
            let mut server = world.server.accept().await.unwrap();
            tokio::spawn(async move {
                let mut all = Vec::new();
                server.read_to_end(&mut all).await.unwrap();
                server.write_all(&all).await.unwrap();
                server.shutdown().await.unwrap();
            });
        }
    };
    serve.await;
    for flow in flows {
        flow.await.unwrap();
    }
    let none = async {
        while world.server.flows() > 0 || world.device.flows() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), none).await.expect("what has ended is forgotten");
}

#[tokio::test]
async fn with_multipath_all_carriers_carry_and_without_it_one_does() {
    for (multipath, carry) in [(true, 2), (false, 1)] {
        let world = World::new();
        world.connect("wifi");
        world.connect("mobile");
        let (mut device, mut server) = world.flow(FlowOptions { multipath, ..FlowOptions::default() }).await;
        let send = async {
            // More at once than one carrier takes.
            device.write_all(&bytes(1, 0, 5_000_000)).await.unwrap();
            device.shutdown().await.unwrap();
        };
        tokio::join!(send, read_all(&mut server, 1, 5_000_000));
        let sent = device.stats().networks.iter().filter(|(_, stats)| stats.sent > 0).count();
        assert_eq!(sent, carry, "{:?}", device.stats());
    }
}

/// What a slow peer does not want yet would lie in memory.
#[tokio::test]
async fn who_writes_what_is_wanted_holds_nothing_for_a_slow_peer() {
    const LEN: u64 = 300_000;
    let world = World::new();
    world.connect("wifi");
    let (mut device, server) = world.flow(FlowOptions { window: 8_000, ..FlowOptions::default() }).await;
    let (_reader, mut writer) = server.into_split();
    let writes = tokio::spawn(async move {
        let mut at = 0;
        while at < LEN {
            let wanted = writer.wanted().await.unwrap().min(LEN - at);
            writer.write_chunk(bytes(2, at, usize::try_from(wanted).unwrap()).into()).await.unwrap();
            at += wanted;
        }
        writer.shutdown().await.unwrap();
        writer
    });
    for at in (0..LEN).step_by(20_000) {
        let mut step = vec![0; 20_000];
        device.read_exact(&mut step).await.unwrap();
        assert!(step == bytes(2, at, step.len()));
        let nothing_is_held = async {
            while world.server.bytes() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), nothing_is_held).await.expect("all that is written is there");
    }
    assert_eq!(device.read(&mut [0]).await.unwrap(), 0);
    let mut writer = writes.await.unwrap();
    assert!(writer.wanted().await.is_err(), "that was all");
}
