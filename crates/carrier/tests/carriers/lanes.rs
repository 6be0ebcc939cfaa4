//! What a carrier promises, of each kind.

use crate::common::{drain, lane, pairs, pour, soon};
use bytes::Bytes;
use hoop_carrier::{Carrier, Kind, LANES_MAX, Lane};
use std::io::ErrorKind;
use tokio::sync::mpsc;

const LANES: u8 = 4;
const TOTAL: usize = 20_000_000;

#[tokio::test]
async fn both_ends_have_one_binding_and_no_other_carrier_has_it() {
    let mut seen = Vec::new();
    for (name, device, server) in pairs().await.into_iter().chain(pairs().await) {
        assert_eq!(device.binding(), server.binding(), "{name}");
        assert_eq!(device.kind(), server.kind());
        if name != "memory" {
            assert!(!seen.contains(&device.binding()), "{name}");
            seen.push(device.binding());
        }
    }
}

/// All of a lane's bytes, both ways at once.
async fn both_ways(ours: Lane, theirs: Lane, seed: u8) {
    let there = (pour(ours.sender, seed, TOTAL), drain(theirs.receiver, seed, TOTAL));
    let back = (pour(theirs.sender, !seed, TOTAL), drain(ours.receiver, !seed, TOTAL));
    tokio::join!(there.0, there.1, back.0, back.1);
}

#[tokio::test]
async fn four_lanes_carry_twenty_megabytes_each_way_at_once_in_order() {
    for (name, device, server) in pairs().await {
        let mut lanes = Vec::new();
        for seed in 0..LANES {
            let (ours, theirs) = soon(lane(&*device, &*server)).await;
            lanes.push(tokio::spawn(both_ways(ours, theirs, seed)));
        }
        for lane in lanes {
            soon(lane).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[tokio::test]
async fn a_finished_direction_ends_after_its_last_byte_and_the_other_goes_on() {
    for (name, device, server) in pairs().await {
        let (mut ours, mut theirs) = soon(lane(&*device, &*server)).await;
        soon(async {
            ours.sender.send(&mut [Bytes::from_static(b"last")]).await.expect("it is taken");
            ours.sender.finish().await.expect("it is finished");
            drop(ours.sender);
            assert_eq!(theirs.receiver.receive(9).await.expect("it comes").as_deref(), Some(&b"last"[..]), "{name}");
            assert_eq!(theirs.receiver.receive(9).await.expect("it comes"), None, "{name}");
            theirs.sender.send(&mut [Bytes::from_static(b"back")]).await.expect("it is taken");
            assert_eq!(ours.receiver.receive(2).await.expect("it comes").as_deref(), Some(&b"ba"[..]), "{name}");
            assert_eq!(ours.receiver.receive(9).await.expect("it comes").as_deref(), Some(&b"ck"[..]), "{name}");
        })
        .await;
    }
}

#[tokio::test]
async fn an_unfinished_direction_is_an_error_to_its_reader_and_no_end() {
    for (name, device, server) in pairs().await {
        let (ours, mut theirs) = soon(lane(&*device, &*server)).await;
        let (mut other, mut other_end) = soon(lane(&*device, &*server)).await;
        drop(ours.sender);
        let error = soon(theirs.receiver.receive(9)).await.expect_err("it was broken off");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{name}");
        soon(async {
            other.sender.send(&mut [Bytes::from_static(b"unharmed")]).await.expect("it is taken");
            assert_eq!(other_end.receiver.receive(9).await.expect("it comes").as_deref(), Some(&b"unharmed"[..]));
        })
        .await;
    }
}

#[tokio::test]
async fn a_sender_whose_reader_is_gone_is_told() {
    for (name, device, server) in pairs().await {
        let (ours, mut theirs) = soon(lane(&*device, &*server)).await;
        drop(ours.receiver);
        let error = soon(async {
            loop {
                if let Err(error) = theirs.sender.send(&mut [Bytes::from_static(&[0; 60_000])]).await {
                    return error;
                }
            }
        });
        let kind = error.await.kind();
        assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{name}: {kind}");
    }
}

#[tokio::test]
async fn a_reader_that_sleeps_stops_its_sender_and_no_other_lane() {
    for (name, device, server) in pairs().await {
        let (mut ours, theirs) = soon(lane(&*device, &*server)).await;
        let sleeping = tokio::spawn(async move {
            let mut taken = 0_usize;
            while ours.sender.send(&mut [Bytes::from_static(&[0; 60_000])]).await.is_ok() {
                taken += 60_000;
                assert!(taken < 64 << 20, "what nobody reads is taken for ever");
            }
        });
        let (other, other_end) = soon(lane(&*device, &*server)).await;
        let there = (pour(other.sender, 3, TOTAL), drain(other_end.receiver, 3, TOTAL));
        soon(async { tokio::join!(there.0, there.1) }).await;
        // Over a WebSocket it holds up the others for a while, and then is broken off for their sake.
        assert_eq!(sleeping.is_finished(), device.kind() == Kind::WebSocket, "{name}: the sender was not stopped");
        drop(theirs);
        soon(sleeping).await.expect("it ends once nobody reads");
    }
}

#[tokio::test]
async fn a_carrier_that_one_end_closes_is_gone_at_both_with_all_its_lanes() {
    for (name, device, server) in pairs().await {
        let (mut ours, mut theirs) = soon(lane(&*device, &*server)).await;
        server.close();
        soon(device.closed()).await;
        soon(server.closed()).await;
        assert!(soon(theirs.receiver.receive(9)).await.is_err(), "{name}");
        assert!(soon(ours.receiver.receive(9)).await.is_err(), "{name}");
        assert!(soon(device.open()).await.is_err(), "{name}");
        assert!(soon(server.accept()).await.is_err(), "{name}");
        assert!(soon(ours.sender.send(&mut [Bytes::from_static(b"late")])).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn dropping_a_wait_for_bytes_or_lanes_loses_none() {
    for (name, device, server) in pairs().await {
        let (mut ours, mut theirs) = soon(lane(&*device, &*server)).await;
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = theirs.receiver.receive(9) => panic!("{name}: nothing was sent"),
                _ = server.accept() => panic!("{name}: no lane was opened"),
                () = tokio::task::yield_now() => {}
            }
        }
        soon(async {
            ours.sender.send(&mut [Bytes::from_static(b"here")]).await.expect("it is taken");
            assert_eq!(theirs.receiver.receive(9).await.expect("it comes").as_deref(), Some(&b"here"[..]), "{name}");
            lane(&*device, &*server).await;
        })
        .await;
    }
}

#[tokio::test]
async fn the_round_trip_time_of_loopback_is_known_and_short() {
    for (name, device, server) in pairs().await {
        let (ours, theirs) = soon(lane(&*device, &*server)).await;
        for carrier in [&*device as &dyn Carrier, &*server] {
            let rtt = carrier.rtt();
            assert!(name == "memory" || rtt.is_some_and(|rtt| rtt.as_secs() < 1), "{name}: {rtt:?}");
        }
        drop((ours, theirs));
    }
}

/// Lanes that all want to send, and how much of them is read in all.
const MANY: usize = 32;
const READ: usize = MANY * 20 * 64 * 1024;

/// Sends without end on lanes of the server's, reads them at the device until so much has come, and says what came of each.
async fn share(device: &dyn Carrier, server: &dyn Carrier) -> Vec<usize> {
    let (came, mut coming) = mpsc::channel(1);
    for number in 0..MANY {
        let (Lane { mut receiver, sender: ours }, Lane { mut sender, receiver: theirs }) = lane(device, server).await;
        tokio::spawn(async move {
            while sender.send(&mut [Bytes::from_static(&[0; 64 * 1024])]).await.is_ok() {}
            drop(theirs);
        });
        let came = came.clone();
        tokio::spawn(async move {
            while let Ok(Some(bytes)) = receiver.receive(64 * 1024).await {
                if came.send((number, bytes.len())).await.is_err() {
                    break;
                }
            }
            drop(ours);
        });
    }
    let mut read = vec![0; MANY];
    while read.iter().sum::<usize>() < READ {
        let (number, len) = coming.recv().await.expect("they send without end");
        read[number] += len;
    }
    read
}

#[tokio::test]
async fn quic_lanes_that_send_to_a_slow_reader_have_about_the_same() {
    for (name, device, server) in pairs().await {
        if device.kind() != Kind::Quic {
            continue;
        }
        let read = soon(share(&*device, &*server)).await;
        let (least, most) = (read.iter().min().expect("lanes"), read.iter().max().expect("lanes"));
        assert!(least * 2 > *most, "{name}: {read:?}");
    }
}

#[tokio::test]
async fn a_device_has_as_many_lanes_at_once_on_either_kind_as_it_may_have_flows() {
    for (name, device, server) in pairs().await {
        if device.kind() == Kind::Memory {
            continue;
        }
        let mut lanes = Vec::new();
        for _ in 0..LANES_MAX {
            lanes.push(soon(lane(&*device, &*server)).await);
        }
        tokio::select! {
            biased;
            _ = device.open() => panic!("{name}: one more was allowed"),
            () = tokio::task::yield_now() => {}
        }
    }
}
