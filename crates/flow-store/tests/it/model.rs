//! Random operations on the store on disk and on the one in memory, which must answer alike, through restarts.

use crate::{folder, kept, name, seed, settings};
use hoop_flow::FlowName;
use hoop_flow_store::{ByteStore, FlowStore, Found, Life, Limits, MemoryStore, Store, StoreError, When};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const FLOWS: u64 = 60;

struct World {
    store: Store,
    model: MemoryStore,
    settings: hoop_flow_store::Settings,
    rng: Pcg64Mcg,
    /// What was told last of each flow.
    written: u64,
}

fn byte(name: FlowName, offset: u64) -> u8 {
    (offset.wrapping_mul(31) ^ name.flow.0.wrapping_mul(7)) as u8
}

fn same(found: &Found, expected: &Found, what: FlowName) {
    assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{what:?}");
}

impl World {
    fn some(&mut self, most: u64) -> u64 {
        self.rng.next_u64() % most
    }

    fn put(&mut self, number: u64) {
        self.written += 1;
        let life = [Life::Live, Life::Quiet, Life::Parked][self.some(3) as usize];
        let when = if self.some(4) == 0 { When::Synced } else { When::Later };
        let mut kept = kept(number, self.written, true);
        let held = self.model.held(name(number));
        (kept.record.consumed, kept.record.kept) = held.map_or((0, 0), |held| (held.start, held.end));
        self.store.put(&kept, life, when).unwrap();
        self.model.put(&kept, life, when).unwrap();
    }

    fn append(&mut self, number: u64) {
        let (name, Found::Kept(_)) = (name(number), self.model.take(name(number)).unwrap()) else { return };
        let end = self.model.held(name).map_or(0, |held| held.end);
        let (offset, len) = (end.saturating_sub(self.some(50)), 51 + self.some(3_000) * self.some(40) / 20);
        let offset = offset.max(self.model.held(name).map_or(0, |held| held.start));
        let bytes: Vec<u8> = (offset..offset + len).map(|at| byte(name, at)).collect();
        assert_eq!(self.store.append(name, offset, &bytes).unwrap(), self.model.append(name, offset, &bytes).unwrap());
        let gap = self.store.append(name, end + len + 4_000, b"x");
        assert!(matches!(gap, Err(StoreError::Gap { .. })), "{gap:?}");
    }

    fn read(&mut self, number: u64) {
        let name = name(number);
        // What is consumed wholly may be forgotten: the record says it.
        let held = self.store.held(name).filter(|held| !held.is_empty());
        assert_eq!(held, self.model.held(name).filter(|held| !held.is_empty()), "{name:?}");
        let Some(held) = self.model.held(name) else { return };
        let from = held.start + self.some(held.len() + 1);
        let mut bytes = vec![0; self.some(9_000) as usize];
        let len = self.store.read(name, from, &mut bytes).unwrap();
        assert_eq!(len as u64, (held.end - from).min(bytes.len() as u64));
        for (at, found) in (from..).zip(&bytes[..len]) {
            assert_eq!(*found, byte(name, at), "{name:?}, byte {at}");
        }
    }

    fn consume(&mut self, number: u64) {
        let Some(held) = self.model.held(name(number)) else { return };
        let offset = held.start + self.some(held.len() + 1);
        self.store.consume(name(number), offset).unwrap();
        self.model.consume(name(number), offset).unwrap();
    }

    fn step(&mut self) {
        let number = self.some(FLOWS);
        match self.some(32) {
            0..10 => self.put(number),
            10..16 => self.append(number),
            16..20 => self.read(number),
            20..25 => self.consume(number),
            25..27 => {
                same(&self.store.take(name(number)).unwrap(), &self.model.take(name(number)).unwrap(), name(number))
            }
            27 if matches!(self.model.take(name(number)).unwrap(), Found::Kept(_)) => {
                self.store.remove(name(number), number).unwrap();
                self.model.remove(name(number), number).unwrap();
            }
            28 => drop(self.store.spill().unwrap()),
            29 => drop(self.store.tick().unwrap()),
            30 if self.some(4) == 0 => self.restart(),
            _ => self.store.sync().unwrap(),
        }
    }

    /// All that was written is there, synced or not: the machine goes on.
    fn restart(&mut self) {
        self.store.tick().unwrap();
        let folder = self.settings.folder.clone();
        let replaced = std::mem::replace(&mut self.store, Store::open(&settings(&folder.join("other"))).unwrap());
        drop(replaced);
        self.store = Store::open(&self.settings).unwrap();
        assert_eq!(self.store.damages(), []);
        assert_eq!(hoop_flow_store::check(&folder).unwrap().damages, []);
    }
}

#[test]
fn the_store_on_disk_answers_as_the_one_in_memory_does_through_restarts() {
    let seed = seed();
    for world in 0..4 {
        let folder = folder();
        let mut settings = settings(folder.path());
        // Some eight flows in memory.
        settings.limits = Limits { memory: 60 * 300, ..settings.limits };
        let store = Store::open(&settings).unwrap();
        let rng = Pcg64Mcg::seed_from_u64(seed + world);
        let mut world = World { store, model: MemoryStore::default(), settings, rng, written: 0 };
        (0..8_000).for_each(|_| world.step());
        world.restart();
        for number in 0..FLOWS {
            world.read(number);
            same(&world.store.take(name(number)).unwrap(), &world.model.take(name(number)).unwrap(), name(number));
        }
        let usage = world.store.usage();
        let most = (8 + 2 + 2 * usage.bytes.div_ceil(131_200)) * 131_200;
        assert!(usage.bytes_disk <= most, "{} bytes on disk for {}", usage.bytes_disk, usage.bytes);
    }
}
