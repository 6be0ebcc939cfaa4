//! The store on disk, from outside.
#![allow(missing_docs)]

mod damage;
mod disk;
mod model;
mod scale;

use hoop_flow::{FlowId, FlowKey, FlowName, HostId, Record};
use hoop_flow_store::{Kept, Settings};
use hoop_units::UnixTime;
use std::path::Path;

/// Flow `number` of one of ten devices.
pub fn name(number: u64) -> FlowName {
    FlowName { host: HostId([(number % 10) as u8; 20]), flow: FlowId(number) }
}

pub fn kept(number: u64, written: u64, spools: bool) -> Kept {
    let record = Record {
        name: name(number),
        key: FlowKey([number as u8; 32]),
        is_device: false,
        epoch: 1,
        acked: 0,
        available: 0,
        written,
        finished: false,
        credit: 65_536,
        kept: 0,
        consumed: 0,
        granted: 65_536,
        end: None,
        deadline: None,
        size: None,
        reset: None,
        ended: None,
        opening: None,
    };
    Kept { record, attachment: format!("https://films.example/{number}").into_bytes(), spools }
}

/// Short files, so that they begin and go often.
pub fn settings(folder: &Path) -> Settings {
    Settings { segment_len: 1, clock: || UnixTime(1_000_000), ..Settings::new(folder) }
}

pub fn seed() -> u64 {
    let given = std::env::var("HOOP_SEED").ok().map(|seed| seed.parse().expect("HOOP_SEED is a number"));
    let seed = given.unwrap_or_else(|| u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()));
    println!("HOOP_SEED={seed}");
    seed
}

/// A folder in memory, where there is one.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}
