//! The store on disk, from outside.
#![allow(missing_docs)]

mod clocks;
mod damage;
mod disk;
mod model;
mod scale;

use hoop_flow::{DeviceId, FlowId, FlowKey, FlowName, Record};
use hoop_flow_store::{Clock, Kept, Settings};
use hoop_powercut::{folder, seed};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// Flow `number` of one of ten devices.
pub fn name(number: u64) -> FlowName {
    FlowName { device: DeviceId([(number % 10) as u8; 20]), flow: FlowId(number) }
}

pub fn kept(number: u64, written: u64, spools: bool) -> Kept {
    let fresh = Record::of_server(name(number), FlowKey([number as u8; 32]));
    let record = Record { epoch: 1, written, credit: 65_536, granted: 65_536, ..fresh };
    Kept { record, attachment: format!("https://films.example/{number}").into_bytes(), spools }
}

/// Short files, so that they begin and go often.
pub fn settings(folder: &Path) -> Settings {
    Settings { segment_len: 1, clock: right(|| 1_000_000), ..Settings::new(folder) }
}

/// A clock that is right, whatever it says, in seconds since 1970.
pub fn right(now: fn() -> u32) -> Clock {
    Clock::with_wall(move || UNIX_EPOCH + Duration::from_secs(now().into()))
}
