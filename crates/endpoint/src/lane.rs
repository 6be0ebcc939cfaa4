//! The two tasks of a lane: one reads, one writes.

use crate::flow::{FlowInner, Next, Signals, Taken};
use crate::memory::decoder::FrameDecoder;
use bytes::Bytes;
use hoop_carrier::{Lane, LaneReceiver, LaneSender};
use hoop_flow::LaneId;
use hoop_units::Duration;
use std::sync::Arc;
use tokio::task::yield_now;
use tokio::time::timeout;

/// How much is received at once, at most.
pub(crate) const RECEIVE_MAX: usize = 256 * 1024;

/// How many chunks are taken in at once, at most: of QUIC, a packet's bytes are one. Few, since a lane that waits has room for them.
const GATHER_MAX: usize = 16;

/// How long a lane that closes has for its last bytes: a carrier that still works needs far less, and one that does not holds up nothing longer.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Runs a lane that the machine knows until it is done with. `decoder` has what came before.
pub(crate) fn run(flow: &Arc<FlowInner>, id: LaneId, signals: Arc<Signals>, lane: Lane, decoder: FrameDecoder) {
    let Lane { sender, receiver } = lane;
    let reader = tokio::spawn(read(flow.clone(), id, receiver, decoder));
    let flow = flow.clone();
    tokio::spawn(async move {
        write(&flow, id, &signals, sender).await;
        // The peer's last word may be on its way still.
        let stop = reader.abort_handle();
        if timeout(CLOSE_MAX, reader).await.is_err() {
            stop.abort();
        }
        flow.lane_ended(id);
    });
}

async fn read(flow: Arc<FlowInner>, id: LaneId, mut receiver: Box<dyn LaneReceiver>, mut decoder: FrameDecoder) {
    let (mut is_open, mut chunks) = (true, [const { Bytes::new() }; GATHER_MAX]);
    loop {
        match flow.take_in(id, &mut decoder) {
            Ok(Taken::Part) => {
                yield_now().await;
                continue;
            }
            Ok(Taken::All) if is_open => {}
            Ok(Taken::All | Taken::NoLane) => break,
            Err(error) => {
                tracing::debug!(flow = %flow.name.flow, lane = id.0, %error, "a lane is broken off");
                break;
            }
        }
        match receiver.receive_chunks(&mut chunks).await {
            Ok(Some(came)) => chunks[..came].iter_mut().for_each(|chunk| decoder.push(std::mem::take(chunk))),
            Ok(None) | Err(_) => is_open = false,
        }
    }
    flow.lane_gone(id);
}

async fn write(flow: &Arc<FlowInner>, id: LaneId, signals: &Signals, mut sender: Box<dyn LaneSender>) {
    let mut chunks: Vec<Bytes> = Vec::new();
    loop {
        chunks.clear();
        match flow.next_output(id, &mut chunks) {
            Next::Send => {
                let mut send = sender.send(&mut chunks);
                let sent = tokio::select! {
                    biased;
                    sent = &mut send => sent.is_ok(),
                    () = signals.stop.notified() => matches!(timeout(CLOSE_MAX, send).await, Ok(Ok(()))),
                };
                if !sent {
                    return;
                }
            }
            Next::Wait(None) => signals.wake.notified().await,
            Next::Wait(Some(until)) => {
                let until = flow.clock.instant(until);
                tokio::select! {
                    () = signals.wake.notified() => {}
                    () = tokio::time::sleep_until(until) => {}
                }
            }
            Next::Close => {
                let _ = timeout(CLOSE_MAX, sender.finish()).await;
                return;
            }
        }
    }
}
