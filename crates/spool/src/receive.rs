//! Uploads that come: who is at which, what room there is for them, and the pens that write them.

pub mod intake;
pub mod leaving;
pub mod live;
pub mod lives;
pub mod payload;
pub mod room;
pub mod shared;
