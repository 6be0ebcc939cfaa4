//! Where words for people leave this program. `print!` and its family are this module's in the whole crate, so nothing can go round it: no
//! letter that commands a terminal gets through, wherever it came from ([`hoop_units::plain`]).
//!
//! A text from outside can still begin a line of its own that reads like one of ours: so it is made one line where it is read or put
//! into a sentence ([`plain::line`]). Bytes that are no words (`hoop open`, `hoop seal`) go to the standard output as they are.

use hoop_units::plain;
use std::fmt;
use std::io::{self, Write};
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
        io::stderr().write_all(one_event(event).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
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
