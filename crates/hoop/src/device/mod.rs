//! The device's roles.
//!
//! | module | what |
//! | --- | --- |
//! | [`flags`], [`form`], [`request`] | what was typed, and what it means |
//! | [`push`], [`release`], [`status`], [`receipt`], [`seal`], [`tickets`] | the roles |
//! | [`raw`] | RFC 8188 alone, for checking other implementations |
//! | [`answer`], [`failure`], [`progress`], [`show`] | how it ends, and what it prints |

mod answer;
mod failure;
mod flags;
mod form;
mod progress;
mod push;
mod raw;
mod receipt;
mod release;
mod request;
mod runtime;
mod seal;
mod show;
mod status;
mod tickets;

use crate::base::exit::{Exit, Failure};
pub use flags::DeviceCommand;
#[cfg(feature = "flow")]
pub use flags::NetworkFlags;
use hoop_http::Clock;
#[cfg(feature = "flow")]
pub use request::{client_config, gateway};

/// Plays the role that was asked for.
pub fn run(command: DeviceCommand, clock: Clock) -> Result<Exit, Failure> {
    match command {
        DeviceCommand::Push(flags) => push::run(flags, clock),
        DeviceCommand::Resume(flags) => push::resume(flags, clock),
        DeviceCommand::Release(flags) => release::run(flags, clock),
        DeviceCommand::Status(flags) => status::run(flags, clock),
        DeviceCommand::Receipt(command) => receipt::run(command, clock),
        DeviceCommand::Seal(flags) if flags.raw.raw => raw::seal(&flags.raw, flags.request.suite),
        DeviceCommand::Seal(flags) => seal::run(flags, clock),
        DeviceCommand::Open(flags) => raw::open(&flags),
        DeviceCommand::Tickets(flags) => tickets::run(flags, clock),
    }
}
