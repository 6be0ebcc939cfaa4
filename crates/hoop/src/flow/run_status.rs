//! What each `hoop run` of this user carries, and this user's agent: `hoop run --status`, and the end of `hoop status`.

use super::agent::at::runs_socket;
use crate::base::exit::{Exit, Failure};
use hoop_relay::preload::STATUS;
use hoop_units::plain;
use rustix::process::geteuid;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the name of a run's folder begins with, among the temporary files.
pub const PREFIX: &str = "hoop-run-";

/// A run's socket for its program.
pub const SOCKET: &str = "agent";

/// A run answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// More than a line for each connection that a run carries at once.
const REPORT_MAX: u64 = 1 << 20;

/// Prints what each run says.
pub fn status() -> Result<Exit, Failure> {
    let temporary = std::env::temp_dir();
    let runs = runs(&temporary)
        .map_err(|error| Failure::new(Exit::File, format!("cannot read {}", temporary.display()), error))?;
    let reports: Vec<_> = runs.iter().filter_map(|run| report(run)).collect();
    if reports.is_empty() {
        return Err(Failure::plain(Exit::Network, "none of your `hoop run` processes is running")
            .hint("use the same user and the same TMPDIR as the process"));
    }
    reports.iter().for_each(|report| print!("{report}"));
    Ok(Exit::Done)
}

/// Prints what this session's agent says, and each run, below an empty line each; nothing if there are none.
pub fn carried() {
    let runs = runs(&std::env::temp_dir()).unwrap_or_default();
    let reports = runs_socket().into_iter().chain(runs).filter_map(|socket| report(&socket));
    reports.for_each(|report| print!("\n{report}"));
}

/// What is carried by who serves programs at this socket. None: nobody does.
fn report(socket: &Path) -> Option<String> {
    let text = match ask(socket) {
        Ok(text) => text,
        // It was killed, and left its folder; or it is ending.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            return None;
        }
        Err(error) => format!("{}: no answer: {error}", socket.display()),
    };
    Some(text.lines().map(|line| format!("{}\n", plain::line(line))).collect())
}

/// Runs' sockets: those in folders of this user's own alone, whoever else may have made one of that name.
fn runs(temporary: &Path) -> io::Result<Vec<PathBuf>> {
    let own =
        |path: &Path| path.symlink_metadata().is_ok_and(|folder| folder.is_dir() && folder.uid() == geteuid().as_raw());
    let named = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    let entries = std::fs::read_dir(temporary)?.filter_map(Result::ok).map(|entry| entry.path());
    let mut folders: Vec<_> = entries.filter(|path| named(path) && own(path)).collect();
    folders.sort();
    Ok(folders.iter().map(|folder| folder.join(SOCKET)).collect())
}

fn ask(socket: &Path) -> io::Result<String> {
    let asking = UnixStream::connect(hoop_files::beside(socket, STATUS))?;
    asking.set_read_timeout(Some(ANSWER_MAX))?;
    let mut report = String::new();
    asking.take(REPORT_MAX).read_to_string(&mut report)?;
    Ok(report)
}
