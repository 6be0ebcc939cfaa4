//! Flows over carriers: byte streams between a device and a server that outlive the connections which carry them.
//!
//! A *flow* is two streams of bytes and a name (`docs/flow.md`). *Carriers* ([`hoop_carrier::Carrier`]) are connections, and come and go: a
//! [`Device`] opens flows and attaches them to what carriers there are, a [`Server`] takes carriers and gives the flows that come over them. To the
//! application a flow is a [`FlowStream`], which reads and writes like a TCP connection, and does not break when the network does.
//!
//! ```
//! use hoop_endpoint::{Device, DeviceConfig, DeviceKey, FlowOptions, DeviceId, Server, ServerConfig, Use};
//! use std::{collections::HashMap, sync::Arc};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // Drawn when device and server were introduced.
//! let (host, key) = (DeviceId([1; 20]), DeviceKey([2; 32]));
//! let server = Server::new(ServerConfig::new(Arc::new(HashMap::from([(host, key)]))));
//! let device = Device::new(DeviceConfig::new(host, key));
//!
//! // A flow is there before any connection is.
//! let mut flow = device.open("echo", FlowOptions::default())?;
//! flow.write_all(b"hello, ").await?;
//!
//! // Carriers come from a listener and a dialler; these are two ends within the process.
//! let connect = |binding| {
//!     let (ours, theirs) = hoop_carrier::memory_pair(hoop_flow::Binding(binding));
//!     server.serve(Arc::new(theirs), "lan");
//!     device.add_carrier(Arc::new(ours), Use::Normal, "wifi")
//! };
//! let first = connect([1; 32]);
//! let mut served = server.accept().await.expect("a flow");
//! assert_eq!(served.service(), "echo");
//!
//! // The connection goes, another comes: neither end notices.
//! device.remove_carrier(first);
//! flow.write_all(b"world").await?;
//! flow.shutdown().await?;
//! connect([2; 32]);
//! let mut text = String::new();
//! served.read_to_string(&mut text).await?;
//! assert_eq!(text, "hello, world");
//! served.shutdown().await?;
//! flow.finished().await?;
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # What is where
//!
//! [`hoop_flow::Flow`] is the machine: it knows offsets, lanes and frames, and no bytes, clock or socket. Here each flow has its machine and its two
//! buffers under one lock, which is never held while anything is waited for; each lane has two tasks, one that reads and one that writes; and each end
//! has one task that looks after flows as time passes. Bytes stay in the buffers that they came in.
//!
//! # Which carrier
//!
//! A flow is carried by the best of the device's carriers: one that answers rather than a silent one, one of the network that it prefers, a normal one
//! rather than a backup, the one that it is on rather than another, the newest. It is attached to the new one before it leaves the old. With
//! [`FlowOptions::multipath`] it is carried by all of them.
//!
//! # Restarts
//!
//! What a process had in memory is lost when it ends. To continue its flows, an application stores what it has read, and calls [`FlowStream::keep`].
//! It must also be able to write again what it wrote: see [`Device::restore`]. A server can leave this to a store ([`AckPolicy::Stored`]). Bytes are then
//! on disk before they are acknowledged, and the next server's application reads the rest.
//!
//! Rooms, each importing only those before it: `error`, `options`, `clock`, `memory`, `flow`, `park`, `stream`, `timers`, `lane`, `device`, `server`.

mod clock;
mod device;
mod error;
mod flow;
mod lane;
mod memory;
mod options;
mod park;
mod server;
mod stream;
mod timers;

pub use clock::Clock;
pub use device::{CARRIERS_MAX, CarrierStatus, DEVICE_FLOWS_MAX, Device, DeviceConfig, OpenError};
pub use error::FlowError;
pub use flow::CarrierId;
pub use hoop_flow::frame::{Refusal, Use};
pub use hoop_flow::{DeviceId, DeviceKey, FlowId, FlowName, Record, ended};
pub use options::{
    AckPolicy, DEADLINE_GRACE, FlowEvent, FlowOptions, FlowStats, Network, NetworkStats, Networks, Status,
};
pub use park::{ATTACHMENT_MAX, ParkError};
pub use server::{DeviceKeys, FLOWS_OF_DEVICE, GREETING_MAX, Server, ServerConfig, ServerLimits};
pub use stream::{FlowMeter, FlowReader, FlowStream, FlowTally, FlowWriter};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
