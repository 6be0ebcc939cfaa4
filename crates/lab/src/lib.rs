//! A laboratory of hosts and links inside one machine: [`hoop_netem`]'s simulated link, driven in real time.
//!
//! A [`Lab`] is built from a [`Topology`]. Each host is a network namespace, each link a pair of TAP devices with a
//! thread between them that delays, paces, loses and queues packets as the link's [`LinkConfig`] says. Programs run
//! inside a host ([`Lab::command`]) and need not know; tests open sockets there ([`Lab::in_host`]).
//!
//! ```no_run
//! use hoop_lab::{Change, Direction, Host, Lab, Link, LinkConfig, Topology};
//! use hoop_units::{Bitrate, Duration};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     hoop_lab::enter()?; // first of all: without root, start over in a user namespace
//!     let wlan = LinkConfig::new().rate(Bitrate::mbps(30)).delay(Duration::from_millis(1));
//!     let dsl = LinkConfig::new().delay(Duration::from_millis(10));
//!     let lab = Lab::build(
//!         &Topology::new()
//!             .host(Host::new("device"))
//!             .host(Host::new("gateway").forwarding())
//!             .host(Host::new("service").named("photos.example"))
//!             .link(Link::new("lan", "device", "gateway").both(wlan))
//!             .link(
//!                 Link::new("dsl", "gateway", "service")
//!                     .up(dsl.clone().rate(Bitrate::kbps(1_150)))
//!                     .down(dsl.rate(Bitrate::mbps(12))),
//!             ),
//!     )?;
//!     let mut service = lab.command("service", "python3").args(["-m", "http.server", "80"]).spawn()?;
//!     lab.command("device", "curl").arg("http://photos.example/").status()?;
//!     lab.set_link("dsl", Direction::Both, Change::new().connected(false));
//!     println!("{:?}", lab.counters("dsl").up);
//!     service.kill()?;
//!     service.wait()?;
//!     Ok(())
//! }
//! ```
//!
//! Nothing is left behind: namespaces have no names, devices belong to file descriptors, and a guard process kills what
//! runs in the hosts, so that all is gone when the [`Lab`] is dropped and also when its process is killed by `SIGKILL`.
//!
//! A [`Relay`] paces TCP connections with the same link on machines that allow no namespaces.

mod description;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
mod enter;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod lab;
#[cfg(target_os = "linux")]
mod namespace;
mod plan;
mod relay;
pub mod text;
mod topology;
#[cfg(target_os = "linux")]
mod wire;

pub use description::DescriptionError;
#[cfg(target_os = "linux")]
pub use enter::{WhyNot, available, enter};
pub use hoop_netem::{Change, Counters, GilbertElliott, LinkConfig, Loss, Probability, QueueLimit, Rate, Trace};
#[cfg(target_os = "linux")]
pub use lab::{BuildError, Direction, Lab, LinkCounters};
pub use plan::{HOSTS_MAX, LINK_NAME_MAX, LINKS_MAX, Plan, TopologyError};
pub use relay::{Relay, RelayConfig, RelayError};
pub use topology::{Host, Link, MTU_DEFAULT, Topology};
