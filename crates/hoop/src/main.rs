//! `hoop`: the command line. Each subcommand is a role: typed flags ([`flags`]) become one checked configuration, and a
//! function from that to an exit code.
//!
//! | room | what | feature |
//! | --- | --- | --- |
//! | [`base`] | what each role stands on: values, words for people, exits | |
//! | [`server`] | what servers have in common as processes: logs, notices, what they may do to their machine | |
//! | [`device`] | push, status, seal, open, tickets | `device` |
//! | [`gateway`] | gateway, spool | `gateway` |
//! | [`service`] | service, keygen | `service` |
//! | [`flow`] | relay, introduce, run, agent, get | `flow` |
//! | [`flags`] | what was typed | |
//!
//! All features are on by default; a router builds the gateway alone (`--no-default-features --features gateway`).
//!
//! Rooms, each importing only those before it: `base`, `server`, `device`, `gateway`, `service`, `flow`, `flags`.

#[macro_use]
mod base;

#[cfg(feature = "device")]
mod device;
mod flags;
#[cfg(feature = "flow")]
mod flow;
#[cfg(feature = "gateway")]
mod gateway;
#[cfg(any(feature = "gateway", feature = "service", feature = "flow"))]
#[cfg_attr(
    not(all(feature = "device", feature = "gateway", feature = "service", feature = "flow")),
    allow(dead_code, reason = "each role has its own")
)]
mod server;
#[cfg(feature = "service")]
mod service;

use base::exit::{Exit, Failure};
use base::process;
use clap::Parser as _;
use flags::{Command, Flags};
use std::io::Write as _;

fn main() {
    // The device's times count from here.
    #[cfg(feature = "device")]
    let clock = hoop_http::Clock::system();
    let flags = typed();
    process::protect(flags.command.keeps_umask());
    let ended = run(
        flags.command,
        #[cfg(feature = "device")]
        clock,
    );
    let code = match ended {
        Ok(exit) => exit,
        Err(failure) => {
            if base::terminal::finish_log() {
                eprint!("{failure}");
            }
            failure.exit
        }
    };
    // Whatever still runs in the background, such as a name being looked up, is not waited for.
    let _ = std::io::stdout().flush();
    base::terminal::exit(code.code());
}

/// What was typed. A refusal quotes it, and some of it may be others' words: so what is refused is read once more with each active letter written out, and the words of
/// that refusal are shown.
fn typed() -> Flags {
    let refused = match Flags::try_parse() {
        Ok(flags) => return flags,
        Err(refused) => refused,
    };
    let words = std::env::args_os().map(|word| hoop_units::plain::line(&word.to_string_lossy()));
    let refused = Flags::try_parse_from(words).err().unwrap_or(refused);
    if !refused.use_stderr() {
        // Help, or the version.
        refused.exit();
    }
    eprint!("{}", refused.render());
    std::process::exit(refused.exit_code());
}

fn run(command: Command, #[cfg(feature = "device")] clock: hoop_http::Clock) -> Result<Exit, Failure> {
    match command {
        #[cfg(all(feature = "device", feature = "flow"))]
        Command::Device(command) if command.lists_all() => {
            let listed = device::run(command, clock)?;
            flow::run_status::carried();
            Ok(listed)
        }
        #[cfg(feature = "device")]
        Command::Device(command) => device::run(command, clock),
        #[cfg(feature = "gateway")]
        Command::Gateway(flags) => gateway::run(flags),
        #[cfg(feature = "gateway")]
        Command::Spool(flags) => gateway::spool::run(flags),
        #[cfg(feature = "service")]
        Command::Service(flags) => service::run(flags),
        #[cfg(feature = "service")]
        Command::Keygen(flags) => service::keygen::run(&flags),
        #[cfg(feature = "flow")]
        Command::Run(flags) => flow::run::run(&flags),
        #[cfg(feature = "flow")]
        Command::Agent(flags) => flow::agent::run(flags),
        #[cfg(feature = "flow")]
        Command::Get(flags) => flow::get::run(flags),
        #[cfg(feature = "flow")]
        Command::Relay(flags) => flow::relay::run(flags),
        #[cfg(feature = "flow")]
        Command::Introduce(flags) => flow::relay::run_introduce(flags),
        Command::Version => {
            println!("hoop {}", env!("CARGO_PKG_VERSION"));
            Ok(Exit::Done)
        }
    }
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
