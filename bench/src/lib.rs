//! What the benchmarks share: medians, tables, and what a process used.
//!
//! Machines are noisy, so no figure stands alone: rivals take turns within one run, the median of at least five rounds
//! is quoted, and what is judged is a ratio.

pub mod chart;
pub mod clients;
pub mod edge;
pub mod flows;
pub mod mptcp;
pub mod peers;
pub mod posts;

use std::fmt::Write as _;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Rounds when none are asked for: the least of which a median means something.
pub const ROUNDS: usize = 5;

/// The word behind an option on the command line, if it is there.
pub fn word(option: &str) -> Option<String> {
    let arguments: Vec<String> = std::env::args().collect();
    arguments.windows(2).find(|pair| pair[0] == option).map(|pair| pair[1].clone())
}

/// The same as a number.
pub fn number(option: &str) -> Option<u64> {
    word(option)?.parse().ok()
}

/// Rounds to run: `--rounds N` on the command line, at least [`ROUNDS`].
pub fn rounds() -> usize {
    number("--rounds").and_then(|rounds| rounds.try_into().ok()).unwrap_or(ROUNDS).max(ROUNDS)
}

/// The median; the mean of the middle two of an even number.
///
/// # Panics
/// If there is no value.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

/// Smallest and largest, for the column that shows how noisy the machine was.
pub fn spread(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// A table in Markdown, so that a run's output can stand in `docs/results.md` as it is.
#[derive(Debug)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self::of(head.map(str::to_owned).to_vec())
    }

    /// A table with as many columns as there are rivals, or the like.
    pub const fn of(head: Vec<String>) -> Self {
        Self { head, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.push(cells.to_vec());
    }

    /// Adds a row that has a cell for each column.
    pub fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The table's text, columns aligned.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.head[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> =
                cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            format!("| {} |\n", padded.join(" | "))
        };
        let mut text = line(&self.head);
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let _ = writeln!(text, "| {} |", rule.join(" | "));
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
}

/// What a finished process used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// How it ended.
    pub status: ExitStatus,
    /// Processor time, user and system.
    pub cpu: Duration,
    /// Peak resident memory, in KiB. It counts from this process's own size at the fork, a few MiB.
    pub peak_kib: u64,
}

/// Waits for a child and says what it used.
///
/// # Errors
/// If it cannot be waited for.
#[allow(unsafe_code, clippy::needless_pass_by_value)] // the child is no more after this; wait4 is the one call that gives a single child's usage
pub fn wait_usage(child: std::process::Child) -> io::Result<Usage> {
    use std::os::unix::process::ExitStatusExt as _;
    let mut status = 0;
    // SAFETY: both pointers are to locals of the right type, and the child is ours and not waited for yet.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(child.id().cast_signed(), &raw mut status, 0, &raw mut usage) < 0 {
            return Err(io::Error::last_os_error());
        }
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_usec).unwrap_or(0) * 1_000);
    Ok(Usage {
        status: ExitStatus::from_raw(status),
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        peak_kib: usage.ru_maxrss.unsigned_abs(),
    })
}

/// Prints a verdict beside its limit and remembers whether all held, for the exit code.
#[derive(Debug, Default)]
pub struct Verdict {
    missed: usize,
}

impl Verdict {
    /// `name: value (limit: at least limit)`, and whether it holds.
    pub fn at_least(&mut self, name: &str, value: f64, limit: f64) -> &'static str {
        self.note(name, value >= limit, &format!("{value:.3} (at least {limit})"))
    }

    /// The same with an upper limit.
    pub fn at_most(&mut self, name: &str, value: f64, limit: f64) -> &'static str {
        self.note(name, value <= limit, &format!("{value:.3} (at most {limit})"))
    }

    fn note(&mut self, name: &str, holds: bool, text: &str) -> &'static str {
        if !holds {
            self.missed += 1;
            eprintln!("MISSED  {name}: {text}");
        }
        if holds { "holds" } else { "MISSED" }
    }

    /// Success if every limit held.
    pub fn exit(self) -> std::process::ExitCode {
        match self.missed {
            0 => std::process::ExitCode::SUCCESS,
            _ => std::process::ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]).to_bits(), 2.5_f64.to_bits());
        assert_eq!(median(&[9.0, 1.0, 3.0]).to_bits(), 3.0_f64.to_bits());
    }

    #[test]
    fn a_verdict_that_was_missed_fails_the_run() {
        let mut verdict = Verdict::default();
        assert_eq!(verdict.at_least("speed", 1.0, 0.8), "holds");
        assert_eq!(verdict.at_most("memory", 9.0, 8.0), "MISSED");
        assert_eq!(format!("{:?}", verdict.exit()), format!("{:?}", std::process::ExitCode::FAILURE));
    }
}
