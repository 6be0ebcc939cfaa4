//! `hoop run`: a program whose TCP connections are flows.

use crate::base::exit::{Exit, Failure};
use crate::base::values::Span;
use crate::flow::agent::at::runs_socket;
use crate::flow::run_status;
use crate::flow::strict;
use crate::flow::ways::ways;
use crate::server::logging;
use crate::server::run_flows;
use clap::Args;
use hoop_relay::preload::{KEY_BYTES, Notice, PreloadServer};
use hoop_relay::{FlowOptions, Introduction, Link, LinkError, diagnostics};
use hoop_units::plain;
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The library that is loaded into the program (`preload/preload.c`).
const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

#[derive(Args)]
pub struct RunFlags {
    /// The file that `hoop introduce` made for this device. Without this option, your `hoop agent` carries the connections: its carriers are there already
    #[arg(long, value_name = "FILE", env = "HOOP_RELAY")]
    relay: Option<PathBuf>,
    /// Use this network interface. If you name several, each connection uses all of them at once
    #[arg(long, value_name = "NAME", requires = "relay")]
    interface: Vec<String>,
    /// Tell the program at once that it is connected. This saves a round trip, but a program learns only when it reads that a destination cannot be reached
    #[arg(long)]
    early: bool,
    /// Leave names to the relay. This needs no DNS server on this network. Names without a dot and those in .local are still looked up here
    #[arg(long)]
    remote_dns: bool,
    /// Give up a connection with an error once the relay has been out of reach for this long. Without this option, connections wait
    #[arg(long, value_name = "TIME", requires = "relay")]
    give_up_after: Option<Span>,
    /// Keep the program and its children from opening TCP connections of their own. A connection that is not carried fails (EACCES), also on loopback. UDP is not restricted
    #[arg(long)]
    strict: bool,
    /// Print what each of your `hoop run` processes carries (relay, carriers, connections, waiting data), and run no program
    #[arg(long, conflicts_with = "program")]
    status: bool,
    /// The program and its arguments. After the program has ended, `hoop run` delivers what the program wrote, and then ends. Press Ctrl-C to end without that
    #[arg(
        required_unless_present = "status",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Runs the program, and then waits until what it wrote is delivered.
pub fn run(flags: &RunFlags) -> Result<Exit, Failure> {
    if flags.status {
        return run_status::status();
    }
    if let Some(option) = flags.program[0].to_str().filter(|program| program.starts_with('-')) {
        return Err(Failure::usage(format!("unknown option `{option}`")).hint("`hoop run --help` lists the options"));
    }
    if std::env::var_os("HOOP_LOG").is_some() {
        logging::start(false)?;
    }
    let Some(relay) = flags.relay.as_deref() else {
        return by_agent(flags);
    };
    let unusable = |error| {
        Failure::new(Exit::File, format!("{} is not a file that `hoop introduce` made", relay.display()), error)
    };
    let introduction = Introduction::read(relay).map_err(unusable)?;
    let folder = folder()?;
    let ways = ways(&flags.interface);
    let options = FlowOptions { multipath: ways.len() > 1, ..FlowOptions::default() };
    let program = flags.program[0].to_string_lossy().into_owned();
    let is_given_up = Arc::new(AtomicBool::new(false));
    let status = run_flows(async {
        let link = Link::start(&introduction, ways).map_err(|error| match error {
            error @ LinkError::NoInterface(_) => Failure::usage(error),
            LinkError::Introduction(error) => unusable(error),
            error => Failure::new(Exit::Unexpected, "cannot connect to the relay", error),
        })?;
        tokio::spawn(diagnostics::tell(link.troubles(), introduction.server.clone(), say));
        let (name, gives_up) = (program.clone(), is_given_up.clone());
        let tell = move |notice: Notice| {
            gives_up.fetch_or(matches!(notice, Notice::GivenUp(_)), Ordering::Relaxed);
            say(&words(&notice, &name));
        };
        let title = format!("hoop run {}, {program}: by {}", std::process::id(), introduction.server);
        let agent = PreloadServer::bind(&folder.socket(), options)
            .and_then(|agent| agent.tell_status(title))
            .map_err(|error| Failure::new(Exit::File, "cannot make the program's socket", error))?
            .give_up_after(flags.give_up_after.map(|span| span.0));
        let agent = match &folder.key {
            None => agent,
            Some(key) => agent
                .serve_others(key.clone())
                .map_err(|error| Failure::new(Exit::File, "cannot make the program's socket", error))?,
        };
        let (mut status, is_over, was_told) = (None, AtomicBool::new(false), Notify::new());
        let ends = async {
            let mut told = None;
            status = Some(child(flags, &folder, &mut told).await);
            is_over.store(true, Ordering::Relaxed);
            if told.is_some_and(|at: Instant| at.elapsed() < TOLD_BEFORE_MAX) {
                was_told.notify_one();
            }
        };
        tokio::select! {
            () = agent.run(&link, ends, tell) => {}
            () = insisted(&is_over, &was_told) => {
                say("gave up what was not delivered yet");
                link.give_up().await;
            }
        }
        let status = status.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into()));
        status.map_err(|error| cannot_run(flags, error))
    })?;
    drop(folder);
    if status.success() && is_given_up.load(Ordering::Relaxed) {
        return Ok(Exit::Network);
    }
    end_as(status)
}

/// Runs the program, whose connections the user's agent carries: it delivers what the program wrote, so that nobody waits for that here.
fn by_agent(flags: &RunFlags) -> Result<Exit, Failure> {
    let none = || {
        let what = "--relay names no file, and no `hoop agent` of yours is running";
        Failure::usage(what).hint("`hoop run --relay FILE` needs none; docs/edge.md shows how to start one")
    };
    let agent = runs_socket().ok_or_else(none)?;
    let connected = UnixStream::connect(&agent).map_err(|_| none())?;
    let mut folder = folder()?;
    folder.peer = connected.peer_addr().ok().and_then(|peer| peer.as_pathname().map(Into::into));
    // The agent is this user's alone.
    folder.key = None;
    for (here, there) in PreloadServer::sockets(&folder.socket()).iter().zip(PreloadServer::sockets(&agent)) {
        symlink(there, here).map_err(no_folder)?;
    }
    let status = run_flows(async { child(flags, &folder, &mut None).await.map_err(|error| cannot_run(flags, error)) })?;
    drop(folder);
    end_as(status)
}

fn folder() -> Result<Folder, Failure> {
    Folder::new().map_err(no_folder)
}

fn no_folder(error: io::Error) -> Failure {
    Failure::new(Exit::File, "cannot make a temporary folder", error)
}

fn cannot_run(flags: &RunFlags, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::Unsupported if flags.strict => {
            let what = "--strict: this kernel cannot restrict a program's TCP connections";
            Failure::new(Exit::Unexpected, what, error)
                .hint("use Linux 6.7 or later (Landlock ABI 4), or leave out --strict")
        }
        _ => Failure::new(Exit::File, format!("cannot run {}", flags.program[0].to_string_lossy()), error),
    }
}

/// Ends as the program ended.
fn end_as(status: ExitStatus) -> ! {
    crate::base::terminal::exit(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1))
}

/// How long somebody waits for what a program wrote who has told it to end: less than service managers do before they kill.
const TOLD_MAX: Duration = Duration::from_secs(5);

/// A program that ends later than this has not ended because it was told to.
const TOLD_BEFORE_MAX: Duration = Duration::from_secs(60);

/// A program loads its libraries before it does anything else, on a slow disk, too.
const LOADING_MAX: Duration = Duration::from_secs(5);

/// Beside what the program itself writes there.
fn say(words: &str) {
    eprintln!("hoop run: {}", plain::line(words));
}

fn words(notice: &Notice, program: &str) -> String {
    let connections = |count: &usize| match count {
        1 => "1 connection is".to_owned(),
        count => format!("{count} connections are"),
    };
    match notice {
        Notice::Refused(words) => words.clone(),
        Notice::Undelivered(count) => {
            format!(
                "{program} has ended, but {} still being delivered or in use by another program; interrupt to give up",
                connections(count)
            )
        }
        Notice::GivenUp(count) => format!("the relay could not be reached: {} given up", connections(count)),
    }
}

/// `told`: when it was told to end.
async fn child(flags: &RunFlags, folder: &Folder, told: &mut Option<Instant>) -> io::Result<ExitStatus> {
    let mut preload = folder.library().into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(OsStr::new(":"));
        preload.push(others);
    }
    let mut command = Command::new(&flags.program[0]);
    command
        .args(&flags.program[1..])
        .env("LD_PRELOAD", preload)
        .env("HOOP_RUN_SOCKET", folder.socket())
        .env_remove("HOOP_RUN_EARLY")
        .env_remove("HOOP_RUN_REMOTE_DNS");
    match &folder.key {
        Some(key) => command.env("HOOP_RUN_KEY", key),
        None => command.env_remove("HOOP_RUN_KEY"),
    };
    match &folder.peer {
        Some(peer) => command.env("HOOP_RUN_PEER", peer),
        None => command.env_remove("HOOP_RUN_PEER"),
    };
    if flags.early {
        command.env("HOOP_RUN_EARLY", "1");
    }
    if flags.remote_dns {
        command.env("HOOP_RUN_REMOTE_DNS", "1");
    }
    // From now on they are the program's, which may say at once that it is there.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut child = if flags.strict { strict::spawn(&mut command) } else { command.spawn() }?;
    // Typed at a terminal, the interrupt is the program's, too.
    let is_typed = std::io::stdin().is_terminal();
    let (mut loading, mut is_asked) = (pin!(sleep(LOADING_MAX)), false);
    let ask = || {
        if !folder.is_loaded() {
            let program = flags.program[0].to_string_lossy();
            let what = if flags.strict { "fail" } else { "are not carried" };
            say(&format!(
                "{program} did not load the library (it is static, or runs with other rights), so its connections {what}"
            ));
        }
    };
    loop {
        let signal = tokio::select! {
            status = child.wait() => {
                if !is_asked {
                    ask();
                }
                return status;
            }
            () = &mut loading, if !is_asked => {
                is_asked = true;
                ask();
                continue;
            }
            _ = interrupt.recv() => if is_typed { continue } else { libc::SIGINT },
            _ = terminate.recv() => libc::SIGTERM,
            _ = hang_up.recv() => libc::SIGHUP,
        };
        if let Some(pid) = child.id().and_then(|pid| libc::pid_t::try_from(pid).ok()) {
            // SAFETY: it is called with two integers; the child was not waited for yet, so the number is its own.
            #[allow(unsafe_code, reason = "there is no other way to pass a signal on")]
            unsafe {
                libc::kill(pid, signal);
            }
        }
        if signal != libc::SIGHUP {
            *told = Some(Instant::now());
        }
    }
}

/// Somebody wants this to end though the program has: what it wrote and is not delivered is given up. `was_told`: the program was told to end, and has.
async fn insisted(is_over: &AtomicBool, was_told: &Notify) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    let told = async {
        was_told.notified().await;
        sleep(TOLD_MAX).await;
    };
    tokio::pin!(told);
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = &mut told => return,
        }
        if is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// A folder for one run; it goes with it. It is its owner's alone, but for root's: root's programs become other users, who reach what is in it and prove by the key that they are those.
struct Folder {
    path: PathBuf,
    /// What other users say; None: there are none.
    key: Option<String>,
    /// What the agent's socket is called, where the one in here is a link to it.
    peer: Option<PathBuf>,
}

impl Folder {
    fn new() -> io::Result<Self> {
        // A Unix socket's path has 107 bytes at most.
        let name = format!("{}{}", run_status::PREFIX, hex::encode(hoop_http::Rng.bytes::<8>()));
        let path = std::env::temp_dir().join(name);
        let key = geteuid().is_root().then(|| hex::encode(hoop_http::Rng.bytes::<{ KEY_BYTES / 2 }>()));
        let mode = if key.is_some() { 0o711 } else { 0o700 };
        std::fs::DirBuilder::new().mode(mode).create(&path)?;
        let folder = Self { path, key, peer: None };
        // Whatever the umask is.
        std::fs::set_permissions(&folder.path, Permissions::from_mode(mode))?;
        if statvfs(&folder.path)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            let words = format!(
                "{} is mounted noexec, so the library cannot be loaded from there; set TMPDIR",
                std::env::temp_dir().display()
            );
            return Err(io::Error::other(words));
        }
        std::fs::write(folder.library(), PRELOAD)?;
        std::fs::set_permissions(folder.library(), Permissions::from_mode(0o644))?;
        Ok(folder)
    }

    fn library(&self) -> PathBuf {
        self.path.join("preload.so")
    }

    fn socket(&self) -> PathBuf {
        self.path.join(run_status::SOCKET)
    }

    /// Whether the program, or one that it began, has taken the library in.
    fn is_loaded(&self) -> bool {
        self.path.join("agent.loaded").exists()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
