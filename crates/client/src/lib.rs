//! The Rust API for applications: seal an upload, hand it to the gateway on the LAN, leave, and ask later.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use hoop_client::{Client, ClientConfig, Part, Payload, PushOptions, Upload};
//!
//! let client = Client::new(ClientConfig { state_dir: Some("state".into()), ..ClientConfig::default() })?;
//! let form = Payload::Form(vec![Part::text("act", "bput"), Part::file("f", "holiday.mp4")]);
//! let upload = Upload::new("https://photos.example/".parse()?, form);
//! let outcome = client.push(&upload, &PushOptions::default(), std::sync::Arc::new(|_event| ())).await?;
//! println!("{}: follow it at {:?}", outcome.state, outcome.monitor);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Upload`] is the request as the application would send it; [`Client::push`] hands it over and returns an
//!   [`Outcome`]; [`Client::status`] asks later.
//! - [`Client::fetch_tickets`] makes ready for being offline.
//! - The module `flow` (feature `flow`) has connections that outlive the network, for what is no upload.
//! - Memory stays flat whatever the size: files are read, sealed and sent in frames ([`Sealed`]).

mod ahead;
mod client;
mod config;
mod discovery;
mod draft;
mod error;
#[cfg(feature = "flow")]
pub mod flow;
mod follow;
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod known;
mod multipart;
mod outcome;
mod place;
mod plain;
mod plaintext;
mod push;
mod receipt;
mod release;
mod saved;
mod sealed;
mod source;
mod status;
mod store;
mod tags;
mod ticket;
mod told;
mod transfer;
mod upload;
mod wire;

pub use client::Client;
pub use config::{ClientConfig, GatewayChoice};
pub use discovery::{GATEWAY_NAME, GATEWAY_PORT};
pub use error::PushError;
pub use follow::StatusError;
pub use multipart::{Part, content_type_of};
pub use outcome::{Event, GatewayIdentity, OnEvent, Outcome, PushOptions, Timings, WaitFor, Way};
pub use plaintext::Plaintext;
pub use receipt::{Asked, BodyPiece, KeptReceipt, KeptRequest, ReceiptError, check_body};
pub use release::ReleaseError;
pub use saved::ResumeError;
pub use sealed::{Meter, Sealed};
pub use source::{Content, SourceError};
pub use status::{Answer, Reason, State, Status};
pub use store::{SecretText, UploadRecord};
pub use ticket::{IssuedTicket, TICKETS_MAX, TicketsError};
pub use upload::{Credentials, Measured, Payload, Upload, UploadError};
pub use wire::{LinkError, Refusal};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
