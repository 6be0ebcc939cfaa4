//! The command line as typed.

use clap::{Args, Parser, Subcommand};
use hoop_lab::text::{parse_bitrate, parse_bytes, parse_duration};
use hoop_units::Bitrate;
#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::net::SocketAddr;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::time::Duration;

/// A laboratory of hosts and links inside one machine.
#[derive(Debug, Parser)]
#[command(name = "hoop-lab", version, after_help = EXIT_CODES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 all well; 1 a measurement is off its limit; 2 wrong usage or description; \
3 this machine allows no lab; 4 the system refused something. `run` ends with the command's own code, or 128 and the \
number of its signal, or 125 if the command could not be started.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure rate, round-trip time and loss of real links, and compare them with theory (about half a minute)
    #[cfg(target_os = "linux")]
    Check(Check),
    /// Build a topology and run a command in one of its hosts
    #[cfg(target_os = "linux")]
    Run(Run),
    /// Relay TCP connections over one simulated link; needs no namespaces
    Relay(Relay),
}

/// Measure links.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub struct Check {
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// What the dice of the lossy links come from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Run a command.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub struct Run {
    /// The description of the topology
    #[arg(value_name = "TOPOLOGY.toml")]
    pub topology: PathBuf,
    /// The host to run in [default: the first one described]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Relay TCP.
#[derive(Debug, Args)]
pub struct Relay {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Where connections lead
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub to: SocketAddr,
    /// Rate towards the target, such as `1.15Mbit` [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = parse_bitrate)]
    pub up: Option<Bitrate>,
    /// Rate from the target, such as `12Mbit` [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = parse_bitrate)]
    pub down: Option<Bitrate>,
    /// One-way delay, such as `10ms`
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0")]
    pub delay: Duration,
    /// Most bytes that wait before the link, each way
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64 KiB")]
    pub queue: usize,
}
