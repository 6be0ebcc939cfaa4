//! A simulated link: rate, delay, jitter, loss, queue, schedule.
//!
//! A [`Link`] is one direction of a wire as a pure machine. Packets go in, and come out later or not at all:
//!
//! ```text
//!                 drop-tail         transmitter        loss         delay line
//!  handle_input ──▶ queue ──────▶ rate or trace ─────▶ dice ─────▶ delay, jitter ──▶ poll_output
//!                    │ full                              │ lost
//!                    ▼                                   ▼
//!                 dropped                             dropped
//! ```
//!
//! - **Exact time.** Everything is reckoned from when things were due, in nanoseconds, not from when the caller came:
//!   a link that was busy until T sends its next packet from T on, even if [`Link::handle_timeout`] came late. So a
//!   real-time shell's lateness moves single packets but never adds up.
//! - **Deterministic.** Dice come from a seed; the same seed and the same calls give the same result.
//! - **Bounded.** The queue is bounded by its [`QueueLimit`], the delay line by [`IN_FLIGHT_PACKETS_MAX`], a trace by
//!   [`TRACE_OPPORTUNITIES_MAX`]. What is past a bound is dropped and counted.
//!
//! A packet is whatever has a size ([`Packet`]): bytes, or a [`Parcel`] around a number in a simulation.
//!
//! ```
//! use hoop_netem::{Link, LinkConfig, Parcel};
//! use hoop_units::{Bitrate, Duration, Timestamp};
//!
//! let config = LinkConfig::new().rate(Bitrate::mbps(12)).delay(Duration::from_millis(10));
//! let mut link = Link::new(config, 7, Timestamp::ZERO);
//! link.handle_input(Parcel::new("hello", 1_500), Timestamp::ZERO);
//! // One millisecond to serialise 1,500 bytes at 12 Mbit/s, ten to arrive.
//! let deadline = link.poll_timeout().expect("a packet is under way");
//! link.handle_timeout(deadline); // the last bit has left
//! let deadline = link.poll_timeout().expect("a packet is under way");
//! assert_eq!(deadline, Timestamp::from_millis(11));
//! link.handle_timeout(deadline);
//! assert_eq!(link.poll_output().expect("it is due").packet.content, "hello");
//! ```
#![no_std]

extern crate alloc;

mod config;
mod counters;
mod delay;
mod instant;
mod link;
mod loss;
mod packet;
mod queue;
mod rate;
mod schedule;
mod trace;
mod transmitter;

pub use config::{LinkConfig, QUEUE_BYTES_DEFAULT, QueueLimit};
pub use counters::Counters;
pub use delay::IN_FLIGHT_PACKETS_MAX;
pub use link::{Delivery, Link};
pub use loss::{GilbertElliott, Loss, Probability, ProbabilityError};
pub use packet::{Packet, Parcel};
pub use rate::Rate;
pub use schedule::{Change, Schedule};
pub use trace::{OPPORTUNITY_BYTES, TRACE_OPPORTUNITIES_MAX, Trace, TraceError};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
