//! Connections that outlive addresses, hours without a network, and restarts: flows (`docs/flow.md`).
//!
//! A device was introduced to its server once (`hoop introduce`, or [`introduce`]), and has a file about it. A [`Link`] keeps carriers to the server, QUIC or WebSocket, as long
//! as there are flows that want one; [`Device::open`] opens a flow, which reads and writes like a TCP connection.
//!
//! ```no_run
//! # async fn device() -> Result<(), Box<dyn std::error::Error>> {
//! use hoop_client::flow::{FlowEvent, FlowOptions, Introduction, Link, Networks, NetworkPath};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let link = Link::start(&Introduction::read("laptop.toml".as_ref())?, vec![NetworkPath::interface("wlan0"), NetworkPath::interface("wwan0")])?;
//! let options = FlowOptions { networks: Networks::Prefer("wlan0".into()), ..FlowOptions::default() };
//! let mut flow = link.device().open("films", options)?;
//! let mut events = flow.events();
//! tokio::spawn(async move {
//!     while let Ok(event) = events.recv().await {
//!         match event {
//!             FlowEvent::Offline { .. } => println!("waiting for a network"),
//!             FlowEvent::Resumed { after } => println!("back after {after:?}"),
//!             FlowEvent::CarrierChanged { from, to } => println!("from {from} to {to}"),
//!             _ => {}
//!         }
//!     }
//! });
//! flow.write_all(b"metropolis").await?;
//! flow.shutdown().await?;
//! let mut film = Vec::new();
//! flow.read_to_end(&mut film).await?;
//! println!("{:?}", flow.stats().networks);
//! # Ok(())
//! # }
//! ```
//!
//! The server: [`Listener`] is where carriers arrive, [`Server`] gives the flows that come over them.
//!
//! ```no_run
//! # async fn server(tls: rustls::ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
//! use hoop_client::flow::{Devices, Listener, Server, ServerConfig};
//! use std::sync::Arc;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let server = Arc::new(Server::new(ServerConfig::new(Arc::new(Devices::open("devices.toml".as_ref())?))));
//! let (listener, serving) = (Listener::bind("[::]:4668".parse()?, &tls).await?, server.clone());
//! tokio::spawn(async move {
//!     while let Ok(carrier) = listener.accept().await {
//!         serving.serve(carrier, "device");
//!     }
//! });
//! while let Some(mut flow) = server.accept().await {
//!     tokio::spawn(async move {
//!         let mut name = String::new();
//!         flow.read_to_string(&mut name).await?;
//!         flow.write_all(&tokio::fs::read("metropolis.webm").await?).await?;
//!         flow.shutdown().await?;
//!         flow.finished().await
//!     });
//! }
//! # Ok(())
//! # }
//! ```

pub use hoop_carrier::{Listener, Local, device_tls, server_tls};
pub use hoop_endpoint::*;
pub use hoop_relay::{Devices, Introduction, IntroductionError, Link, LinkError, NetworkPath, introduce};
