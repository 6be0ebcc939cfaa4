//! What can be typed: one definition feeds the parser and the help. What it means is for the roles' own modules.

#[cfg(feature = "device")]
use crate::device::DeviceCommand;
#[cfg(feature = "flow")]
use crate::flow::{
    agent::AgentFlags,
    get::GetFlags,
    relay::{IntroduceFlags, RelayFlags},
    run::RunFlags,
};
#[cfg(feature = "gateway")]
use crate::gateway::{GatewayFlags, spool::SpoolFlags};
#[cfg(feature = "service")]
use crate::service::{ServiceFlags, keygen::KeygenFlags};
use clap::{Parser, Subcommand};

/// Hand an upload to a gateway nearby, and leave while the gateway delivers it.
#[derive(Parser)]
#[command(name = "hoop", version, about, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

impl Command {
    /// Whether it makes files as the user's umask says: it begins a program of the user's, which is to find the process as it was, or it downloads.
    #[cfg_attr(not(feature = "flow"), allow(clippy::unused_self, reason = "it depends on the features"))]
    pub const fn keeps_umask(&self) -> bool {
        #[cfg(feature = "flow")]
        return matches!(self, Self::Run(_) | Self::Get(_));
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
    /// Run a gateway, which takes sealed uploads on the LAN and delivers them
    #[cfg(feature = "gateway")]
    Gateway(GatewayFlags),
    /// List, check or export the uploads in a gateway's folder
    #[cfg(feature = "gateway")]
    Spool(SpoolFlags),
    /// Run the service, which stands in front of a web application and opens uploads for it
    #[cfg(feature = "service")]
    Service(ServiceFlags),
    /// Make or rotate the key of a service
    #[cfg(feature = "service")]
    Keygen(KeygenFlags),
    /// Run a program, and keep its TCP connections through outages and changes of address
    #[cfg(feature = "flow")]
    Run(RunFlags),
    /// Run a proxy on this machine that keeps the connections of all programs that use it, as `hoop run` does for one
    #[cfg(feature = "flow")]
    Agent(AgentFlags),
    /// Download files through the agent, and continue until each is complete, even after days or a restart
    #[cfg(feature = "flow")]
    Get(GetFlags),
    /// Run a relay, the server at the other end of `hoop run` and `hoop agent`
    #[cfg(feature = "flow")]
    Relay(RelayFlags),
    /// Add a device to a relay, and print the file that the device needs
    #[cfg(feature = "flow")]
    Introduce(IntroduceFlags),
    /// Print the version
    Version,
}
