//! A month on a line that is billed by its 95th percentile: what uploads cost with and without `--budget`, simulated.
//!
//! A line of 20 Mbit/s up, of which 4 are paid for anyway. The household's own traffic has a day, an evening, a weekend and bursts,
//! all from one seed (`--seed N`, default 1). Every day 30 GB of uploads come between 8 and 20 o'clock; in the last row, one upload
//! a day of 12 GB has to be there within four hours.
//!
//! Draws `docs/figures/budget.svg`.

use hoop_bench::chart::{Axis, Figure, Panel, Series};
use hoop_bench::{Table, Verdict, number};
use hoop_dispatch::{Allowance, Budget, INTERVAL_SECS, Interval, Month, least_rate};
use hoop_units::{Bitrate, Duration, UnixTime};
use std::process::ExitCode;

const LINE: Bitrate = Bitrate::mbps(20);
const COMMITTED: Bitrate = Bitrate::mbps(4);

/// The budget is asked so often in an interval.
const STEPS: u64 = 10;

const DAY: usize = 288;
const GB: f64 = 1e9;

fn main() -> ExitCode {
    let seed = number("--seed").unwrap_or(1);
    let month = Month::containing(UnixTime(1_795_000_000), 1);
    let household = household(month, seed);
    let alone: Vec<Sample> = household.iter().map(|others| Sample { others: *others, own: 0 }).collect();
    let free = simulate(month, &household, false, false);
    let kept = simulate(month, &household, true, false);
    let late = simulate(month, &household, false, true);
    let forced = simulate(month, &household, true, true);
    let mut verdict = Verdict::default();
    let mut table =
        Table::new(["uploads", "bill, Mbit/s", "delivered, GB", "mean wait, h", "deadlines missed", "limit", ""]);
    let paid = COMMITTED.as_mbps().max(bill(&alone, month));
    let mut row = |name: &str, outcome: Option<&Outcome>, samples: &[Sample], limit: &str, verdict: &str| {
        let of = |show: &dyn Fn(&Outcome) -> String| outcome.map_or(String::new(), show);
        table.row([
            name.into(),
            format!("{:.2}", bill(samples, month)),
            of(&|outcome| format!("{:.0}", outcome.samples.iter().map(|s| s.own as f64).sum::<f64>() / GB)),
            of(&|outcome| format!("{:.1}", outcome.wait_hours)),
            of(&|outcome| format!("{} of {}", outcome.missed, outcome.deadlines)),
            limit.into(),
            verdict.into(),
        ]);
    };
    row("none: the household alone", None, &alone, "", "");
    row("as fast as they go", Some(&free), &free.samples, "", "");
    let holds = verdict.at_most("the bill with --budget", bill(&kept.samples, month), paid);
    row("with --budget 4Mbit", Some(&kept), &kept.samples, &format!("<= {paid:.2}"), holds);
    row("with deadlines, as fast as they go", Some(&late), &late.samples, "", "");
    let holds = verdict.at_most("deadlines missed", forced.missed as f64, late.missed as f64);
    row("with deadlines and --budget 4Mbit", Some(&forced), &forced.samples, "no more missed", holds);
    println!("{}", table.render());
    draw(&free.samples, &kept.samples, &forced.samples, &alone, month).expect("the figure can be drawn");
    verdict.exit()
}

/// What an interval carried, in bytes.
#[derive(Clone, Copy, Debug)]
struct Sample {
    others: u64,
    own: u64,
}

impl Sample {
    fn mbps(of: u64) -> f64 {
        of as f64 * 8.0 / 1e6 / f64::from(INTERVAL_SECS)
    }

    fn all(self) -> f64 {
        Self::mbps(self.others + self.own)
    }
}

/// What came of a month.
struct Outcome {
    samples: Vec<Sample>,
    wait_hours: f64,
    deadlines: usize,
    missed: usize,
}

/// An upload that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    deadline: Option<UnixTime>,
    came: UnixTime,
    left: u64,
}

/// As the carrier counts: the highest of what is left without the highest 5 %.
fn bill(samples: &[Sample], month: Month) -> f64 {
    let mut sorted: Vec<f64> = samples.iter().map(|sample| sample.all()).collect();
    sorted.sort_by(|one, other| other.total_cmp(one));
    sorted[month.free() as usize]
}

/// xorshift64: the same month for the same seed.
fn rng(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}

/// Bytes of each interval: little at night, more by day, most in the evening, more at the weekend; in one interval of a hundred
/// somebody sends a film.
fn household(month: Month, seed: u64) -> Vec<u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..month.intervals as usize)
        .map(|interval| {
            let hour = (interval % DAY) as f64 / 12.0;
            let weekend = if (interval / DAY) % 7 >= 5 { 1.3 } else { 1.0 };
            let mbps = match hour {
                0.0..6.5 => 0.15,
                6.5..9.0 => 0.9,
                9.0..17.0 => 0.7,
                17.0..23.0 => 1.8,
                _ => 0.6,
            };
            let usual = mbps * weekend * (0.4 + 1.2 * rng(&mut state));
            let film = if rng(&mut state) < 0.01 { 8.0 + 6.0 * rng(&mut state) } else { 0.0 };
            ((usual + film) * 1e6 / 8.0 * f64::from(INTERVAL_SECS)) as u64
        })
        .collect()
}

/// What comes in an interval: 15 uploads of 2 GB a day; with deadlines, besides, one of 12 GB at 10 o'clock.
fn arrivals(interval: usize, at: UnixTime, deadlines: bool) -> Vec<Waiting> {
    let of_day = interval % DAY;
    let mut come = Vec::new();
    if (8 * 12..20 * 12).contains(&of_day) && (of_day - 8 * 12).is_multiple_of(10) {
        come.push(Waiting { deadline: None, came: at, left: 2_000_000_000 });
    }
    if deadlines && of_day == 10 * 12 {
        come.push(Waiting { deadline: Some(at.plus_secs(4 * 3_600)), came: at, left: 12_000_000_000 });
    }
    come
}

fn simulate(month: Month, household: &[u64], keep: bool, deadlines: bool) -> Outcome {
    let mut budget = Budget::new(COMMITTED, month);
    let mut queue: Vec<Waiting> = Vec::new();
    let mut outcome = Outcome { samples: Vec::new(), wait_hours: 0.0, deadlines: 0, missed: 0 };
    let mut done = 0.0;
    for (number, others) in household.iter().enumerate() {
        let at = month.start.plus_secs(number as u32 * INTERVAL_SECS);
        let come = arrivals(number, at, deadlines);
        outcome.deadlines += come.iter().filter(|upload| upload.deadline.is_some()).count();
        queue.extend(come);
        let mut own = 0;
        for step in 0..STEPS {
            let now = at.plus_secs((u64::from(INTERVAL_SECS) * step / STEPS) as u32);
            // Earliest deadline first, then oldest.
            queue.sort_by_key(|upload| (upload.deadline.is_none(), upload.deadline, upload.came));
            let forced = queue.iter().filter_map(|upload| Some((upload.deadline?, upload.left)));
            let interval = Interval {
                elapsed: Duration::from_secs(now.since(at).into()),
                others: others * step / STEPS,
                own,
                has_queue: !queue.is_empty(),
                forced: least_rate(forced, now) * u64::from(INTERVAL_SECS),
            };
            let line = (LINE.as_bps() / 8 * u64::from(INTERVAL_SECS)).saturating_sub(*others) / STEPS;
            let mut room = match budget.allowance(interval) {
                _ if !keep => line,
                Allowance::Free => line,
                Allowance::Within(bytes) | Allowance::Forced(bytes) => line.min(bytes / (STEPS - step)),
            };
            while let Some(first) = queue.first_mut().filter(|_| room > 0) {
                let sent = first.left.min(room);
                (first.left, room, own) = (first.left - sent, room - sent, own + sent);
                if first.left == 0 {
                    outcome.missed += usize::from(first.deadline.is_some_and(|deadline| now > deadline));
                    outcome.wait_hours += f64::from(now.since(first.came)) / 3_600.0;
                    done += 1.0;
                    queue.remove(0);
                }
            }
        }
        budget.handle_end(*others, own);
        outcome.samples.push(Sample { others: *others, own });
    }
    let end = month.start.plus_secs(month.intervals * INTERVAL_SECS);
    outcome.missed += queue.iter().filter(|upload| upload.deadline.is_some_and(|deadline| deadline < end)).count();
    outcome.wait_hours /= done;
    outcome
}

fn draw(
    free: &[Sample],
    kept: &[Sample],
    forced: &[Sample],
    alone: &[Sample],
    month: Month,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut figure = Figure::new("A month on a line that is billed by its 95th percentile (its third week is shown)");
    let week = 14 * DAY..21 * DAY;
    for (samples, name) in [(free, "no budget"), (kept, "--budget"), (forced, "with deadlines")] {
        let points = |of: fn(&Sample) -> f64| -> Vec<(f64, f64)> {
            week.clone().map(|interval| (interval as f64 / DAY as f64, of(&samples[interval]))).collect()
        };
        let panel = Panel::new(
            Axis::new("day of the month").from(14.0).to(21.0),
            Axis::new(&format!("{name}: Mbit/s")).from(0.0).to(30.0),
        )
        .series(Series::area("all that the line carries", points(|sample| sample.all())).colour(5))
        .series(Series::line("the household", points(|sample| Sample::mbps(sample.others))).colour(1))
        .limit("paid for anyway", COMMITTED.as_mbps())
        .height(220);
        figure = figure.panel(panel);
    }
    let curve = |samples: &[Sample]| {
        let mut sorted: Vec<f64> = samples.iter().map(|sample| sample.all()).collect();
        sorted.sort_by(|one, other| other.total_cmp(one));
        let share = |place: usize| place as f64 * 100.0 / f64::from(month.intervals);
        sorted.into_iter().enumerate().map(|(place, mbps)| (share(place), mbps)).filter(|(at, _)| *at <= 20.0).collect()
    };
    let bills = Panel::new(
        Axis::new("intervals of the month that carry more, % (shaded: free; the bill is at its edge)")
            .from(0.0)
            .to(20.0),
        Axis::new("Mbit/s").from(0.0).to(30.0),
    )
    .span(0.0, 5.0)
    .series(Series::line("no budget", curve(free)).colour(1))
    .series(Series::line("--budget", curve(kept)).colour(0))
    .series(Series::line("--budget, with deadlines", curve(forced)).colour(2))
    .series(Series::line("the household alone", curve(alone)).colour(6))
    .limit("paid for anyway", COMMITTED.as_mbps())
    .height(300);
    println!("drawn: {}", figure.panel(bills).save("budget")?.display());
    Ok(())
}
