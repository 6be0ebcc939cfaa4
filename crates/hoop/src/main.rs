//! `hoop`: the command line. Each subcommand is a role: typed flags ([`flags`]) become one checked configuration, and a
//! function from that to an exit code.
//!
//! | module | what |
//! | --- | --- |
//! | [`flags`], [`values`], [`form`], [`request`] | what was typed, and what it means |
//! | [`push`], [`status`], [`seal`], [`tickets`] | the device's roles |
//! | [`raw`] | RFC 8188 alone, for checking other implementations |
//! | [`gateway`], [`service`], [`server`], [`keygen`] | the roles of servers |
//! | [`exit`], [`show`], [`logging`] | how it ends, what it prints, what it logs |

mod exit;
mod flags;
mod form;
mod gateway;
mod keygen;
mod logging;
mod progress;
mod push;
mod raw;
mod request;
mod seal;
mod server;
mod service;
mod show;
mod status;
mod tickets;
mod values;

use clap::Parser as _;
use exit::{Exit, Failure};
use flags::{Command, Flags};
use hoop_http::Clock;
use std::io::Write as _;

fn main() {
    let clock = Clock::system();
    let flags = Flags::parse();
    let code = match run(flags.command, clock) {
        Ok(exit) => exit,
        Err(failure) => {
            eprint!("{failure}");
            failure.exit
        }
    };
    // Whatever still runs in the background, such as a name being looked up, is not waited for.
    let _ = std::io::stdout().flush();
    std::process::exit(code.code());
}

fn run(command: Command, clock: Clock) -> Result<Exit, Failure> {
    match command {
        Command::Push(flags) => push::run(flags, clock),
        Command::Status(flags) => status::run(flags, clock),
        Command::Seal(flags) if flags.raw.raw => raw::seal(&flags.raw, flags.request.suite),
        Command::Seal(flags) => seal::run(flags, clock),
        Command::Open(flags) => raw::open(&flags),
        Command::Tickets(flags) => tickets::run(flags, clock),
        Command::Gateway(flags) => gateway::run(flags),
        Command::Service(flags) => service::run(flags),
        Command::Keygen(flags) => keygen::run(&flags),
        Command::Version => {
            println!("hoop {}", env!("CARGO_PKG_VERSION"));
            Ok(Exit::Done)
        }
    }
}

/// The runtime of the device's roles: one thread for sockets, as fast to start as can be. Sealing has threads of its own.
fn light_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Unexpected, "cannot start", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Flags::command().debug_assert();
    }
}
