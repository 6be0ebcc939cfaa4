//! Flows: byte streams that outlive the connections which carry them (the session layer of D²TP; `docs/flow.md` has the frames).
//!
//! A flow has two streams of bytes between a device and a server, and a name. *Carriers* (connections) come and go; an attachment of a flow
//! to a carrier is a *lane*. A flow may have several lanes, or none for weeks.
//!
//! ```text
//!             OPEN, ATTACHED                   both streams whole and acknowledged: END
//!  (device) ───────────────▶ attached ──────────────────────────────────────────────▶ ended
//!                             │    ▲                                                    ▲
//!           last lane is gone,│    │RESUME, ATTACHED                                    │ RESET, deadline,
//!                        PARK ▼    │                                                    │ what was lost
//!                           offline ────────────────────────────────────────────────────┘
//! ```
//!
//! Everything here is pure: no clock, socket, file or dice. [`Flow`] knows offsets and not bytes; the server's disk, or a cached
//! object on it, *is* the buffer that others would keep in memory.
#![no_std]

extern crate alloc;

pub mod flow;
pub mod frame;
mod id;
mod proof;
mod receive;
mod record;
mod send;
mod varint;

pub use flow::{Event, Flow, LANES_MAX, LaneId, Options, Transmit, Violation, ended};
pub use id::{DeviceId, FlowId, FlowName};
pub use proof::{Binding, DeviceKey, EXPORTER_LABEL, FlowKey, PROOF_LEN};
pub use receive::{GAPS_MAX, Incoming};
pub use record::Record;
pub use send::{CREDIT_FIRST, Outgoing};
pub use varint::{VARINT_MAX, VarintError, put_varint, take_varint};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
