//! The sidecar in front of a web application: it issues tickets, opens what gateways deliver, replays it once as the
//! plain request that it is, and keeps the answer. Everything else passes through to the application.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = hoop_service::load_keyring("/etc/hoop/kws".as_ref())?;
//! let (upstream, origin) = ("http://127.0.0.1:8000".parse()?, "https://photos.example".parse()?);
//! let config = hoop_service::Config::new(upstream, origin, keys, "/var/lib/hoop-service".into());
//! let (stop, shutdown) = hoop_http::shutdown();
//! let service = hoop_service::Service::open(config).await?;
//! println!("listening on {}", service.address());
//! service.run(shutdown).await;
//! # drop(stop); Ok(()) }
//! ```
//!
//! How it is built: `admit`, `head`, `fields` and `paths` (pure) judge what comes in, and `told` (pure) what a plain request may say; `source`, `post` and `intake` take it; `state` keeps it, and `room` says how much of the disk who may have;
//! `replay` hands it to the application and `worker` says when; `rules` (pure) and `verdict` say what its answer means;
//! `reload` takes another configuration while it runs; `csrf` (pure) and `renew` give what is released its form's fresh token; `clean` clears away, and `kept` before its time where room is needed; `keep_alive` asks for sessions. `owner` says whose an upload is; `uploads`, `listing`, `events`, `settings` and `pages` show it to them.
//! `docs/protocol.md` has the formats, `docs/services.md` the operator's side.

mod api;
mod config;
mod core;
#[doc(hidden)]
pub mod fuzzing;
mod keys;
mod model;
mod policy;
mod receive;
mod reload;
mod replay;
mod service;
mod store;

pub use config::{Config, TlsFiles};
pub use hoop_seal::signing::GatewayId;
pub use keys::{KeyFileError, load_keyring};
pub use policy::permits::{GATEWAYS_MAX, Permits};
pub use policy::rules_file::{Routes, RoutesError};
pub use reload::Reload;
pub use service::{OpenServiceError, Service};
