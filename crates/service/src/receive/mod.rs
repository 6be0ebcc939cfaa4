//! Sealed uploads come in: records are opened as they come, written, synced and noted, within the room that there is.

pub mod gc;
pub mod in_flight;
pub mod intakes;
pub mod room;
pub mod source;
