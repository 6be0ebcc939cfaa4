//! The operating system's clocks, behind a type that a test can replace: [`Clock`]. Whoever opens a store keeps its clock beside it ([`Clock::keep`]):
//! then time is judged by a [`Timekeeper`](hoop_timekeeper::Timekeeper), and a wall clock that jumps ends nothing (`docs/time.md`).

mod clock;
mod kept;
mod readings;

pub use clock::Clock;
pub use hoop_timekeeper::Over;
pub use readings::Readings;
