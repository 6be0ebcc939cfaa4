//! The lanes of a flow: which there are, which failed, what each says and hears.

use super::{Carried, CarrierId, Failure, LaneEntry, LaneError, Next, Signals, State, counted};
use crate::memory::intake::{Intake, Piece};
use bytes::{Bytes, BytesMut};
use hoop_flow::frame::{DATA_MAX, Frame, put_data_head};
use hoop_flow::{LaneId, Transmit, Violation};
use hoop_units::{ByteRange, Duration, Timestamp};
use std::sync::Arc;

/// How much a writer takes from the machine at once, where a flow has one lane: a few DATA frames to a send.
const BATCH: usize = 256 * 1024;

/// The same where it has several: what a slow lane has been given others must wait for.
const BATCH_SHARED: usize = 32 * 1024;

/// When nothing has come for so long after something had, the last ACK is said again: whoever only receives would not notice that nothing can.
const PAUSE: Duration = Duration::from_millis(500);

/// The wait after the second failure in a row; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(200);

/// The longest wait after a failure on a carrier that is there: a server that comes back is found within it.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Adjoining pieces of a stream that the machine is told of at once.
#[derive(Default)]
struct Run {
    offset: u64,
    len: u64,
    pieces: Vec<Bytes>,
}

impl State {
    /// An attempt to attach came to nothing, or did not last. The first time it is repeated at once.
    pub(crate) fn fail(&mut self, on: CarrierId, least: Duration, now: Timestamp) {
        self.failures.retain(|failure| failure.on == on || now.since(failure.until) < RETRY_MAX);
        let at = self.failures.iter().position(|failure| failure.on == on).unwrap_or_else(|| {
            self.failures.push(Failure { on, times: 0, until: now });
            self.failures.len() - 1
        });
        let failure = &mut self.failures[at];
        failure.times += 1;
        let wait = match failure.times {
            1 => Duration::ZERO,
            times => RETRY_FIRST.saturating_mul(1 << (times - 2).min(16)).min(RETRY_MAX),
        };
        failure.until = now + wait.max(least);
        (self.todo.reconcile, self.todo.set_timer) = (true, true);
    }

    /// Whether a carrier is not to be tried again yet.
    pub(crate) fn is_waiting(&self, on: CarrierId, now: Timestamp) -> bool {
        self.failures.iter().any(|failure| failure.on == on && failure.until > now)
    }

    /// How many lanes there are, with those that close.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// A carrier is gone.
    pub(crate) fn forget(&mut self, on: CarrierId) {
        self.failures.retain(|failure| failure.on != on);
        self.silent.retain(|(id, _)| *id != on);
    }

    /// A lane is to be attached; its owner tells the machine.
    pub(crate) fn add_lane(&mut self, on: Carried, now: Timestamp) -> (LaneId, Arc<Signals>) {
        let id = LaneId(self.next_lane);
        self.next_lane += 1;
        let signals = Arc::<Signals>::default();
        self.lanes.push(LaneEntry {
            id,
            on,
            signals: signals.clone(),
            idle: None,
            began: now,
            heard: now,
            up: None,
            is_closing: false,
            is_broken: false,
        });
        self.todo.set_timer = true;
        (id, signals)
    }

    /// A lane was not attached after all.
    pub(crate) fn drop_lane(&mut self, lane: LaneId) {
        self.lanes.retain(|entry| entry.id != lane);
    }

    /// Whether lanes are there still, attached or closing.
    pub(crate) fn has_lanes(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// What lane there is on a carrier, and whether it is attached.
    pub(crate) fn lane_on(&self, carrier: CarrierId) -> Option<(LaneId, bool)> {
        let mut open = self.lanes.iter().filter(|entry| !entry.is_closing && entry.on.id == carrier);
        open.next().map(|entry| (entry.id, entry.up.is_some()))
    }

    /// When a carrier brought something of this flow last; None: it has no lane there.
    pub(crate) fn heard_on(&self, carrier: CarrierId) -> Option<Timestamp> {
        self.lanes.iter().filter(|entry| entry.on.id == carrier).map(|entry| entry.heard).max()
    }

    /// The lanes that are not closing, and the carriers they are on.
    pub(crate) fn open_lanes(&self) -> impl Iterator<Item = (LaneId, CarrierId)> {
        self.lanes.iter().filter(|entry| !entry.is_closing).map(|entry| (entry.id, entry.on.id))
    }

    /// Closes a lane: what was taken from the machine for it still goes out.
    pub(crate) fn close(&mut self, lane: LaneId) {
        if let Some(entry) = self.lanes.iter_mut().find(|entry| entry.id == lane && !entry.is_closing) {
            entry.is_closing = true;
            entry.signals.stop.notify_one();
            entry.signals.wake.notify_one();
        }
    }

    /// Wakes the writers that have something to do before they would look again.
    pub(super) fn wake_lanes(&mut self) {
        for entry in &mut self.lanes {
            let Some(until) = entry.idle else { continue };
            let at = self.machine.lane_timeout(entry.id);
            let sooner = at.is_some_and(|at| until.is_none_or(|until| at < until));
            if sooner || self.machine.wants(entry.id) {
                entry.idle = None;
                entry.signals.wake.notify_one();
            }
        }
    }

    pub(super) fn next_output(&mut self, lane: LaneId, chunks: &mut Vec<Bytes>, now: Timestamp) -> Next {
        let Some(at) = self.lanes.iter().position(|entry| entry.id == lane) else { return Next::Close };
        if self.lanes[at].is_closing {
            return Next::Close;
        }
        let is_shared = self.lanes.len() > 1;
        let batch = if is_shared { BATCH_SHARED } else { BATCH };
        if is_shared && let Some(rtt) = self.lanes[at].on.carrier.rtt() {
            self.machine.set_rtt(lane, rtt);
        }
        let (mut heads, mut head, mut octets, mut data) = (BytesMut::new(), Vec::new(), 0, 0);
        while octets < batch {
            match self.machine.poll_transmit(lane, DATA_MAX.min(batch), now) {
                None => break,
                Some(Transmit::Frames(frames)) => {
                    octets += frames.len();
                    chunks.push(frames.into());
                }
                Some(Transmit::Data(range)) => {
                    head.clear();
                    put_data_head(&mut head, range.start, range.len() as usize);
                    heads.extend_from_slice(&head);
                    chunks.push(heads.split().freeze());
                    self.send.slices(range, chunks);
                    octets += range.len() as usize;
                    data += range.len();
                }
            }
        }
        if data > 0 {
            counted(&mut self.networks, &self.lanes[at].on.network).sent += data;
        }
        let entry = &mut self.lanes[at];
        if octets > 0 {
            entry.idle = None;
            return Next::Send;
        }
        // What the machine has not now it has a moment later at the earliest: a writer never spins.
        let until = self.machine.lane_timeout(lane).map(|at| at.max(now + Duration::from_millis(1)));
        entry.idle = Some(until);
        Next::Wait(until)
    }

    pub(super) fn take_in(&mut self, lane: LaneId, intake: &mut Intake, now: Timestamp) -> Result<bool, LaneError> {
        let Some(at) = self.lanes.iter().position(|entry| entry.id == lane) else { return Ok(false) };
        if self.is_put_away {
            while intake.next()?.is_some() {}
            return Ok(true);
        }
        self.lanes[at].heard = now;
        if !self.silent.is_empty() {
            let on = self.lanes[at].on.id;
            self.silent.retain(|(id, _)| *id != on);
        }
        let mut data = 0;
        match self.take_pieces(lane, intake, &mut data, now) {
            Ok(()) => {}
            // This end has closed it; what still came goes over another, if it is wanted.
            Err(LaneError::Violation(Violation::NoLane)) => return Ok(false),
            Err(error) => return Err(error),
        }
        if data > 0 {
            counted(&mut self.networks, &self.lanes[at].on.network).received += data;
            // A device that only receives is to notice if no more comes.
            self.data_at = Some(now);
            self.pause_at = (!self.machine.incoming().is_done()).then_some(now + PAUSE);
        }
        Ok(true)
    }

    fn take_pieces(
        &mut self,
        lane: LaneId,
        intake: &mut Intake,
        data: &mut u64,
        now: Timestamp,
    ) -> Result<(), LaneError> {
        let mut run = Run::default();
        while let Some(piece) = intake.next()? {
            match piece {
                Piece::Data { offset, octets } => {
                    *data += octets.len() as u64;
                    if run.offset + run.len != offset {
                        self.take_run(lane, &mut run, now)?;
                        run.offset = offset;
                    }
                    run.len += octets.len() as u64;
                    run.pieces.push(octets);
                }
                Piece::Frame(octets) => {
                    self.take_run(lane, &mut run, now)?;
                    let frame = Frame::take(&mut &octets[..])?.ok_or(Violation::Unexpected)?;
                    self.machine.handle(lane, &frame, now)?;
                }
            }
        }
        Ok(self.take_run(lane, &mut run, now)?)
    }

    fn take_run(&mut self, lane: LaneId, run: &mut Run, now: Timestamp) -> Result<(), Violation> {
        if run.len == 0 {
            return Ok(());
        }
        let mut at = run.offset;
        run.offset += std::mem::take(&mut run.len);
        let news = self.machine.handle_data(lane, ByteRange::new(at, run.offset), now)?;
        for octets in run.pieces.drain(..) {
            let piece = ByteRange::new(at, at + octets.len() as u64);
            for new in news.iter().map(|new| new.intersect(piece)).filter(|new| !new.is_empty()) {
                let octets = octets.slice((new.start - at) as usize..(new.end - at) as usize);
                if let Some(spool) = &mut self.spool {
                    spool.insert(new.start, octets.clone());
                }
                self.receive.insert(new.start, octets);
            }
            at = piece.end;
        }
        Ok(())
    }
}
