//! How `hoop` ends: [`Exit`] codes, and a [`Failure`] in words.

use hoop_units::plain;
use std::fmt;

/// The exit codes; `docs/push.md` has the same table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "device"), allow(dead_code, reason = "servers end in fewer ways"))]
pub enum Exit {
    /// Done, as far as was asked.
    Done = 0,
    /// Something unexpected.
    Unexpected = 1,
    /// The command line or a configuration is wrong.
    Usage = 2,
    /// A local file cannot be read or written.
    File = 3,
    /// The service or the gateway does not take it, for good.
    Refused = 4,
    /// The application has rejected it.
    Rejected = 5,
    /// It is held until its owner has signed in.
    Held = 6,
    /// Nobody can be reached, or the service takes nothing now.
    Network = 7,
    /// The wait was over; the upload is safe.
    TimedOut = 8,
    /// The application had the whole request, and its answer was lost.
    Unknown = 9,
    /// A file changed while it was being sent.
    Changed = 10,
    /// Nothing is wrong with it, and nothing is proven either.
    Unproven = 11,
    /// Nobody who is relied on has the upload.
    Missing = 12,
    /// What came is not what should have come.
    Damaged = 13,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// What went wrong, as it is printed: a sentence, the cause, what to try.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    what: String,
    cause: Option<String>,
    hint: Option<String>,
}

impl Failure {
    /// A failure with its cause.
    pub fn new(exit: Exit, what: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self { exit, what: what.to_string(), cause: Some(cause.to_string()), hint: None }
    }

    /// A failure that says everything itself.
    pub fn plain(exit: Exit, what: impl fmt::Display) -> Self {
        Self { exit, what: what.to_string(), cause: None, hint: None }
    }

    /// A command line that means nothing.
    pub fn usage(what: impl fmt::Display) -> Self {
        Self::plain(Exit::Usage, what)
    }

    /// The same, with what to try.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The sentence and the cause in one line, for `--json`.
    #[cfg(any(feature = "device", test))]
    pub fn message(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{}: {cause}", self.what),
            None => self.what.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each may quote somebody else, who must not begin a line of ours.
        writeln!(f, "Error: {}.", plain::line(&self.what))?;
        if let Some(cause) = &self.cause {
            writeln!(f, "  Cause: {}.", plain::line(cause))?;
        }
        self.hint.iter().try_for_each(|hint| writeln!(f, "  Try: {}.", plain::line(hint)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_stands_in_the_page_of_push() {
        let page = include_str!("../../../../docs/push.md");
        for exit in [
            Exit::Done,
            Exit::Unexpected,
            Exit::Usage,
            Exit::File,
            Exit::Refused,
            Exit::Rejected,
            Exit::Held,
            Exit::Network,
            Exit::TimedOut,
            Exit::Unknown,
            Exit::Changed,
            Exit::Unproven,
            Exit::Missing,
        ] {
            assert!(page.contains(&format!("\n| {} | ", exit.code())), "{exit:?}");
        }
    }

    #[test]
    fn a_failure_is_a_sentence_a_cause_and_what_to_try() {
        let failure = Failure::new(Exit::Network, "nobody can be reached", "no route").hint("again");
        assert_eq!(failure.to_string(), "Error: nobody can be reached.\n  Cause: no route.\n  Try: again.\n");
        assert_eq!(failure.message(), "nobody can be reached: no route");
        let hostile = Failure::new(Exit::Network, "a\nb", "\u{1b}[2J\n  Try: rm").hint("\u{202e}").to_string();
        assert_eq!(hostile, "Error: a\\u000ab.\n  Cause: \\u001b[2J\\u000a  Try: rm.\n  Try: \\u202e.\n");
    }
}
