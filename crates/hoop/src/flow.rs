//! The roles around flows: [`relay`] and introduce, and [`run`] with its report ([`run_status`]).

pub mod qr;
pub mod relay;
pub mod run;
pub mod run_status;
pub mod strict;
