//! `hoop`: the command line. Each subcommand is a role: typed flags ([`flags`]) become one checked configuration, and a
//! function from that to an exit code.
//!
//! | module | what | feature |
//! | --- | --- | --- |
//! | [`device`] | push, status, seal, open, tickets | `device` |
//! | [`gateway`], [`announcer`], [`spool`] | gateway, spool | `gateway` |
//! | [`service`], [`keygen`] | service, keygen | `service` |
//! | [`relay`], [`carry`], [`running`], [`strict`], [`qr`] | relay, introduce, run | `flow` |
//! | [`server`], [`logging`], [`notify`] | what servers have in common as processes | |
//! | [`process`] | what no other process may see or take: files, memory | |
//! | [`powers`] | what a server may do to its machine | |
//! | [`terminal`] | where words for people leave the program | |
//! | [`flags`], [`values`], [`exit`] | what was typed, and how it ends | |
//!
//! All features are on by default; a router builds the gateway alone (`--no-default-features --features gateway`).

#[macro_use]
#[cfg_attr(
    not(all(feature = "device", feature = "gateway", feature = "service", feature = "flow")),
    allow(dead_code, unused_macros, reason = "each role has its own")
)]
mod terminal;

#[cfg(all(feature = "gateway", target_os = "linux"))]
mod announcer;
#[cfg(feature = "flow")]
mod carry;
#[cfg(feature = "device")]
mod device;
mod exit;
mod flags;
#[cfg(feature = "gateway")]
mod gateway;
#[cfg(feature = "service")]
mod keygen;
#[cfg(feature = "gateway")]
mod limits;
#[cfg(any(feature = "gateway", feature = "service", feature = "flow"))]
mod logging;
#[cfg(any(feature = "gateway", feature = "service", feature = "flow"))]
mod notify;
#[cfg(any(feature = "gateway", feature = "service", feature = "flow"))]
#[cfg_attr(
    not(all(feature = "device", feature = "gateway", feature = "service", feature = "flow")),
    allow(dead_code, reason = "each role has its own")
)]
mod powers;
mod process;
#[cfg(feature = "flow")]
mod qr;
#[cfg(feature = "flow")]
mod relay;
#[cfg(feature = "flow")]
mod running;
#[cfg(any(feature = "gateway", feature = "service", feature = "flow"))]
#[cfg_attr(
    not(all(feature = "device", feature = "gateway", feature = "service", feature = "flow")),
    allow(dead_code, reason = "each role has its own")
)]
mod server;
#[cfg(feature = "service")]
mod service;
#[cfg(feature = "gateway")]
mod spool;
#[cfg(feature = "flow")]
mod strict;
#[cfg_attr(
    not(all(feature = "device", feature = "gateway", feature = "service", feature = "flow")),
    allow(dead_code, reason = "each role has its own")
)]
mod values;

use clap::Parser as _;
use exit::{Exit, Failure};
use flags::{Command, Flags};
use std::io::Write as _;

fn main() {
    // The device's times count from here.
    #[cfg(feature = "device")]
    let clock = hoop_http::Clock::system();
    let flags = typed();
    process::protect(flags.command.runs_a_program());
    let ended = run(
        flags.command,
        #[cfg(feature = "device")]
        clock,
    );
    let code = match ended {
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
        #[cfg(feature = "device")]
        Command::Device(command) => device::run(command, clock),
        #[cfg(feature = "gateway")]
        Command::Gateway(flags) => gateway::run(flags),
        #[cfg(feature = "gateway")]
        Command::Spool(flags) => spool::run(flags),
        #[cfg(feature = "service")]
        Command::Service(flags) => service::run(flags),
        #[cfg(feature = "service")]
        Command::Keygen(flags) => keygen::run(&flags),
        #[cfg(feature = "flow")]
        Command::Run(flags) => carry::run(&flags),
        #[cfg(feature = "flow")]
        Command::Relay(flags) => relay::run(flags),
        #[cfg(feature = "flow")]
        Command::Introduce(flags) => relay::run_introduce(flags),
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
