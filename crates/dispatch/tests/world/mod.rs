//! The store, the clocks and the attempts around a dispatcher.

use hoop_dispatch::{Dispatcher, Entry, Failure, List, Output, RETRY_AFTER_MAX, SMALL_BYTES, TURN_BYTES};
use hoop_units::{AddressKey, Timestamp, UnixTime, UploadId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub const PHOTO: u64 = 1_000;
pub const FILM: u64 = 10 * SMALL_BYTES;

/// The store's pages: of devices and of uploads.
const PAGE: usize = 16;

/// The store's place of an upload: deadline, none last; then age.
pub type Place = (UnixTime, UploadId);

/// What the store knows of an upload.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: UploadId,
    pub device: AddressKey,
    pub origin: String,
    pub total: u64,
    pub left: u64,
    pub deadline: Option<UnixTime>,
    pub due: UnixTime,
    pub attempts: u32,
    /// Attempts that are still going to fail, and whether the destination is at fault.
    pub failures: Vec<bool>,
    pub done: bool,
    /// All of it is sent, and the service is to be asked.
    pub asks: bool,
}

impl Row {
    pub fn new(device: AddressKey, origin: &str, total: u64) -> Self {
        Self {
            id: id(0),
            device,
            origin: origin.to_owned(),
            total,
            left: total,
            deadline: None,
            due: UnixTime(0),
            attempts: 0,
            failures: Vec::new(),
            done: false,
            asks: false,
        }
    }

    pub fn place(&self) -> Place {
        (self.deadline.unwrap_or(UnixTime(u32::MAX)), self.id)
    }
}

pub struct World {
    pub dispatcher: Dispatcher<Place>,
    pub rows: BTreeMap<UploadId, Row>,
    /// Attempts under way, and whether they were told to end.
    pub running: BTreeMap<UploadId, bool>,
    /// Those that were told to end at once, in order.
    pub broken_off: Vec<UploadId>,
    pub now: Timestamp,
    /// Wall time is this far ahead of monotonic time.
    pub wall_offset: i64,
    pub started: Vec<UploadId>,
    /// When each was started last.
    pub begun: BTreeMap<UploadId, Timestamp>,
    pub most_at_once: usize,
    pub served: BTreeMap<AddressKey, u64>,
}

pub fn id(number: u32) -> UploadId {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    UploadId(bytes)
}

pub const fn device(number: u8) -> AddressKey {
    AddressKey([number; 16])
}

impl World {
    pub fn new(transfers: usize) -> Self {
        Self {
            dispatcher: Dispatcher::new(transfers),
            rows: BTreeMap::new(),
            running: BTreeMap::new(),
            broken_off: Vec::new(),
            now: Timestamp::from_secs(1),
            wall_offset: 1_700_000_000,
            started: Vec::new(),
            begun: BTreeMap::new(),
            most_at_once: 0,
            served: BTreeMap::new(),
        }
    }

    pub fn wall(&self) -> UnixTime {
        let secs = i64::try_from(self.now.as_micros() / 1_000_000).unwrap() + self.wall_offset;
        UnixTime(u32::try_from(secs.max(0)).unwrap())
    }

    pub fn add(&mut self, number: u32, row: Row) {
        let row = Row { id: id(number), due: self.wall(), ..row };
        self.rows.insert(row.id, row);
        self.dispatcher.handle_more();
    }

    /// What the spool has due in a list, clock that was set back included.
    fn due(&self, list: List) -> impl Iterator<Item = &Row> {
        let now = self.wall();
        let late = now.plus_secs(u32::try_from(RETRY_AFTER_MAX.as_secs()).unwrap());
        let due = self.rows.values().filter(move |row| !row.done && (row.due <= now || row.due > late));
        due.filter(move |row| match list {
            List::Send => !row.asks,
            List::Small => !row.asks && row.total < SMALL_BYTES,
            List::Ask => row.asks,
        })
    }

    pub fn drain(&mut self) {
        for _ in 0..100_000 {
            let Some(output) = self.dispatcher.poll_output(self.now) else { return };
            match output {
                Output::Start { id, .. } => {
                    assert!(self.running.insert(id, false).is_none(), "two attempts of one upload at once");
                    assert!(!self.rows[&id].done, "an attempt at what is done");
                    self.started.push(id);
                    self.begun.insert(id, self.now);
                    self.most_at_once = self.most_at_once.max(self.running.len());
                }
                Output::Yield { id } => *self.running.get_mut(&id).expect("it runs") = true,
                Output::Stop { id } => {
                    *self.running.get_mut(&id).expect("it runs") = true;
                    self.broken_off.push(id);
                }
                Output::Devices { list, after } => {
                    let devices: BTreeSet<_> = self.due(list).map(|row| row.device).collect();
                    let devices: Vec<_> =
                        devices.into_iter().filter(|device| Some(*device) > after).take(PAGE).collect();
                    self.dispatcher.handle_devices(list, &devices, devices.len() < PAGE);
                }
                Output::Load { list, device, after } => self.load(list, device, after),
            }
        }
        panic!("it never comes to rest");
    }

    fn load(&mut self, list: List, device: AddressKey, after: Option<Place>) {
        let mut rows: Vec<_> = self.due(list).filter(|row| row.device == device).collect();
        rows.retain(|row| Some(row.place()) > after);
        rows.sort_unstable_by_key(|row| row.place());
        rows.truncate(PAGE);
        let entry = |row: &Row| Entry {
            id: row.id,
            origin: row.origin.clone(),
            total: row.total,
            deadline: row.deadline,
            place: row.place(),
        };
        let entries: Vec<_> = rows.into_iter().map(entry).collect();
        let last = entries.len() < PAGE;
        self.dispatcher.handle_entries(list, device, entries, last, self.now);
    }

    /// One message of an attempt, and its end if it was the last, failed, or is to make way. Returns the bytes sent.
    pub fn message(&mut self, id: UploadId, roll: u32) -> u64 {
        let (now, wall) = (self.now, self.wall());
        let row = self.rows.get_mut(&id).unwrap();
        if let Some(destination) = row.failures.pop() {
            assert!(self.running.remove(&id).is_some());
            let failure = Failure { attempts: row.attempts, retry_after: None, destination };
            let delay = self.dispatcher.handle_failure(id, failure, roll, now);
            row.attempts += 1;
            row.due = wall.plus_secs(u32::try_from(delay.as_secs()).unwrap() + 1);
            return 0;
        }
        let bytes = row.left.min(TURN_BYTES);
        row.left -= bytes;
        row.done = row.left == 0 || row.done;
        *self.served.entry(row.device).or_default() += bytes;
        let done = row.done;
        self.dispatcher.handle_sent(id, bytes);
        if done {
            self.running.remove(&id);
            self.dispatcher.handle_done(id, now);
        } else {
            // Whether it is to make way is known once the bytes are counted.
            self.drain();
            if self.running[&id] {
                self.dispatcher_ended_early(id);
            }
        }
        bytes
    }

    pub fn dispatcher_ended_early(&mut self, id: UploadId) {
        assert_eq!(self.running.remove(&id), Some(true), "it was told to");
        self.dispatcher.handle_ended_early(id, self.now);
    }

    pub fn withdraw(&mut self, which: usize) {
        let rows = self.rows.iter().filter(|(id, row)| !row.done && !self.running.contains_key(id));
        let waiting: Vec<_> = rows.map(|(id, _)| *id).collect();
        if waiting.is_empty() {
            return;
        }
        let id = waiting[which % waiting.len()];
        self.rows.get_mut(&id).unwrap().done = true;
        self.dispatcher.withdraw(id);
    }

    /// Lets time pass until something is due, at most half a minute, as the gateway's tick does.
    pub fn pass(&mut self) {
        let tick = self.now + Duration::from_secs(30);
        let waited = self.dispatcher.poll_timeout().unwrap_or(Timestamp::MAX);
        let wall = self.wall();
        let due = self.rows.values().filter(|row| !row.done && row.due > wall).map(|row| row.due.since(wall)).min();
        let due = due.map_or(Timestamp::MAX, |secs| self.now + Duration::from_secs(secs.into()));
        self.now = tick.min(waited).min(due).max(self.now + Duration::from_micros(1));
        self.dispatcher.handle_more();
    }

    /// Lets the second pass after which the store is looked through anew, and drains.
    pub fn pass_refresh(&mut self) {
        self.now += Duration::from_secs(1);
        self.drain();
    }

    /// Lets time pass in which nothing is sent: attempts that are broken off end, those that are to make way do not.
    pub fn crawl(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.pass_refresh();
            for id in std::mem::take(&mut self.broken_off) {
                self.dispatcher_ended_early(id);
            }
            self.drain();
        }
    }

    /// How many attempts of a device are under way.
    pub fn slots(&self, device: AddressKey) -> usize {
        self.running.keys().filter(|id| self.rows[*id].device == device).count()
    }

    /// Runs until all is done; `steps` bounds it.
    pub fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.drain();
            if self.rows.values().all(|row| row.done) {
                return;
            }
            let told = self.running.iter().find(|(_, told)| **told).map(|(id, _)| *id);
            match told.or_else(|| self.running.keys().next().copied()) {
                Some(id) => drop(self.message(id, (step as u32).wrapping_mul(2_654_435_761))),
                None => self.pass(),
            }
        }
        panic!("after {steps} steps {} uploads are not done", self.rows.values().filter(|row| !row.done).count());
    }
}
