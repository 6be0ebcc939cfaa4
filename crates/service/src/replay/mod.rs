//! Uploads go to the application: when, as which request, and what its answer makes of them.

pub mod attempt;
pub mod http1_response;
pub mod keep_alive;
pub mod left_behind;
mod outcome;
mod renew;
pub mod worker;
