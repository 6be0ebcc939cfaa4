//! Clocks that jump at both ends: a gateway's spool and a service's index, each on a machine with clocks of its own (`docs/time.md`).
//!
//! Uploads go from a device to the gateway and from there to the service, some of them late, and some of them again much later. Meanwhile clocks
//! jump, machines are switched off, processes end, NTP says what is right or what is wrong. `HOOP_JUMPS` is how many jumps there are in all.

use super::sqlite::SqliteIndex;
use super::{Changed, Closed as _, ENDED_MAX, Index as _, Notes as _};
use crate::model::{Change, LINGER_SECS, State, Upload};
use crate::policy::admit::{GRACE_SECS, in_time};
use hoop_spool::{Begin, KEEP_SECS, Offer, Overdue, Reason, Settings, Spool, late_by, ticket_end};
use hoop_timekeeper::simulated::Machine;
use hoop_timekeeper::{Over, SETTLE};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::time::Duration;
use tempfile::TempDir;

const START: u64 = 1_795_000_000;
const DAY: u64 = 86_400;
/// What a ticket of this service lasts.
const LIFETIME: u32 = 7 * DAY as u32;
/// As in `core`.
const TICKET_LIFE: u64 = 30 * DAY;
/// Whole seconds, at several places.
const SLACK: u64 = 5;
/// Jumps in one world; then another begins, so that what was forgotten does not heap up.
const WORLD: usize = 50;

/// Whether time is judged, and closed days are, or the wall clock is believed, as it once was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Judgement,
    Wall,
}

/// A machine whose clocks jump, and whom it believes.
struct End {
    by: By,
    machine: Machine,
}

impl End {
    fn new(by: By) -> Self {
        let mut machine = Machine::new(START);
        machine.ntp = Some(0);
        Self { by, machine }
    }

    /// Its wall clock is so far off from now on, and NTP says so, too, or nothing.
    fn jumps(&mut self, off: i64, ntp: bool) {
        (self.machine.off, self.machine.ntp) = (off, ntp.then_some(off));
    }

    fn now(&self) -> UnixTime {
        match self.by {
            By::Judgement => self.machine.keeper().now(),
            By::Wall => self.machine.wall(),
        }
    }

    fn peak(&self) -> UnixTime {
        match self.by {
            By::Judgement => self.machine.keeper().peak(),
            By::Wall => self.machine.wall(),
        }
    }

    fn past(&self, life: u64) -> UnixTime {
        match self.by {
            By::Judgement => self.machine.keeper().past(Duration::from_secs(life)),
            By::Wall => self.machine.wall(),
        }
    }

    fn sure(&self) -> Option<UnixTime> {
        match self.by {
            By::Judgement => self.machine.keeper().sure(),
            By::Wall => Some(self.machine.wall()),
        }
    }

    fn after(&self, life: u64) -> UnixTime {
        match self.by {
            By::Judgement => self.machine.keeper().after(Duration::from_secs(life)),
            By::Wall => UnixTime(u32::MAX),
        }
    }

    fn over(&self, life: u64) -> Option<Over> {
        match self.by {
            By::Judgement => self.machine.keeper().over(Duration::from_secs(life)),
            By::Wall => Some(self.machine.wall().into()),
        }
    }
}

/// An upload, and what each end has said of it, with the run time of that end.
struct Sent {
    not_before: UnixTime,
    expires: UnixTime,
    issued: u64,
    stored: Option<u64>,
    received: Option<u64>,
    /// How often the application has it.
    accepted: u32,
}

/// A gateway and a service, and all that was sent.
struct World {
    dice: Pcg64Mcg,
    gateway: End,
    spool: Spool,
    service: End,
    index: SqliteIndex,
    sent: BTreeMap<UploadId, Sent>,
    wrong: Vec<String>,
    _folders: [TempDir; 2],
}

impl World {
    fn new(seed: u64, by: By) -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let spool = Spool::open(Settings { sync: false, ..Settings::new(folders[0].path()) }).unwrap();
        let index = SqliteIndex::open(&folders[1].path().join("index.sqlite"), ENDED_MAX).unwrap();
        // Nothing here is cut off from power, and syncs take time.
        index.lock().pragma_update(None, "synchronous", "OFF").unwrap();
        let mut world = Self {
            dice: Pcg64Mcg::new(u128::from(seed) << 1 | 1),
            gateway: End::new(by),
            spool,
            service: End::new(by),
            index,
            sent: BTreeMap::new(),
            wrong: Vec::new(),
            _folders: folders,
        };
        world.runs(SETTLE.as_secs() + 60);
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice.next_u64() % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    /// A duration between a second and so long, short ones as likely as long ones.
    fn some(&mut self, most: u64) -> u64 {
        let bits = u64::from(most.ilog2()) + 1;
        let scale = 1 << self.below(bits);
        (scale + self.below(scale)).min(most)
    }

    fn runs(&mut self, secs: u64) {
        self.gateway.machine.runs(secs);
        self.service.machine.runs(secs);
    }

    /// One clock jumps, by minutes to years; and stays so, or not.
    fn jump(&mut self) {
        let by = self.some(20 * 365 * DAY).cast_signed().max(60);
        let off = if self.one_in(2) { by } else { -by };
        let (ntp, stays, off_for) = (self.one_in(4), self.some(4 * DAY), self.some(30 * DAY));
        let how = self.below(8);
        let end = if self.one_in(2) { &mut self.gateway } else { &mut self.service };
        end.jumps(off, ntp && how > 1);
        match how {
            0 => end.machine.is_off(off_for, off),
            1 => end.machine.restarts(),
            _ => {}
        }
        end.machine.looks();
        self.house();
        self.traffic();
        // A minute, a day, or weeks: some are undone before they are believed, and some are not.
        let stays = if self.one_in(8) { 30 * DAY } else { stays };
        self.runs(stays);
        self.house();
        self.traffic();
        if !self.one_in(4) {
            for end in [&mut self.gateway, &mut self.service] {
                end.jumps(0, true);
                end.machine.looks();
            }
            self.house();
            self.traffic();
        }
    }

    /// A device sends something, something is delivered, and something that was sent long ago comes again.
    fn traffic(&mut self) {
        let mut id = [0; 16];
        self.dice.fill_bytes(&mut id);
        let id = UploadId(id);
        let not_before = self.service.now();
        let expires = self.index.open_end(not_before.plus_secs(LIFETIME)).unwrap();
        let issued = self.service.machine.run;
        self.sent.insert(id, Sent { not_before, expires, issued, stored: None, received: None, accepted: 0 });
        if self.one_in(2) {
            let waits = self.some(8 * DAY);
            self.runs(waits);
        }
        self.store(id);
        for at in [0, 1, 2, 3] {
            // The newest, and some others.
            let from = if at == 0 { 1 } else { self.sent.len() as u64 };
            let nth = self.below(from) as usize;
            let id = if at == 0 { id } else { *self.sent.keys().nth(nth).unwrap() };
            if at > 0 || self.one_in(2) {
                self.deliver(id);
            }
        }
        self.replay();
    }

    /// What a gateway does with an upload that a device brings.
    fn store(&mut self, id: UploadId) {
        let expires = ticket_end(self.sent[&id].expires, self.gateway.now());
        let known = self.spool.get(id).unwrap().is_some();
        if late_by(expires, known, |life| self.gateway.past(life.into()), self.gateway.sure()).is_some() {
            return;
        }
        let offer = Offer {
            id,
            prelude: b"prelude".to_vec(),
            total: Some(9),
            dest: "https://photos.example/hoop/post".into(),
            expires,
            device: AddressKey::UNKNOWN,
            deadline: None,
        };
        if let Begin::Take(mut intake) = self.spool.begin(&offer).unwrap() {
            intake.write_at(0, &[7; 9]).unwrap();
            intake.commit(ByteRange::new(0, 9), self.gateway.now()).unwrap();
            self.sent.get_mut(&id).unwrap().stored = Some(self.gateway.machine.run);
        }
    }

    /// Somebody brings an upload to the service: the gateway, its device, or whoever has kept it.
    fn deliver(&mut self, id: UploadId) {
        let sent = &self.sent[&id];
        match self.index.load(id).unwrap() {
            Some(_) => {}
            None => {
                let closed = self.service.by == By::Judgement && self.index.is_closed(sent.expires).unwrap();
                let after = self.index.open_end(self.service.after(TICKET_LIFE)).unwrap();
                let (over, peak) = (Over { before: self.service.past(TICKET_LIFE), after }, self.service.peak());
                let refused = in_time(sent.not_before, sent.expires, over, peak).err().map(|problem| problem.code);
                if closed || refused.is_some() {
                    let lived = self.service.machine.run - sent.issued;
                    if sent.accepted == 0 && lived + SLACK < u64::from(LIFETIME) {
                        let (not_before, expires) = (sent.not_before, sent.expires);
                        self.wrong.push(format!(
                            "{id} was refused {lived} s after its ticket was issued, good from {not_before} to {expires}, as {over:?} is over and it was \
                             {peak}: {refused:?}, closed: {closed}"
                        ));
                    }
                    return;
                }
                let upload = upload(id, sent.expires, self.service.now());
                assert!(matches!(self.index.receive(&upload, true).unwrap(), Changed::Done(_)));
                self.sent.get_mut(&id).unwrap().received = Some(self.service.machine.run);
            }
        }
        let known = self.index.load(id).unwrap().unwrap();
        if known.state.is_final() {
            let change =
                hoop_spool::Change { state: hoop_spool::State::by_name(known.state.shown()), ..Default::default() };
            self.spool.change(id, &change, self.gateway.now()).unwrap();
        }
    }

    /// The application takes some of what is due.
    fn replay(&mut self) {
        let now = self.service.now();
        for (_, id) in self.index.due(None, now).unwrap() {
            if self.one_in(4) {
                continue;
            }
            self.index.apply(id, Change::Claim, now).unwrap();
            self.index.apply(id, Change::Commit, now).unwrap();
            let accepted = Change::Answered { state: State::Accepted, reason: None, answer: vec![1], receipt: None };
            assert!(matches!(self.index.apply(id, accepted, now).unwrap(), Changed::Done(_)));
            let sent = self.sent.get_mut(&id).unwrap();
            sent.accepted += 1;
            if sent.accepted > 1 {
                self.wrong.push(format!("{id} arrived {} times", sent.accepted));
            }
        }
    }

    /// What both ends do each minute.
    fn house(&mut self) {
        let over = self.service.over(TICKET_LIFE + 2 * u64::from(LINGER_SECS)).unwrap_or(Over::NOTHING);
        let now = self.service.now();
        for id in self.index.overdue(over, 99).unwrap() {
            self.index.apply(id, Change::Expire, now).unwrap();
            self.ended(id, "the service", |sent| sent.received, self.service.machine.run, LINGER_SECS);
        }
        for id in self.index.disposable(99).unwrap() {
            self.index.disposed(vec![id]).unwrap();
        }
        while self.index.forget(over, 99).unwrap() > 0 {}
        self.index.forget_marks(over, 99).unwrap();

        let waiting = |upload: &hoop_spool::Upload| (!upload.state.is_final()).then_some(upload.id);
        let before = self.spool.all(waiting).unwrap();
        let time = Overdue::by(|life| self.gateway.over(life.into()));
        while self.spool.end_overdue(&Reason::new("x", ""), &time, self.gateway.now(), 99).unwrap() > 0 {}
        for id in before {
            if self.spool.get(id).unwrap().is_none_or(|upload| upload.state.is_final()) {
                self.ended(id, "the gateway", |sent| sent.stored, self.gateway.machine.run, KEEP_SECS);
            }
        }
    }

    /// One end has given up what it had taken.
    fn ended(&mut self, id: UploadId, end: &str, taken: fn(&Sent) -> Option<u64>, run: u64, promised: u32) {
        let kept = run - taken(&self.sent[&id]).unwrap();
        if kept + u64::from(GRACE_SECS) + SLACK < u64::from(promised) {
            self.wrong.push(format!("{end} gave {id} up after {kept} s"));
        }
    }

    /// All clocks are right from now on, and months pass: nothing is kept for ever.
    fn ends(&mut self) {
        for end in [&mut self.gateway, &mut self.service] {
            end.jumps(0, true);
        }
        for _ in 0..5 {
            self.runs(30 * DAY);
            self.house();
        }
        self.house();
        let (rows, uploads) = (self.index.counts().unwrap(), self.spool.all(|upload| Some(upload.id)).unwrap());
        let left = rows.iter().map(|(_, count)| count).sum::<u64>() + uploads.len() as u64;
        if left > 0 {
            self.wrong.push(format!("{left} are kept for ever"));
        }
        for id in self.sent.keys().copied().collect::<Vec<_>>() {
            self.deliver(id);
        }
        self.replay();
    }
}

/// An upload that is whole.
fn upload(id: UploadId, expires: UnixTime, now: UnixTime) -> Upload {
    let received = [ByteRange::new(0, 9)].into_iter().collect();
    Upload { received, ..Upload::begun(id, vec![1], 9, expires, now) }
}

/// So many jumps in one world; what went wrong.
fn world(seed: u64, by: By, jumps: usize) -> (Vec<String>, [u64; 3]) {
    let mut world = World::new(seed, by);
    for _ in 0..jumps {
        world.jump();
    }
    world.ends();
    let of = |count: fn(&&Sent) -> bool| world.sent.values().filter(count).count() as u64;
    let counts = [of(|sent| sent.stored.is_some()), of(|sent| sent.received.is_some()), of(|sent| sent.accepted > 0)];
    (world.wrong, counts)
}

fn jumps() -> usize {
    std::env::var("HOOP_JUMPS").map_or(500, |jumps| jumps.parse().expect("HOOP_JUMPS is a number"))
}

#[test]
fn clocks_that_jump_at_both_ends_lose_and_repeat_nothing() {
    let first = std::env::var("HOOP_SEED").map_or(0, |seed| seed.parse().expect("HOOP_SEED is a number"));
    let (mut made, mut seed, mut total) = (0, first, [0; 3]);
    while made < jumps() {
        let jumps = WORLD.min(jumps() - made);
        let (wrong, counts) = world(seed, By::Judgement, jumps);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        (made, seed) = (made + jumps, seed + 1);
    }
    let [stored, received, accepted] = total;
    println!("{made} jumps: {stored} stored at the gateway, {received} received by the service, {accepted} accepted");
    assert!(accepted > made as u64 / 4, "most of it arrives");
}

#[test]
fn with_the_wall_clock_alone_jumps_lose_and_repeat_uploads() {
    let wrong: Vec<String> = (0..20).flat_map(|seed| world(seed, By::Wall, WORLD).0).collect();
    for what in ["arrived 2 times", "the gateway gave", "the service gave", "was refused"] {
        assert!(wrong.iter().any(|wrong| wrong.contains(what)), "{what}: {wrong:#?}");
    }
}
