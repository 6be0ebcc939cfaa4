//! What a flow may still be sent ([`crate::memory::window`]), and what it takes of the memory.

use super::{FlowInner, State};
use crate::flow::spool::Spool;
use crate::memory::budget::MemoryUse;
use crate::memory::window::WINDOW_MIN;
use hoop_units::Timestamp;

impl State {
    /// The application has read: more is asked for, unless it wants to let the window run empty first.
    pub(super) fn consumed(&mut self, now: Timestamp) {
        // What is on disk is consumed when the application says so.
        if self.durability.spool.is_some() {
            return;
        }
        let read = self.receive.read();
        let waits = self.machine.incoming().granted().saturating_sub(read);
        if self.options.low.is_none_or(|low| waits <= low) {
            self.machine.consume(read, now);
        }
    }

    /// Up to where the application or the disk has what came: the device may send on from there.
    fn used_to(&self) -> u64 {
        let on_disk = self.durability.spool.as_ref().map_or(0, |_| self.machine.incoming().kept());
        self.receive.read().max(on_disk)
    }

    /// Up to where what came takes no memory: it is read, and on disk if it is to be.
    fn freed_to(&self) -> u64 {
        let read = self.receive.read();
        self.durability.spool.as_ref().map_or(read, |_| read.min(self.machine.incoming().kept()))
    }

    /// Grants as much as is of use, and as there is memory for; 64 KiB in any case.
    pub(super) fn grant(&mut self, flow: &FlowInner, now: Timestamp) {
        let (used_to, freed_to, granted) = (self.used_to(), self.freed_to(), self.memory_use.granted);
        let Some(window) = &mut self.window else { return };
        let incoming = self.machine.incoming();
        let from = incoming.consumed().min(incoming.kept());
        // What is on disk, or read and not kept, may be as much again; but between its thresholds a flow asks for nothing.
        let waits = self.options.low.is_some() && self.durability.spool.is_none();
        let free_to = if waits { incoming.consumed() } else { used_to };
        if window.is_due(used_to) || free_to + window.size() > window.granted_to() {
            let most = flow.least(|memory| memory.to_grant(granted, used_to));
            let most = WINDOW_MIN + most.saturating_sub(used_to - freed_to);
            if window.is_due(used_to) {
                // Who lets it run empty at times wants it whole, and so do several lanes: all waits for what one is late with.
                let wants_whole = self.options.low.is_some() || self.lanes.len() > 1;
                let rtt = || self.lanes.entries.first().and_then(|entry| entry.on.carrier.rtt()).unwrap_or_default();
                window.grow(used_to, (!wants_whole).then(rtt), now);
            }
            window.cut(self.options.window.min(most));
        }
        let size = self.options.window.min(free_to.saturating_sub(from) + window.size());
        window.granted(from + size);
        if size != incoming.window() {
            self.machine.set_window(size, now);
        }
    }

    /// What it takes of the memory.
    pub(super) fn memory_use(&self) -> MemoryUse {
        let spooled = self.durability.spool.as_ref().map_or(0, Spool::len);
        let held = self.send.len() + self.receive.held() + spooled;
        let freed_to = self.freed_to();
        let granted_to = match &self.window {
            Some(window) if self.over.is_none() => {
                window.granted_to().min(self.machine.incoming().end().unwrap_or(u64::MAX))
            }
            // No more comes, but what has come is still here.
            Some(_) => freed_to + self.receive.held(),
            None => 0,
        };
        MemoryUse { held, granted: granted_to.saturating_sub(freed_to + WINDOW_MIN) }
    }

    pub(crate) fn set_window(&mut self, window: u64, low: Option<u64>, now: Timestamp) {
        (self.options.window, self.options.low) = (window, low);
        if self.window.is_none() {
            self.machine.set_window(window, now);
        }
        self.consumed(now);
    }
}
