//! What each lane of a flow says and hears.

use super::{LaneError, Next, State, Taken};
use crate::memory::decoder::{FrameDecoder, Piece};
use bytes::{Bytes, BytesMut};
use hoop_flow::frame::{DATA_MAX, Frame, put_data_head};
use hoop_flow::{LaneId, Transmit, Violation};
use hoop_units::{ByteRange, Duration, Timestamp};

/// How much a writer takes from the machine at once, where a flow has one lane: a few DATA frames to a send.
const BATCH: usize = 256 * 1024;

/// The same where it has several: what a slow lane has been given others must wait for.
const BATCH_SHARED: usize = 32 * 1024;

/// When nothing has come for so long after something had, the last ACK is said again: whoever only receives would not notice that nothing can.
const PAUSE: Duration = Duration::from_millis(500);

/// So many frames of a lane, or pieces of them, are taken in before others have their turn: a frame may be a few bytes long, and what came may be a mebibyte.
const TURN: usize = 256;

/// Adjoining pieces of a stream that the machine is told of at once.
#[derive(Default)]
struct Run {
    offset: u64,
    len: u64,
    pieces: Vec<Bytes>,
}

impl State {
    pub(super) fn next_output(&mut self, lane: LaneId, chunks: &mut Vec<Bytes>, now: Timestamp) -> Next {
        let Some(at) = self.lanes.entries.iter().position(|entry| entry.id == lane) else { return Next::Close };
        if self.lanes.entries[at].is_closing {
            return Next::Close;
        }
        let is_shared = self.lanes.len() > 1;
        let batch = if is_shared { BATCH_SHARED } else { BATCH };
        if is_shared && let Some(rtt) = self.lanes.entries[at].on.carrier.rtt() {
            self.machine.set_rtt(lane, rtt);
        }
        let (mut heads, mut head, mut bytes, mut data) = (BytesMut::new(), Vec::new(), 0, 0);
        while bytes < batch {
            match self.machine.poll_transmit(lane, DATA_MAX.min(batch), now) {
                None => break,
                Some(Transmit::Frames(frames)) => {
                    bytes += frames.len();
                    chunks.push(frames.into());
                }
                Some(Transmit::Data(range)) => {
                    head.clear();
                    put_data_head(&mut head, range.start, range.len() as usize);
                    heads.extend_from_slice(&head);
                    chunks.push(heads.split().freeze());
                    self.send.slices(range, chunks);
                    bytes += range.len() as usize;
                    data += range.len();
                }
            }
        }
        if data > 0 {
            self.statistics.counted(&self.lanes.entries[at].on.network).sent += data;
        }
        let entry = &mut self.lanes.entries[at];
        if bytes > 0 {
            entry.idle = None;
            return Next::Send;
        }
        // What the machine has not now it has a moment later at the earliest: a writer never spins.
        let until = self.machine.lane_timeout(lane).map(|at| at.max(now + Duration::from_millis(1)));
        entry.idle = Some(until);
        Next::Wait(until)
    }

    pub(super) fn take_in(
        &mut self,
        lane: LaneId,
        decoder: &mut FrameDecoder,
        now: Timestamp,
    ) -> Result<Taken, LaneError> {
        let Some(at) = self.lanes.entries.iter().position(|entry| entry.id == lane) else { return Ok(Taken::NoLane) };
        if self.durability.is_put_away {
            for _ in 0..TURN {
                if decoder.next()?.is_none() {
                    return Ok(Taken::All);
                }
            }
            return Ok(Taken::Part);
        }
        self.lanes.entries[at].heard = now;
        self.lanes.heard(self.lanes.entries[at].on.id);
        let mut data = 0;
        let taken = match self.take_pieces(lane, decoder, &mut data, now) {
            Ok(taken) => taken,
            // This end has closed it; what still came goes over another, if it is wanted.
            Err(LaneError::Violation(Violation::NoLane)) => return Ok(Taken::NoLane),
            Err(error) => return Err(error),
        };
        if data > 0 {
            self.statistics.counted(&self.lanes.entries[at].on.network).received += data;
            // A device that only receives is to notice if no more comes.
            self.timing.data_at = Some(now);
            self.timing.pause_at = (!self.machine.incoming().is_done()).then_some(now + PAUSE);
        }
        Ok(taken)
    }

    fn take_pieces(
        &mut self,
        lane: LaneId,
        decoder: &mut FrameDecoder,
        data: &mut u64,
        now: Timestamp,
    ) -> Result<Taken, LaneError> {
        let mut run = Run::default();
        for _ in 0..TURN {
            let Some(piece) = decoder.next()? else {
                self.take_run(lane, &mut run, now)?;
                return Ok(Taken::All);
            };
            match piece {
                Piece::Data { offset, bytes } => {
                    *data += bytes.len() as u64;
                    if run.offset + run.len != offset {
                        self.take_run(lane, &mut run, now)?;
                        run.offset = offset;
                    }
                    run.len += bytes.len() as u64;
                    run.pieces.push(bytes);
                }
                Piece::Frame(bytes) => {
                    self.take_run(lane, &mut run, now)?;
                    let frame = Frame::take(&mut &bytes[..])?.ok_or(Violation::Unexpected)?;
                    self.machine.handle(lane, &frame, now)?;
                }
            }
        }
        self.take_run(lane, &mut run, now)?;
        Ok(Taken::Part)
    }

    fn take_run(&mut self, lane: LaneId, run: &mut Run, now: Timestamp) -> Result<(), Violation> {
        if run.len == 0 {
            return Ok(());
        }
        let mut at = run.offset;
        run.offset += std::mem::take(&mut run.len);
        let news = self.machine.handle_data(lane, ByteRange::new(at, run.offset), now)?;
        for bytes in run.pieces.drain(..) {
            let piece = ByteRange::new(at, at + bytes.len() as u64);
            for new in news.iter().map(|new| new.intersect(piece)).filter(|new| !new.is_empty()) {
                let bytes = bytes.slice((new.start - at) as usize..(new.end - at) as usize);
                if let Some(spool) = &mut self.durability.spool {
                    spool.insert(new.start, bytes.clone());
                }
                self.receive.insert(new.start, bytes);
            }
            at = piece.end;
        }
        Ok(())
    }
}
