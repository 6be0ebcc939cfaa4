//! A running program whose output is kept: [`Program`].

use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a program may take to say that it is ready: generous, since machines are busy.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A child process, its output line by line; killed when dropped.
pub struct Program {
    child: Child,
    name: String,
    output: Arc<Output>,
}

#[derive(Default)]
struct Output {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    all: Vec<(Instant, String)>,
    /// Of standard output and standard error, how many have ended.
    ended: u8,
}

/// A program did not start, or ended before it was ready.
#[derive(Debug)]
pub struct StartError {
    name: String,
    why: String,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} did not start: {}", self.name, self.why)
    }
}

impl std::error::Error for StartError {}

impl Program {
    /// Starts `command` and waits until a line of its output contains `ready`.
    ///
    /// # Errors
    /// If it cannot be started, ends early (its output is in the error), or says nothing for a minute.
    pub fn start(name: &str, mut command: Command, ready: &str) -> Result<Self, StartError> {
        let fail = |why: String| StartError { name: name.to_owned(), why };
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| fail(format!("{error} ({command:?})")))?;
        let output = Arc::new(Output::default());
        collect(child.stdout.take().expect("standard output is piped"), output.clone());
        collect(child.stderr.take().expect("standard error is piped"), output.clone());
        let program = Self { child, name: name.to_owned(), output };
        match program.wait_for(ready, READY_WITHIN) {
            Some(_) => Ok(program),
            None => Err(fail(format!("it never said {ready:?}, but:\n{}", program.text()))),
        }
    }

    /// The first line that contains `part`, and when it came; waits for it. `None` if the program ends or the time is over
    /// without.
    pub fn wait_for(&self, part: &str, within: Duration) -> Option<(Instant, String)> {
        self.wait_for_matching(within, |line| line.contains(part))
    }

    /// The same with any condition, which is asked once about each line, in order.
    pub fn wait_for_matching(
        &self,
        within: Duration,
        mut matches: impl FnMut(&str) -> bool,
    ) -> Option<(Instant, String)> {
        let end = Instant::now() + within;
        let mut seen = 0;
        let mut lines = self.output.lines.lock();
        loop {
            if let Some(found) = lines.all[seen..].iter().find(|(_, line)| matches(line)) {
                return Some(found.clone());
            }
            seen = lines.all.len();
            let left = end.saturating_duration_since(Instant::now());
            if lines.ended == 2 || left.is_zero() {
                return None;
            }
            self.output.changed.wait_for(&mut lines, left);
        }
    }

    /// Every line so far, with when it came.
    pub fn lines(&self) -> Vec<(Instant, String)> {
        self.output.lines.lock().all.clone()
    }

    /// All output so far.
    pub fn text(&self) -> String {
        self.lines().into_iter().map(|(_, line)| line + "\n").collect()
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with `SIGKILL`, as a power switch would.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for it to end by itself.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// Reads lines until the end, in a thread of its own.
fn collect(stream: impl Read + Send + 'static, output: Arc<Output>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            output.lines.lock().all.push((Instant::now(), line));
            output.changed.notify_all();
        }
        output.lines.lock().ended += 1;
        output.changed.notify_all();
    });
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("name", &self.name).field("pid", &self.pid()).finish_non_exhaustive()
    }
}
