//! The relay: streams arrive whole and in order, share the link, end as they ended.

use hoop_lab::{Change, LinkConfig, Loss, Probability, QueueLimit, Relay, RelayConfig, RelayError};
use hoop_units::{Bitrate, Duration};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn streams_arrive_whole_over_a_thin_link() {
    let relay = echo_relay(LinkConfig::new().rate(Bitrate::mbps(20)).delay(Duration::from_millis(2))).await;
    let clients = (0..4u8).map(|id| async move {
        let mut client = TcpStream::connect(relay).await.unwrap();
        let sent: Vec<u8> = (0..100_000u32).map(|n| n.wrapping_mul(n) as u8 ^ id).collect();
        let (mut from, mut to) = client.split();
        let mut received = Vec::new();
        let send = async {
            to.write_all(&sent).await.unwrap();
            // The half that is closed closes at the target; the answer still comes.
            to.shutdown().await.unwrap();
        };
        let (_, result) = tokio::join!(send, from.read_to_end(&mut received));
        result.unwrap();
        assert!(received == sent, "client {id}");
    });
    let mut tasks = tokio::task::JoinSet::new();
    clients.for_each(|client| drop(tasks.spawn(client)));
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn a_full_link_pushes_back_without_loss_and_a_stalled_one_is_bounded() {
    // Rate zero: nothing ever passes. What the relay takes is its window; the rest stays with the sender.
    let relay = echo_relay(LinkConfig::new().rate(Bitrate::bps(0)).queue(QueueLimit::bytes(4_096))).await;
    let client = TcpStream::connect(relay).await.unwrap();
    let chunk = vec![0; 1 << 16];
    let mut taken = 0;
    loop {
        let write = async {
            client.writable().await.unwrap();
            client.try_write(&chunk)
        };
        match tokio::time::timeout(Duration::from_secs(1), write).await {
            Ok(Ok(length)) => taken += length,
            Ok(Err(error)) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            Err(_) => break,
        }
        assert!(taken < 64 << 20, "nothing holds the sender back");
    }
}

#[tokio::test]
async fn a_target_that_is_gone_closes_the_connection() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let relay = start(gone, LinkConfig::new()).await;
    let mut client = TcpStream::connect(relay).await.unwrap();
    let ended = client.read(&mut [0; 8]).await;
    assert!(matches!(ended, Ok(0) | Err(_)));
}

#[tokio::test]
async fn a_link_that_loses_is_refused() {
    let second = Duration::from_secs(1);
    for (link, what) in [
        (LinkConfig::new().loss(Loss::Independent(Probability::percent(1))), "loss"),
        (LinkConfig::new().at(second, Change::new().connected(false)), "a time without connection"),
        (LinkConfig::new().reorder(true), "reordering"),
    ] {
        let config = RelayConfig { listen: any(), to: any(), up: LinkConfig::new(), down: link };
        match Relay::bind(config).await {
            Err(RelayError::Unreliable(why)) => assert_eq!(why, what),
            other => panic!("{other:?}"),
        }
    }
}

/// A relay to a server that sends back what it gets.
async fn echo_relay(link: LinkConfig) -> SocketAddr {
    let listener = TcpListener::bind(any()).await.unwrap();
    let target = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await.unwrap();
                to.shutdown().await.unwrap();
            });
        }
    });
    start(target, link).await
}

async fn start(to: SocketAddr, link: LinkConfig) -> SocketAddr {
    let relay = Relay::bind(RelayConfig { listen: any(), to, up: link.clone(), down: link }).await.unwrap();
    let address = relay.local_address();
    tokio::spawn(relay.run(std::future::pending()));
    address
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
