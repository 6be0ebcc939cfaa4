//! What the service answers: its own paths, the pages for people, and all else from the application.

pub mod audit;
pub mod caller;
pub mod crowd;
pub mod events;
pub mod guard;
pub mod html;
pub mod listing;
pub mod metrics;
pub mod pages;
pub mod post;
pub mod proxy;
pub mod request;
pub mod router;
pub mod settings;
pub mod status;
pub mod tickets;
pub mod tunnel;
pub mod uploads;
