//! A proxy on loopback whose connections are flows: an [`Agent`] takes what programs ask of it, by HTTP or SOCKS5, and a relay connects to where they
//! want to go, or makes their requests. A connection outlives the network below it, as with `hoop run`, for each program that can use a proxy.
//!
//! Rooms, each importing only those before it: `owner`, `shares`, `guests`, `socket`, `destination`, `entrusted`, `authority`, `failure`, `socks`, `upstream`, `tunnel`, `tun`, `patient_report`, `local`, `patient`, `question`, `upload`, `exchange`, `forward`, `spoken`, `entrusting`, `proxy`, `agent`.

mod agent;
mod authority;
mod destination;
mod entrusted;
mod entrusting;
mod exchange;
mod failure;
mod forward;
mod guests;
mod local;
mod owner;
mod patient;
mod patient_report;
mod proxy;
mod question;
mod shares;
mod socket;
mod socks;
mod spoken;
mod tun;
mod tunnel;
mod upload;
mod upstream;

pub use agent::{Agent, AgentConfig, AgentError, DEFAULT_ADDRESS};
pub use authority::{AuthorityError, AuthorityFile};
pub use entrusted::{EntrustedHost, NoHost};
pub use guests::CONNECTIONS_MAX;
pub use local::title;
pub use owner::Owners;
pub use patient::{NoUrl, PatientConfig, PatientError, PatientUrl};
pub use patient_report::{PatientReport, PatientStage};
pub use tun::{TunConfig, TunError, TunReport};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
