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
//!
//! Rooms, each importing only those before it: `config`, `private`, `wire`, `request`, `outcome`, `gateway`, `seal`, `ticket`, `state`, `send`, `client`,
//! `fuzzing`, `flow`.

mod client;
mod config;
#[cfg(feature = "flow")]
pub mod flow;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod outcome;
mod private;
mod request;
mod seal;
mod send;
mod state;
mod ticket;
mod wire;

pub use client::Client;
pub use client::error::{PushError, StatusError};
pub use client::receipt::{Asked, KeptReceipt, KeptRequest, ReceiptError, check_body};
pub use client::release::ReleaseError;
pub use config::{ClientConfig, GatewayChoice};
pub use gateway::discovery::{GATEWAY_NAME, GATEWAY_PORT};
pub use outcome::{Event, GatewayIdentity, OnEvent, Outcome, PushOptions, Timings, WaitFor, Way};
pub use request::multipart::{Part, content_type_of};
pub use request::pieces::BodyPiece;
pub use request::plaintext::Plaintext;
pub use request::source::{Content, SourceError};
pub use request::upload::{Credentials, Measured, Payload, Upload, UploadError};
pub use seal::sealed::{Meter, Sealed};
pub use state::resume_state::ResumeError;
pub use state::store::{SecretText, UploadRecord};
pub use ticket::{IssuedTicket, TICKETS_MAX, TicketsError};
pub use wire::status::{Answer, Reason, State, Status};
pub use wire::{LinkError, Refusal};

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
