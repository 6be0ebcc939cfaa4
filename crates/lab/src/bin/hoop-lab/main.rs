//! `hoop-lab`: check the simulated link against theory, run programs in a topology, relay TCP over a thin line.
//!
//! Exit codes: 0 all well; 1 `check` found a measurement off its limit; 2 wrong usage, or a description that makes no
//! sense; 3 this machine allows no lab; 4 anything else that the system refused. `run` ends with the command's own code,
//! or 128 and the number of the signal that ended it; so that the two are not mixed up, what goes wrong before the
//! command has started ends `run` with 125.

mod check;
mod cli;
mod failure;
mod relay;
mod run;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (result, codes) = match cli::Arguments::parse().command {
        cli::Command::Check(arguments) => (check::main(&arguments), failure::Codes::Own),
        cli::Command::Run(arguments) => (run::main(&arguments), failure::Codes::Run),
        cli::Command::Relay(arguments) => (relay::main(arguments), failure::Codes::Own),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("hoop-lab: {failure}");
        failure.exit_code(codes)
    })
}
