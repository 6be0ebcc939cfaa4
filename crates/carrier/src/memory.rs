//! A carrier within one process: [`memory_pair`].

use crate::{Carrier, Kind, Lane, LaneReceiver, LaneSender, Pending, broken_off};
use bytes::Bytes;
use hoop_flow::Binding;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};

/// Pieces that a lane holds before whoever sends waits; a flow's have 64 KiB.
const LANE_PIECES: usize = 8;

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

/// The device's end and the server's end of a carrier that is bound to these bytes.
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
    fn lane(&self, there: mpsc::Sender<Piece>, back: mpsc::Receiver<Piece>) -> Lane {
        let sender = MemorySender { pieces: there, gone: self.gone.subscribe() };
        let receiver = MemoryReceiver { pieces: back, rest: Bytes::new(), ended: false, gone: self.gone.subscribe() };
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
            let (there, at_server) = mpsc::channel(LANE_PIECES);
            let (back, at_device) = mpsc::channel(LANE_PIECES);
            self.offered.send(self.lane(back, at_server)).await.map_err(|_| lost())?;
            Ok(self.lane(there, at_device))
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

/// Bytes, or, without any, the end.
type Piece = Option<Bytes>;

#[derive(Debug)]
struct MemorySender {
    pieces: mpsc::Sender<Piece>,
    gone: watch::Receiver<bool>,
}

impl LaneSender for MemorySender {
    fn send<'a>(&'a mut self, chunks: &'a mut [Bytes]) -> Pending<'a, io::Result<()>> {
        let Self { pieces, gone } = self;
        Box::pin(unless_gone(gone, async move {
            for chunk in chunks.iter_mut().filter(|chunk| !chunk.is_empty()) {
                pieces.send(Some(std::mem::take(chunk))).await.map_err(|_| broken_off())?;
            }
            Ok(())
        }))
    }

    fn finish(&mut self) -> Pending<'_, io::Result<()>> {
        let Self { pieces, gone } = self;
        Box::pin(unless_gone(gone, async move { pieces.send(None).await.map_err(|_| broken_off()) }))
    }
}

#[derive(Debug)]
struct MemoryReceiver {
    pieces: mpsc::Receiver<Piece>,
    rest: Bytes,
    ended: bool,
    gone: watch::Receiver<bool>,
}

impl LaneReceiver for MemoryReceiver {
    fn receive(&mut self, most: usize) -> Pending<'_, io::Result<Option<Bytes>>> {
        let Self { pieces, rest, ended, gone } = self;
        Box::pin(unless_gone(gone, async move {
            if rest.is_empty() && !*ended {
                match pieces.recv().await.ok_or_else(broken_off)? {
                    Some(piece) => *rest = piece,
                    None => *ended = true,
                }
            }
            Ok((!rest.is_empty()).then(|| rest.split_to(most.min(rest.len()))))
        }))
    }
}
