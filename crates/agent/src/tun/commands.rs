//! The programs that change the system: `ip` and `nft`.

use super::error::TunError;
use super::rules::{Family, without_redirection, without_routing};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

/// Where they are, before whatever a user has in `PATH`: they are run with rights that others do not have.
const FOLDERS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Has `ip` do what is in a batch, line by line, to the first that fails.
///
/// # Errors
/// What it says.
pub(super) fn ip(family: Family, batch: &str) -> Result<(), TunError> {
    run("ip", "iproute2", &[flag(family), "-batch", "-"], batch)
}

/// Has `nft` do what is in a script: all of it, or nothing.
///
/// # Errors
/// What it says.
pub(super) fn nft(script: &str) -> Result<(), TunError> {
    run("nft", "nftables", &["-f", "-"], script)
}

/// Takes out whatever an agent has made.
pub(super) fn undo() {
    let undone = nft(&without_redirection());
    let _ = undone.inspect_err(|error| tracing::debug!(%error, "nothing is redirected here"));
    for family in [Family::V4, Family::V6] {
        // A family that this machine does not have, or a table that is empty, is said to be an error.
        let undone = run("ip", "iproute2", &[flag(family), "-force", "-batch", "-"], &without_routing());
        let _ = undone.inspect_err(|error| tracing::debug!(%error, "some of it is not here"));
    }
}

const fn flag(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

fn run(program: &'static str, package: &'static str, arguments: &[&str], input: &str) -> Result<(), TunError> {
    let mut path = OsString::from(FOLDERS);
    std::env::var_os("PATH").iter().for_each(|more| path.extend([":".as_ref(), more.as_os_str()]));
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => TunError::NoProgram { program, package },
        _ => TunError::System(error),
    })?;
    // All of it fits into a pipe, and its end says that it is all.
    let written = running.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let ended = running.wait_with_output()?;
    if ended.status.success() {
        return Ok(written?);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(TunError::Failed { program, said: first.trim().to_owned() })
}
