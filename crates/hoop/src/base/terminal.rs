//! Where words for people leave this program. `print!` and its family are this module's in the whole crate, so nothing can go round it: no
//! letter that commands a terminal gets through, wherever it came from ([`hoop_units::plain`]).
//!
//! A text from outside can still begin a line of its own that reads like one of ours: so it is made one line where it is read or put
//! into a sentence ([`plain::line`]). Bytes that are no words (`hoop open`, `hoop seal`) go to the standard output as they are.

use hoop_units::plain;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Writes words to the standard output. Whoever reads no further has seen enough.
pub fn out(words: fmt::Arguments<'_>) -> io::Result<()> {
    io::stdout().write_all(plain::escape(&words.to_string()).as_bytes())
}

/// Writes words to the standard error stream.
pub fn err(words: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(plain::escape(&words.to_string()).as_bytes());
}

macro_rules! print {
    ($($words:tt)*) => { { let _ = $crate::base::terminal::out(format_args!($($words)*)); } };
}

macro_rules! println {
    ($($words:tt)*) => { { let _ = $crate::base::terminal::out(format_args!("{}\n", format_args!($($words)*))); } };
}

macro_rules! eprint {
    ($($words:tt)*) => { $crate::base::terminal::err(format_args!($($words)*)) };
}

macro_rules! eprintln {
    ($($words:tt)*) => { $crate::base::terminal::err(format_args!("{}\n", format_args!($($words)*))) };
}

/// Where a server's log goes: the standard error stream, an event a line.
#[derive(Clone, Copy, Debug)]
pub struct Log;

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for Log {
    /// Takes one event, with the line end that is its own.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = one_event(event);
        match APART.get() {
            Some(apart) => apart.take(line),
            None => io::stderr().write_all(line.as_bytes())?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// What waits to be written of a log, at most, in bytes: some thousand lines.
const WAITING_MAX: usize = 256 * 1024;

/// So long what waits may take at the end of the process.
const FINISH: Duration = Duration::from_secs(1);

/// Who writes the log, once it has a thread of its own.
static APART: OnceLock<Apart> = OnceLock::new();

/// Has a thread of its own write the log from now on: whoever is to read it may stand still, and nobody else is to wait for that. `begins` is its first act.
pub fn write_log_apart(begins: fn()) {
    APART.get_or_init(|| Apart::begin(io::stderr(), begins));
}

/// Waits until what waits of the log is written: what is said next comes after it. Whether it is: else nobody reads the standard error stream, and who writes there waits.
pub fn finish_log() -> bool {
    APART.get().is_none_or(|apart| apart.finish(FINISH))
}

/// Ends the process once what waits of the log is written.
pub fn exit(code: i32) -> ! {
    finish_log();
    std::process::exit(code)
}

/// A thread that writes lines, and what it has not written yet.
#[derive(Debug)]
struct Apart {
    lines: Sender<Line>,
    /// Bytes that wait.
    waiting: Arc<AtomicUsize>,
    /// Lines for which there was no room.
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Line {
    Event(String),
    /// All before it is written; whoever waits for that has the other end.
    Mark(Sender<()>),
}

impl Apart {
    fn begin(out: impl Write + Send + 'static, begins: fn()) -> Self {
        let (lines, taken) = mpsc::channel();
        let apart = Self { lines, waiting: Arc::default(), lost: Arc::default() };
        let (waiting, lost) = (apart.waiting.clone(), apart.lost.clone());
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || {
            begins();
            write_lines(out, &taken, &waiting, &lost);
        });
        // Without a thread the lines are lost, and the process goes on.
        drop(thread);
        apart
    }

    fn take(&self, line: String) {
        let len = line.len();
        if self.waiting.fetch_add(len, Ordering::Relaxed) + len > WAITING_MAX
            || self.lines.send(Line::Event(line)).is_err()
        {
            self.waiting.fetch_sub(len, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn finish(&self, within: Duration) -> bool {
        let (mark, written) = mpsc::channel();
        // The mark is dropped once it is reached, or has nobody to reach it.
        let _ = self.lines.send(Line::Mark(mark));
        written.recv_timeout(within) != Err(RecvTimeoutError::Timeout)
    }
}

fn write_lines(mut out: impl Write, lines: &Receiver<Line>, waiting: &AtomicUsize, lost: &AtomicU64) {
    for line in lines {
        match line {
            Line::Event(line) => {
                let _ = out.write_all(line.as_bytes());
                waiting.fetch_sub(line.len(), Ordering::Relaxed);
            }
            Line::Mark(mark) => drop(mark),
        }
        // That takes room itself.
        let has_room = waiting.load(Ordering::Relaxed) < WAITING_MAX / 2;
        let lines = if has_room { lost.swap(0, Ordering::Relaxed) } else { 0 };
        if lines > 0 {
            tracing::warn!(lines, "lines of this log are lost, since nobody read it for a while");
        }
    }
}

/// An event in one line: whatever text from outside is in it begins no other.
fn one_event(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
    let mut line = String::with_capacity(event.len());
    text.chars().for_each(|letter| plain::push(&mut line, letter));
    line + end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    #[test]
    fn an_event_is_one_line_whatever_it_tells() {
        let event = "INFO stored name=\"a\nINFO stopping\u{1b}[2J\u{202e}\"\n";
        assert_eq!(
            one_event(event.as_bytes()),
            "INFO stored name=\"a\\u000aINFO stopping\\u001b[2J\\u202e\"\n".to_owned()
        );
        assert_eq!(one_event(b"{\"a\":\"\xff\"}\n"), "{\"a\":\"\u{fffd}\"}\n");
    }

    /// Where lines go that a test lets through one by one.
    struct Slow(Receiver<()>, Sender<String>);

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            self.1.send(String::from_utf8_lossy(line).into_owned()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_nobody_reads_keeps_nobody_waiting_and_its_lost_lines_are_counted() {
        let ((let_through, through), (written, came)) = (mpsc::channel(), mpsc::channel());
        let apart = Apart::begin(Slow(through, written), || {});
        let line = "x".repeat(1_024);
        (0..1_000).for_each(|_| apart.take(line.clone()));
        assert_eq!(apart.lost.load(Ordering::Relaxed), 1_000 - 256);
        assert_eq!(apart.waiting.load(Ordering::Relaxed), WAITING_MAX);
        assert!(!apart.finish(Duration::from_millis(1)));
        (0..256).for_each(|_| let_through.send(()).unwrap());
        assert_eq!(came.iter().take(256).filter(|came| *came == line).count(), 256, "what was taken is written");
        assert!(apart.finish(Duration::from_secs(60)));
        assert_eq!((apart.lost.load(Ordering::Relaxed), apart.waiting.load(Ordering::Relaxed)), (0, 0));
    }

    /// Files whose bytes are no words.
    const BYTES: [&str; 4] = ["terminal.rs", "raw.rs", "seal.rs", "agent/connect.rs"];

    #[test]
    fn no_other_module_writes_words_by_itself() {
        fn files(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                match entry.path() {
                    path if path.is_dir() => files(&path, found),
                    path => found.push(path),
                }
            }
        }
        let mut found = Vec::new();
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        let words = found.iter().filter(|path| !BYTES.iter().any(|name| path.ends_with(name)));
        for path in words {
            let text = std::fs::read_to_string(path).unwrap();
            for line in text.lines().filter(|line| line.contains("stdout()") || line.contains("stderr()")) {
                let harmless = ["is_terminal", "flush()", "use_stderr()"].iter().any(|word| line.contains(word));
                assert!(harmless, "{} goes round the terminal's module: {line}", path.display());
            }
        }
        assert!(found.len() > 20, "the sources are there");
    }
}
