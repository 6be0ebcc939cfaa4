//! What can be typed: one definition feeds the parser and the help. What it means is for the roles' own modules.

#[cfg(feature = "device")]
use crate::device::DeviceCommand;
#[cfg(feature = "flow")]
use crate::flow::{
    relay::{IntroduceFlags, RelayFlags},
    run::RunFlags,
};
#[cfg(feature = "gateway")]
use crate::gateway::{GatewayFlags, spool::SpoolFlags};
#[cfg(feature = "service")]
use crate::service::{ServiceFlags, keygen::KeygenFlags};
use clap::{Parser, Subcommand};

/// Drop an upload at the gateway and walk away.
#[derive(Parser)]
#[command(name = "hoop", version, about, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

impl Command {
    /// Whether it begins a program of the user's, which is to find the process as it was.
    #[cfg_attr(not(feature = "flow"), allow(clippy::unused_self, reason = "it depends on the features"))]
    pub const fn runs_a_program(&self) -> bool {
        #[cfg(feature = "flow")]
        return matches!(self, Self::Run(_));
        #[cfg(not(feature = "flow"))]
        return false;
    }
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Command {
    #[cfg(feature = "device")]
    #[command(flatten)]
    Device(DeviceCommand),
    /// Run a gateway: takes sealed uploads on the LAN and delivers them
    #[cfg(feature = "gateway")]
    Gateway(GatewayFlags),
    /// Look into a gateway's folder: list, check, export
    #[cfg(feature = "gateway")]
    Spool(SpoolFlags),
    /// Run the sidecar in front of a web application
    #[cfg(feature = "service")]
    Service(ServiceFlags),
    /// Make a service's key
    #[cfg(feature = "service")]
    Keygen(KeygenFlags),
    /// Run a program whose TCP connections outlive addresses and outages
    #[cfg(feature = "flow")]
    Run(RunFlags),
    /// Run the server that those connections go by
    #[cfg(feature = "flow")]
    Relay(RelayFlags),
    /// Add a device to a relay, and print what it is to be told
    #[cfg(feature = "flow")]
    Introduce(IntroduceFlags),
    /// Print the version
    Version,
}
