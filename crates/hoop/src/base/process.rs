//! What no other process may see or take: the files that are made, and the memory, which holds keys.

/// To be called before anything is read or made. A program that is begun by this one inherits the umask and the limit, so one that begins a user's program leaves
/// both as they are, and makes its own files private one by one.
pub fn protect(keeps_umask: bool) {
    if !keeps_umask {
        hoop_files::private_umask();
        no_core_limit();
        no_end_by_a_long_file();
    }
    no_dump();
}

/// No core file, also where the system pipes cores to a program: that is asked by the next one.
#[cfg(unix)]
fn no_core_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // It can always be lowered.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

#[cfg(not(unix))]
fn no_core_limit() {}

/// Whoever reaches the limit of a file's size (`ulimit -f`, `LimitFSIZE=`) gets an error from the file, and not `SIGXFSZ`, which ends a process: one long upload would end a
/// server. The threads that are begun later block it, too.
#[cfg(target_os = "linux")]
fn no_end_by_a_long_file() {
    use nix::sys::signal::{SigSet, Signal};
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGXFSZ);
    // It is a signal that can be blocked.
    let _ = signals.thread_block();
}

#[cfg(not(target_os = "linux"))]
fn no_end_by_a_long_file() {}

/// No dump of the memory, and no debugger of the same user: whoever may run programs as this user does not get at the keys by that. A program that is begun by
/// this one is its own again.
#[cfg(target_os = "linux")]
fn no_dump() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

#[cfg(not(target_os = "linux"))]
fn no_dump() {}
