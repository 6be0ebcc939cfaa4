//! A table beside a plain map: random operations, with a disk that is a list. `HOOP_SEED` repeats a run.
#![allow(missing_docs)]

use hoop_flow::{DeviceId, FlowId, FlowKey, FlowName, Record};
use hoop_flow_table::{Due, Ends, Full, Id, Image, Life, Lifetimes, Limits, Place, Table};
use hoop_units::UnixTime;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};

const LIMITS: Limits = Limits { flows: 100, flows_per_host: 12, memory: 8_000, ends: 20, ends_per_host: 3 };

const LIFETIMES: Lifetimes = Lifetimes { quiet: 30, grace: 100, age: 5_000, ends: 300 };

/// A hash of few bits: many names share one.
#[derive(Clone)]
struct Poor(u64);

impl BuildHasher for Poor {
    type Hasher = PoorHasher;

    fn build_hasher(&self) -> PoorHasher {
        PoorHasher(0, self.0)
    }
}

struct PoorHasher(u64, u64);

impl Hasher for PoorHasher {
    fn finish(&self) -> u64 {
        self.0 % self.1
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    }
}

fn name(number: u32) -> FlowName {
    FlowName { device: DeviceId([(number % 10) as u8; 20]), flow: FlowId(u64::from(number)) }
}

fn image(number: u32, rng: &mut Pcg64Mcg, is_attached: bool, now: UnixTime) -> Image {
    let mut some = |most: u64| rng.next_u64() % most;
    let record = Record {
        name: name(number),
        key: FlowKey([number as u8; 32]),
        is_device: false,
        epoch: some(1 << 60),
        acked: some(100),
        available: some(100),
        written: some(100),
        finished: some(2) == 0,
        credit: some(100),
        kept: some(100),
        consumed: some(100),
        granted: some(100),
        end: (some(2) == 0).then_some(7),
        deadline: (some(2) == 0).then(|| UnixTime(now.as_secs() + some(3_000) as u32)),
        size: None,
        reset: None,
        ended: None,
        opening: None,
    };
    let attachment = vec![number as u8; number as usize];
    Image::new(&record, &attachment, some(2) == 0, is_attached, now).unwrap()
}

fn bytes(image: &Image) -> Vec<u8> {
    let mut out = Vec::new();
    image.put(&mut out);
    out
}

/// What the model knows of a flow.
struct Known {
    bytes: Vec<u8>,
    life: Life,
    expires: u32,
}

struct World {
    table: Table<Poor>,
    model: HashMap<u32, Known>,
    ended: HashMap<u32, u64>,
    /// What was written, by place.
    disk: Vec<Vec<u8>>,
    /// What lies before it is synced.
    synced: Place,
    rng: Pcg64Mcg,
    now: UnixTime,
}

impl World {
    fn find(&self, number: u32) -> Option<Id> {
        let is_at =
            |place: Place| Ok::<_, Infallible>(Image::parse(&self.disk[place as usize]).unwrap().name == name(number));
        self.table.find(name(number), is_at).unwrap()
    }

    fn put(&mut self, number: u32) {
        let life = [Life::Live, Life::Quiet, Life::Parked][self.rng.next_u32() as usize % 3];
        let image = image(number, &mut self.rng, life != Life::Parked, self.now);
        let (id, synced) = (self.find(number), self.synced);
        let of_host = self.model.keys().filter(|known| *known % 10 == number % 10).count();
        let is_known = self.model.contains_key(&number);
        assert_eq!(id.is_some(), is_known, "flow {number}");
        match self.table.put(id, &image, life, |place| place < synced) {
            Ok(id) => {
                assert!(is_known || (self.model.len() < LIMITS.flows && of_host < LIMITS.flows_per_host as usize));
                let parked = self.now.as_secs() + LIFETIMES.age;
                let deadline = image.deadline().map_or(u32::MAX, |at| at.as_secs() + LIFETIMES.grace);
                let expires = if life == Life::Parked { parked.min(deadline) } else { u32::MAX };
                self.model.insert(number, Known { bytes: bytes(&image), life, expires });
                self.ended.remove(&number);
                // Now and then the disk takes nothing.
                if !self.rng.next_u32().is_multiple_of(8) {
                    self.write(id);
                }
            }
            Err(Full::Flows) => assert!(!is_known && self.model.len() >= LIMITS.flows),
            Err(Full::Host) => assert!(!is_known && of_host >= LIMITS.flows_per_host as usize),
            Err(Full::Memory) => assert!(self.table.usage().memory > LIMITS.memory - 500, "there was room"),
        }
    }

    fn write(&mut self, id: Id) {
        self.disk.push(bytes(&self.table.image(id).expect("what is written is in memory")));
        self.table.written(id, self.disk.len() as Place - 1);
    }

    fn take(&mut self, number: u32) {
        let Some(id) = self.find(number) else { return assert!(!self.model.contains_key(&number)) };
        let known = self.model.get_mut(&number).expect("it is known");
        let read = match self.table.image(id) {
            Some(image) => {
                assert_eq!(bytes(&image), known.bytes, "flow {number} in memory");
                None
            }
            None => {
                let place = self.table.place(id).expect("what is spilled has a place");
                assert_eq!(self.disk[place as usize], known.bytes, "flow {number} on disk");
                Some(Image::parse(&self.disk[place as usize]).unwrap())
            }
        };
        let synced = self.synced;
        if self.table.take(id, read.as_ref(), |place| place < synced).is_ok() {
            // Being attached is no change of what is kept.
            let image = self.table.image(id).unwrap();
            assert!(image.is_attached);
            (known.bytes, known.life, known.expires) = (bytes(&image), Life::Live, u32::MAX);
        }
    }

    fn remove(&mut self, number: u32) {
        let Some(id) = self.find(number) else { return };
        self.table.remove(id, name(number), Some((u64::from(number), self.now)));
        self.model.remove(&number);
        self.ended.insert(number, number.into());
    }

    fn expire(&mut self) {
        while let Some(due) = self.table.due(self.now.into()) {
            match due {
                Due::Park(name) => {
                    let known = self.model.get_mut(&(name.flow.0 as u32)).expect("it is known");
                    assert_eq!(known.life, Life::Quiet);
                    // It is told again after as long.
                    known.bytes[8..12].copy_from_slice(&self.now.as_secs().to_be_bytes());
                }
                Due::Expired(id) => {
                    let found = self.table.image(id).map(|image| image.name);
                    let place = self.table.place(id);
                    let read = |place: Place| Image::parse(&self.disk[place as usize]).unwrap().name;
                    let name = found.unwrap_or_else(|| read(place.expect("it is somewhere")));
                    self.table.remove(id, name, None);
                    let known = self.model.remove(&(name.flow.0 as u32)).expect("it is known");
                    assert!(known.expires <= self.now.as_secs(), "it expires {} too early", known.expires);
                }
            }
        }
        assert!(self.model.values().all(|known| known.expires > self.now.as_secs()), "one has not expired");
    }

    fn step(&mut self) {
        let number = self.rng.next_u32() % 160;
        match self.rng.next_u32() % 16 {
            0..6 => self.put(number),
            6..9 => self.take(number),
            9 => self.remove(number),
            10 => self.synced = self.disk.len() as Place,
            11 => {
                while let Some(id) = self.table.first_dirty() {
                    self.write(id)
                }
            }
            12 => {
                let synced = self.synced;
                self.table.spill(|place| place < synced);
            }
            13 => self.lose(),
            14 => self.now = self.now.plus_secs(self.rng.next_u32() % 60),
            _ => self.expire(),
        }
        let usage = self.table.usage();
        assert_eq!(usage.flows, self.model.len());
        // What a flow in memory is told of besides, its end say, is not refused.
        assert!(usage.memory <= LIMITS.memory + usage.resident * 16, "{} bytes are held", usage.memory);
        assert!(usage.ends <= LIMITS.ends);
        let hosts: std::collections::HashSet<u32> = self.model.keys().map(|number| number % 10).collect();
        assert_eq!(usage.hosts, hosts.len());
        for host in 0..10 {
            let of_host = (0..16).filter(|flow| self.table.ended(name(10 * flow + host)).is_some()).count();
            assert!(of_host <= LIMITS.ends_per_host, "{of_host} ends of one device");
        }
        if let Some(code) = self.table.ended(name(number)) {
            assert_eq!(self.ended.get(&number), Some(&code));
        }
    }

    /// A sync fails: what was written since the last is gone.
    fn lose(&mut self) {
        let synced = self.synced;
        self.table.lost(|place| place >= synced);
        self.disk[synced as usize..].iter_mut().for_each(Vec::clear);
    }
}

#[test]
fn a_table_knows_what_a_plain_map_does_and_keeps_its_limits() {
    let given = std::env::var("HOOP_SEED").ok().map(|seed| seed.parse().expect("HOOP_SEED is a number"));
    let seed = given.unwrap_or_else(|| u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()));
    println!("HOOP_SEED={seed}");
    for world in 0..40 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed + world);
        let hashes = [4, 64, u64::MAX][rng.next_u32() as usize % 3];
        let mut world = World {
            table: Table::new(LIMITS, LIFETIMES, Poor(hashes)),
            model: HashMap::new(),
            ended: HashMap::new(),
            disk: Vec::new(),
            synced: 0,
            rng,
            now: UnixTime(1_000_000),
        };
        (0..3_000).for_each(|_| world.step());
        (0..160).for_each(|number| world.take(number));
    }
}

/// Beside a plain list of all that ended.
#[test]
fn a_device_whose_flows_end_by_the_thousand_takes_no_place_of_others() {
    const MOST: usize = 64;
    const OF_HOST: usize = 8;
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut ends = Ends::new(MOST, OF_HOST, 1_000, std::hash::RandomState::new());
    let mut all: Vec<(FlowName, u64, UnixTime)> = Vec::new();
    let (mut now, quiet) = (UnixTime(1), FlowName { device: DeviceId([99; 20]), flow: FlowId(0) });
    ends.insert(quiet, 0, now);
    all.push((quiet, 0, now));
    for code in 1..5_000_u64 {
        let host = (rng.next_u32() % 6) as u8;
        let name = FlowName { device: DeviceId([host; 20]), flow: FlowId(u64::from(rng.next_u32() % 40)) };
        all.retain(|(known, ..)| *known != name);
        match rng.next_u32() % 8 {
            0 => ends.remove(name),
            _ => {
                ends.insert(name, code, now);
                all.push((name, code, now));
                let of_host = |(known, ..): &(FlowName, u64, UnixTime)| known.device == name.device;
                if all.iter().filter(|known| of_host(known)).count() > OF_HOST {
                    all.remove(all.iter().position(of_host).expect("there are some"));
                }
            }
        }
        assert_eq!(ends.len(), all.len());
        all.iter().for_each(|(name, code, _)| assert_eq!(ends.get(*name), Some(code)));
        assert!(ends.get(quiet).is_some(), "it was pushed out by {code} others");
    }
    now = now.plus_secs(1_000);
    ends.forget_before(now);
    assert!(ends.is_empty());
    for host in 0..=MOST as u8 {
        ends.insert(FlowName { device: DeviceId([host; 20]), flow: FlowId(0) }, 1, now);
    }
    assert_eq!((ends.len(), ends.get(FlowName { device: DeviceId([0; 20]), flow: FlowId(0) })), (MOST, None));
}

#[test]
fn a_flow_takes_no_more_than_it_is_said_to() {
    const FLOWS: u64 = 100_000;
    let limits = Limits { flows: usize::MAX, flows_per_host: u32::MAX, memory: usize::MAX, ends: 0, ends_per_host: 0 };
    let mut table = Table::new(limits, LIFETIMES, std::hash::RandomState::new());
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut parked = image(0, &mut rng, false, UnixTime(1));
    let place = |number: u64| number as Place;
    for number in 0..FLOWS {
        let mut host = [0; 20];
        host[..8].copy_from_slice(&(number / 10).to_le_bytes());
        let name = FlowName { device: DeviceId(host), flow: FlowId(number) };
        let (mut record, ..) = parked.record().unwrap();
        (record.name, record.end) = (name, None);
        parked = Image::new(&record, &[7; 80], false, false, UnixTime(1)).unwrap();
        let id = table.put(None, &parked, Life::Parked, |_| false).unwrap();
        table.written(id, place(number));
    }
    let full = table.usage();
    let each = full.allocated as f64 / FLOWS as f64;
    assert!(each < 200.0 + 80.0, "{each} bytes for a flow in memory with an attachment of 80");
    while table.spill(|_| true) {}
    let usage = table.usage();
    assert_eq!((usage.flows, usage.resident, usage.memory), (FLOWS as usize, 0, 0));
    let hosts = usage.hosts * (24 + 12);
    let each = (usage.allocated - hosts) as f64 / FLOWS as f64;
    assert!(each <= 33.0, "{each} bytes for a flow that is spilled");
}
