//! What gateway and service have in common as processes: runtime, configuration file, signals, the line that says where
//! they listen.

#[cfg(any(feature = "gateway", feature = "service"))]
pub mod layers;
pub mod logging;
pub mod notify;
pub mod powers;

use crate::base::exit::{Exit, Failure};
use crate::base::terminal;
use crate::server::powers::give_up_ports;
use hoop_http::{ServeError, Shutdown, apart, shutdown};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// Threads for sockets: a router has two or four cores, and more threads only cost memory.
const WORKERS_MAX: usize = 4;

/// The runtime of what carries flows.
#[cfg(feature = "flow")]
fn flow_runtime(begins: fn()) -> Result<Runtime, Failure> {
    keep_free_memory();
    runtime_of(begins)
}

/// glibc gives back what is free at the end of its memory beyond 128 KiB, and clears it when it is wanted again: a download that keeps a mebibyte or two under way wants it
/// again at once.
#[cfg(all(feature = "flow", target_os = "linux", target_env = "gnu"))]
fn keep_free_memory() {
    const KEPT: libc::c_int = 8 << 20;
    // SAFETY: mallopt takes two integers, and no other thread runs yet.
    #[allow(unsafe_code, reason = "the allocator has no other handle")]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}

#[cfg(all(feature = "flow", not(all(target_os = "linux", target_env = "gnu"))))]
fn keep_free_memory() {}

/// Runs `work` on it to its end. What it left on other threads, such as a look at a file that nobody writes, is not waited for.
#[cfg(feature = "flow")]
pub fn run_flows<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    run_flows_on(flow_runtime(give_up_ports)?, work)
}

/// The same, with all rights that this process has: it goes on to change the machine's network. See [`announce_with_powers`].
#[cfg(feature = "flow")]
pub fn run_flows_with_powers<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    run_flows_on(flow_runtime(|| {})?, work)
}

/// How long what is under way may take to end.
#[cfg(feature = "flow")]
const SHUTDOWN_MAX: std::time::Duration = std::time::Duration::from_millis(500);

#[cfg(feature = "flow")]
fn run_flows_on<T>(runtime: Runtime, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let ended = runtime.block_on(work);
    // What is under way is dropped, and may be written down. A lookup that hangs is not waited for.
    runtime.shutdown_timeout(SHUTDOWN_MAX);
    ended
}

/// The runtime of a server, in as little memory as will do.
pub fn runtime() -> Result<Runtime, Failure> {
    runtime_of(give_up_ports)
}

/// Its threads do this when they begin.
fn runtime_of(begins: fn()) -> Result<Runtime, Failure> {
    limit_arenas();
    if tracing::dispatcher::has_been_set() {
        terminal::write_log_apart(begins);
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        .on_thread_start(begins)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Unexpected, "cannot start", error))?;
    give_back(&runtime);
    Ok(runtime)
}

/// glibc gives back only what is free at the end of its memory: after a crowd of connections, most of what these had would stay. So it is told to give back the rest, once
/// there is much more of it than there was.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back(runtime: &Runtime) {
    /// How often it is looked at: seldom enough to cost nothing, often enough that memory is back some seconds after a crowd.
    const EVERY: std::time::Duration = std::time::Duration::from_secs(5);
    /// How much more may lie free, or be resident.
    const MORE_BYTES: usize = 4 << 20;
    // It is opened before the process gives up the right to open more.
    let Ok(statm) = std::fs::File::open("/proc/self/statm") else { return };
    let used = move || [free_bytes(), resident_bytes(&statm)];
    runtime.spawn(async move {
        let mut least = used();
        loop {
            tokio::time::sleep(EVERY).await;
            let now = used();
            // What was given back still counts as free, until it is used again: then it is resident.
            if now.iter().zip(least).any(|(now, least)| *now > least.saturating_add(MORE_BYTES)) {
                // It walks through all of the memory, some milliseconds for 100 MiB.
                let _ = tokio::task::spawn_blocking(trim).await;
                let after = used();
                tracing::debug!(free = after[0], before = now[1], resident = after[1], "free memory is given back");
                // What became free while it walked is for the next time.
                least = [now[0].min(after[0]), now[1].min(after[1])];
            } else {
                least = [now[0].min(least[0]), now[1].min(least[1])];
            }
        }
    });
}

/// What of the process is in memory, by the second number of `/proc/PID/statm`, in pages; 0 if that cannot be read.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn resident_bytes(statm: &std::fs::File) -> usize {
    use std::os::unix::fs::FileExt as _;
    const PAGE_BYTES: usize = 4096;
    let mut text = [0; 128];
    let read = statm.read_at(&mut text, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..read]);
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0).saturating_mul(PAGE_BYTES)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back(_: &Runtime) {}

/// What the allocator holds and nobody uses.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn free_bytes() -> usize {
    // SAFETY: it takes nothing, and returns a structure of numbers.
    #[allow(unsafe_code, reason = "the allocator has no other handle")]
    let told = unsafe { libc::mallinfo() };
    // Beyond 2 GiB it wraps around; that much is worth a look in any case.
    usize::try_from(told.fordblks).unwrap_or(i32::MAX as usize)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: it takes a number, and may be called at any time by any thread.
    #[allow(unsafe_code, reason = "the allocator has no other handle")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// glibc gives each thread an arena of its own, up to eight a core, and each keeps what it once had.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn limit_arenas() {
    const ARENAS: libc::c_int = 2;
    // SAFETY: mallopt takes two integers, and no other thread runs yet.
    #[allow(unsafe_code, reason = "the allocator has no other handle")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn limit_arenas() {}

/// Each connection takes a descriptor, and 1,024 are soon used up: the limit that programs have by default is for those that call `select`. For servers; a program that
/// is begun by this one would have it, too.
pub fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a structure that lives longer than they do.
    #[allow(unsafe_code, reason = "the limit has no other handle")]
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            // If that is not granted the limit stays, and what is admitted follows it.
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

/// Reads a configuration file: TOML with the names of the flags; a name that is not known is refused.
pub fn read_file<T: DeserializeOwned + Default>(path: Option<&Path>) -> Result<T, Failure> {
    let Some(path) = path else { return Ok(T::default()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Exit::File, format!("cannot read {}", path.display()), error))?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| hoop_files::line_at(&text, span.start));
        let cause = format!("line {line}: {}", error.message());
        Failure::new(Exit::Usage, format!("{} is not a valid configuration", path.display()), cause)
    })
}

/// A server that cannot begin, with what to try if it may not listen where it was told to.
pub fn hint_at_ports(failure: Failure, listen: &ServeError) -> Failure {
    match listen.source.kind() {
        io::ErrorKind::PermissionDenied if listen.address.port() < 1024 => {
            failure.hint("ports below 1024 need root: start it as root with --user NAME, or use the unit's drop-in in docs/operators.md")
        }
        _ => failure,
    }
}

/// Waits until nobody writes a file any more that is to be read again, if there is one: half of it would be taken for all.
pub fn is_whole(path: Option<&Path>) -> Result<(), Failure> {
    let settled = path.map_or(Ok(()), hoop_files::settled);
    settled.map_err(|error| {
        let what = path.unwrap_or(Path::new("")).display();
        Failure::new(Exit::File, format!("cannot accept {what}"), error)
    })
}

/// Says on the standard output where the server listens: it is ready. From now on it listens nowhere else.
pub fn announce(address: SocketAddr, tls: bool, as_json: bool) {
    give_up_ports();
    announce_with_powers(address, tls, as_json);
}

/// The same, of a server that goes on to change the machine's network, and keeps what that takes ([`run_flows_with_powers`]).
pub fn announce_with_powers(address: SocketAddr, tls: bool, as_json: bool) {
    let url = format!("{}://{address}", if tls { "https" } else { "http" });
    let _ = terminal::finish_log();
    match as_json {
        true => println!("{}", json!({"listening": url})),
        false => println!("listening on {url}"),
    }
    let _ = std::io::stdout().flush();
    notify::ready();
}

/// The same for flows, by UDP and TCP.
#[cfg(feature = "flow")]
pub fn announce_flows(address: SocketAddr, as_json: bool) {
    give_up_ports();
    let _ = terminal::finish_log();
    match as_json {
        true => println!("{}", json!({"listening": address.to_string()})),
        false => println!("listening on {address}, UDP and TCP"),
    }
    let _ = std::io::stdout().flush();
    notify::ready();
}

/// Has SIGHUP read the configuration again: `reload` takes it over, and says which settings differ that only a restart changes. What cannot be used
/// changes nothing.
pub fn reload_on_hang_up(
    reload: impl Fn() -> Result<Vec<&'static str>, Failure> + Send + Sync + 'static,
) -> Result<(), Failure> {
    let caught = signal(SignalKind::hangup());
    let mut hang_up = caught.map_err(|error| Failure::new(Exit::Unexpected, "cannot catch signals", error))?;
    let reload = Arc::new(reload);
    tokio::spawn(async move {
        while hang_up.recv().await.is_some() {
            notify::reloading();
            let reload = reload.clone();
            // It may shut somebody out who has all other threads wait for a disk.
            match apart(move || reload()).await {
                Ok(Ok(waiting)) => {
                    tracing::info!(target: "audit", act = "reload", outcome = "done", "the configuration was read again");
                    if !waiting.is_empty() {
                        tracing::warn!(
                            settings = waiting.join(", "),
                            "these settings have changed, and need a restart"
                        );
                    }
                }
                Ok(Err(failure)) => {
                    let why = failure.to_string();
                    tracing::error!(
                        "nothing was changed, since the new configuration cannot be used: {}",
                        why.trim_end()
                    );
                    tracing::info!(target: "audit", act = "reload", outcome = "refused", "the configuration was not taken");
                }
                Err(error) => tracing::error!(%error, "the configuration was not read"),
            }
            notify::reloaded();
        }
    });
    Ok(())
}

/// Says that a server runs as root.
pub fn warn_of_root() {
    if rustix::process::geteuid().is_root() {
        tracing::warn!(
            "running as root, which no role needs; give it a user of its own (--user, or the units in dist/systemd)"
        );
    }
}

/// What stops the server: SIGTERM or SIGINT. A second one ends it at once.
pub fn stop_on_signal() -> Result<Shutdown, Failure> {
    let fail = |error| Failure::new(Exit::Unexpected, "cannot catch signals", error);
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    let (trigger, shutdown) = shutdown();
    tokio::spawn(async move {
        let mut stopping = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if stopping {
                terminal::exit(Exit::Unexpected.code());
            }
            tracing::info!("stopping");
            notify::stopping();
            trigger.trigger();
            stopping = true;
        }
    });
    Ok(shutdown)
}
