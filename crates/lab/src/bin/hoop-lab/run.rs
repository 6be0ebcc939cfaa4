//! `hoop-lab run`: a command in a host of a topology.

use crate::cli::Run;
use crate::failure::Failure;
use hoop_lab::{Lab, Topology};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;

/// Builds the topology, runs the command to its end and takes over its exit code.
pub fn main(arguments: &Run) -> Result<ExitCode, Failure> {
    hoop_lab::enter()?;
    let topology = Topology::from_file(&arguments.topology)?;
    let lab = Lab::build(&topology)?;
    let host = match &arguments.host {
        Some(host) => host.as_str(),
        None => lab.hosts().next().expect("a topology has a host"),
    };
    if !lab.has_host(host) {
        let hosts: Vec<&str> = lab.hosts().collect();
        return Err(Failure::Wrong(format!("--host: there is no `{host}`; there is {}", hosts.join(", "))));
    }
    let (program, rest) = arguments.command.split_first().expect("the command line requires one");
    let mut child =
        lab.command(host, program).args(rest).spawn().map_err(Failure::refused("the command could not be started"))?;
    leave_signals_to_command();
    let status = child.wait().map_err(Failure::refused("the command could not be waited for"))?;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// What is typed at the terminal (Ctrl-C, Ctrl-\) is for the command, which has the same terminal; when it ends, so do
/// we. Called after it was started, since what is ignored is inherited.
fn leave_signals_to_command() {
    for terminal in [Signal::SIGINT, Signal::SIGQUIT] {
        // SAFETY: ignoring a signal runs no code of ours.
        #[allow(unsafe_code)]
        let _ = unsafe { signal(terminal, SigHandler::SigIgn) };
    }
}
