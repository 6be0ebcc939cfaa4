//! What people and programs see of a gateway: its resources, the monitor pages, the window for other pages, the owner's page and its metrics.

pub mod admin;
pub mod bridge;
pub mod connections;
pub mod lookup;
pub mod metrics;
pub mod monitor;
pub mod router;
pub mod state;
pub mod status;
