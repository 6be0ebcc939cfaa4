//! `hoop-lab`: check the simulated link against theory, run programs in a topology, relay TCP over a thin line.
//!
//! Exit codes: 0 all well; 1 `check` found a measurement off its limit; 2 wrong usage, or a description that makes no
//! sense; 3 this machine allows no lab; 4 anything else that the system refused. `run` ends with the command's own code,
//! or 128 and the number of the signal that ended it; so that the two are not mixed up, what goes wrong before the
//! command has started ends `run` with 125.
//!
//! Namespaces are Linux's; elsewhere there is `relay` only.

#[cfg(target_os = "linux")]
mod check;
mod cli;
mod failure;
mod relay;
#[cfg(target_os = "linux")]
mod run;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let (result, fixed_code) = match cli::Arguments::parse().command {
        #[cfg(target_os = "linux")]
        cli::Command::Check(arguments) => (check::main(&arguments), None),
        #[cfg(target_os = "linux")]
        cli::Command::Run(arguments) => (run::main(&arguments), Some(failure::NOT_RUN)),
        cli::Command::Relay(arguments) => (relay::main(arguments), None),
    };
    result.unwrap_or_else(|failure| {
        eprintln!("hoop-lab: {failure}");
        fixed_code.map_or_else(|| failure.code(), ExitCode::from)
    })
}
