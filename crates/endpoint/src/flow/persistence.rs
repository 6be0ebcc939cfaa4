//! How a flow outlives its endpoint: by its record, and by what came and is on disk.

use super::{State, ToCommit};
use crate::flow::spool::Spool;
use crate::memory::buffer::ReceiveBuffer;
use bytes::Bytes;
use hoop_flow::Record;
use hoop_units::Timestamp;

impl State {
    /// Of a flow that outlives a restart: whether nothing is under way, and the application has done with all that has come. Then it could be parked.
    pub(crate) fn is_quiet(&self) -> bool {
        let Some(durable) = &self.durability.durable else { return false };
        let (outgoing, incoming) = (self.machine.outgoing(), self.machine.incoming());
        let done = if self.durability.spool.is_some() { incoming.consumed() } else { incoming.kept() };
        let is_read = incoming.kept() == incoming.whole() && done == incoming.whole() && !self.receive.has_ready();
        let is_sent = outgoing.ready() == outgoing.end() && self.send.end() == outgoing.end() && !durable.finishes;
        let is_here = self.over.is_none() && !self.is_abandoned && self.machine.ended().is_none();
        is_here && is_read && is_sent && durable.keeps.is_none() && self.machine.is_quiet()
    }

    /// What comes goes to disk before it is acknowledged. To be said before anything has come.
    pub(crate) fn begin_spool(&mut self) {
        let incoming = self.machine.incoming();
        self.receive = ReceiveBuffer::new(incoming.consumed());
        self.durability.spool = Some(Spool::new(incoming.kept()));
        self.machine.end_once_consumed();
    }

    /// What is to be read of what an earlier server has left: from where, and how much.
    pub(crate) fn to_load(&self) -> (u64, usize) {
        let whole = self.receive.whole();
        (whole, self.durability.spool.as_ref().map_or(0, |spool| spool.to_load(whole)))
    }

    /// That was read.
    pub(crate) fn loaded(&mut self, from: u64, bytes: Bytes) {
        self.receive.insert(from, bytes);
        if let Some(spool) = &mut self.durability.spool {
            spool.loaded();
        }
    }

    pub(crate) fn keep(&mut self, offset: u64, now: Timestamp) {
        let offset = offset.min(self.receive.read());
        if let Some(spool) = &mut self.durability.spool {
            spool.consume(offset);
            return self.machine.consume(offset, now);
        }
        self.keep_read(offset, now);
    }

    /// What was read outlives a restart, once that is written down where something is.
    pub(super) fn keep_read(&mut self, offset: u64, now: Timestamp) {
        match &mut self.durability.durable {
            None => self.machine.keep(offset, now),
            Some(durable) if durable.keeps.is_some_and(|keeps| keeps >= offset) => {}
            Some(durable) => (durable.keeps, durable.is_stale) = (Some(offset), true),
        }
    }

    /// Bytes were added to the buffer: the machine may send those that are written down.
    pub(super) fn written(&mut self) {
        let outgoing = self.machine.outgoing();
        let (new, known) = (self.send.end() - outgoing.ready(), outgoing.end() - outgoing.ready());
        match self.durability.durable.is_some() && new > known {
            false => self.machine.write(new),
            true => {
                self.machine.write(known);
                self.durability.make_stale();
            }
        }
        // What is supplied again the other end may have already.
        self.drop_acked();
    }

    pub(super) fn finish(&mut self) {
        match &mut self.durability.durable {
            None => self.machine.finish(),
            Some(durable) => {
                durable.finishes |= !self.machine.outgoing().is_finished();
                durable.is_stale |= durable.finishes;
            }
        }
    }

    pub(super) fn take_commit(&mut self) -> Option<ToCommit> {
        let mut record = self.record();
        let durable = self.durability.durable.as_mut()?;
        if !durable.is_stale || self.machine.ended().is_some() || self.durability.is_put_away {
            durable.is_busy = false;
            return None;
        }
        let before = (record.written, record.finished, record.kept);
        record.written = record.written.max(self.send.end());
        record.finished |= durable.finishes;
        record.kept = record.kept.max(durable.keeps.unwrap_or(0));
        if self.durability.spool.is_none() {
            record.consumed = record.consumed.max(record.kept);
        }
        durable.is_stale = false;
        let syncs = before != (record.written, record.finished, record.kept);
        Some((record, durable.attachment.clone(), syncs))
    }

    pub(super) fn committed(&mut self, record: &Record, now: Timestamp) {
        let ready = self.machine.outgoing().ready();
        self.machine.write(record.written.min(self.send.end()).saturating_sub(ready));
        if record.finished && !self.machine.outgoing().is_finished() {
            self.machine.finish();
        }
        self.machine.keep(record.kept, now);
        if let Some(durable) = &mut self.durability.durable {
            durable.finishes &= !record.finished;
            durable.keeps = durable.keeps.filter(|kept| *kept > record.kept);
        }
    }

    /// What outlives a restart: of what came, no more than was read.
    pub(crate) fn record(&self) -> Record {
        let mut record = self.machine.record();
        if self.durability.spool.is_none() {
            record.consumed = record.consumed.max(self.receive.read().min(record.kept));
        }
        record
    }
}
