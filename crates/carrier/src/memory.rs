//! A carrier within one process: [`memory_pair`].

use crate::{Carrier, Kind, Lane, LaneReceiver, LaneSender, Pending};
use bytes::{Bytes, BytesMut};
use hoop_flow::Binding;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{Mutex, mpsc, watch};

/// What a lane holds before whoever sends waits.
const LANE_BYTES: usize = 256 * 1024;

/// Lanes that wait to be accepted.
const WAITING_LANES: usize = 64;

/// One end of a carrier within a process.
#[derive(Debug)]
pub struct MemoryCarrier {
    binding: Binding,
    offered: mpsc::Sender<Lane>,
    waiting: Mutex<mpsc::Receiver<Lane>>,
    gone: Arc<watch::Sender<bool>>,
}

/// The device's end and the server's end of a carrier that is bound to these octets.
pub fn memory_pair(binding: Binding) -> (MemoryCarrier, MemoryCarrier) {
    let (gone, _) = watch::channel(false);
    let gone = Arc::new(gone);
    let (to_server, at_server) = mpsc::channel(WAITING_LANES);
    let (to_device, at_device) = mpsc::channel(WAITING_LANES);
    let end = |offered, waiting| MemoryCarrier { binding, offered, waiting: Mutex::new(waiting), gone: gone.clone() };
    (end(to_server, at_device), end(to_device, at_server))
}

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the carrier is gone")
}

impl MemoryCarrier {
    fn lane(&self, stream: DuplexStream) -> Lane {
        let (read, write) = split(stream);
        let sender = MemorySender { write, gone: self.gone.subscribe() };
        let receiver = MemoryReceiver { read, gone: self.gone.subscribe() };
        Lane { sender: Box::new(sender), receiver: Box::new(receiver) }
    }
}

impl Carrier for MemoryCarrier {
    fn kind(&self) -> Kind {
        Kind::Memory
    }

    fn binding(&self) -> Binding {
        self.binding
    }

    fn open(&self) -> Pending<'_, io::Result<Lane>> {
        Box::pin(async {
            if *self.gone.borrow() {
                return Err(lost());
            }
            let (ours, theirs) = duplex(LANE_BYTES);
            self.offered.send(self.lane(theirs)).await.map_err(|_| lost())?;
            Ok(self.lane(ours))
        })
    }

    fn accept(&self) -> Pending<'_, io::Result<Lane>> {
        Box::pin(async {
            let mut waiting = self.waiting.lock().await;
            tokio::select! {
                biased;
                _ = self.closed() => Err(lost()),
                lane = waiting.recv() => lane.ok_or_else(lost),
            }
        })
    }

    fn rtt(&self) -> Option<Duration> {
        None
    }

    fn closed(&self) -> Pending<'_, io::Error> {
        let mut gone = self.gone.subscribe();
        Box::pin(async move {
            let _ = gone.wait_for(|gone| *gone).await;
            lost()
        })
    }

    fn close(&self) {
        self.gone.send_replace(true);
    }
}

/// Runs until it is done or the carrier is gone.
async fn unless_gone<T>(gone: &mut watch::Receiver<bool>, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        biased;
        _ = gone.wait_for(|gone| *gone) => Err(lost()),
        done = work => done,
    }
}

#[derive(Debug)]
struct MemorySender {
    write: WriteHalf<DuplexStream>,
    gone: watch::Receiver<bool>,
}

impl LaneSender for MemorySender {
    fn send<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<()>> {
        let Self { write, gone } = self;
        Box::pin(unless_gone(gone, async move {
            for chunk in chunks {
                write.write_all(chunk).await?;
            }
            Ok(())
        }))
    }

    fn finish(&mut self) -> Pending<'_, io::Result<()>> {
        let Self { write, gone } = self;
        Box::pin(unless_gone(gone, write.shutdown()))
    }
}

#[derive(Debug)]
struct MemoryReceiver {
    read: ReadHalf<DuplexStream>,
    gone: watch::Receiver<bool>,
}

impl LaneReceiver for MemoryReceiver {
    fn receive(&mut self, most: usize) -> Pending<'_, io::Result<Option<Bytes>>> {
        let Self { read, gone } = self;
        Box::pin(unless_gone(gone, async move {
            let mut octets = BytesMut::with_capacity(most);
            let read = read.read_buf(&mut octets).await?;
            Ok((read > 0).then(|| octets.freeze()))
        }))
    }
}
