//! The roles around flows: [`relay`] and introduce, [`run`] with its report ([`run_status`]), [`agent`], and [`get`] through it.

pub mod agent;
pub mod get;
pub mod qr;
pub mod relay;
pub mod run;
pub mod run_status;
pub mod strict;
mod ways;
