//! The end of all programs in a lab's hosts, also of those that its commands have started in turn.

use crate::namespace::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

/// How often to look again: a program killed while it starts another leaves one behind, seldom two.
const ROUNDS_MAX: usize = 200;

/// How long to wait for the killed to be gone before looking again.
const ROUND: Duration = Duration::from_millis(5);

/// Kills every process inside these namespaces, and waits until there is none (for a second, if one hangs in the kernel).
pub(crate) fn kill_all<'a>(namespaces: impl Iterator<Item = &'a Namespace>) {
    let identities: Vec<(u64, u64)> = namespaces.filter_map(|namespace| namespace.identity().ok()).collect();
    for _ in 0..ROUNDS_MAX {
        let inside = processes_inside(&identities);
        if inside.is_empty() {
            return;
        }
        for process in inside {
            // Gone by itself in the meantime: so much the better.
            let _ = kill(process, Signal::SIGKILL);
        }
        thread::sleep(ROUND);
    }
}

/// All processes but this one whose network namespace is one of these. A zombie has none any more.
fn processes_inside(identities: &[(u64, u64)]) -> Vec<Pid> {
    let own = Pid::this();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let process = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
            let metadata = fs::metadata(entry.path().join("ns/net")).ok()?;
            let inside = identities.contains(&(metadata.dev(), metadata.ino()));
            (inside && process != own).then_some(process)
        })
        .collect()
}
