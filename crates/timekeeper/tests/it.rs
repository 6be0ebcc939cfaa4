//! What the machine promises, over readings that jump, lie and break off.

use core::time::Duration;
use hoop_timekeeper::simulated::Machine;
use hoop_timekeeper::{DAY, JUMP, LATEST, Over, Reading, SETTLE, Start, Timekeeper};
use hoop_units::{Timestamp, UnixTime};
use proptest::prelude::*;

const START: u64 = 1_795_000_000;
const WEEK: u64 = 7 * 86_400;
const LIFE: Duration = Duration::from_secs(21 * 86_400);
/// As what waits at a gateway for its prelude.
const SHORT: Duration = Duration::from_secs(600);
const YEAR: i64 = 365 * 86_400;

/// One whose clock is right.
fn new() -> Machine {
    Machine::new(START)
}

/// One whose time is beyond doubt.
fn sure() -> Machine {
    let mut machine = new();
    machine.ntp = Some(0);
    machine.runs(SETTLE.as_secs() + 60);
    machine.ntp = None;
    assert!(machine.keeper().is_sure());
    machine
}

/// What it makes of the time.
fn now(machine: &Machine) -> i64 {
    machine.keeper().now().0.into()
}

#[test]
fn who_knows_no_boot_takes_none_for_the_same() {
    let reading =
        |mono, wall: u64| Reading { mono: Timestamp::from_secs(mono), wall_us: wall * 1_000_000, ntp_us: None };
    for (boot, is_the_same) in [("b37c", true), ("", false)] {
        let saved = Timekeeper::new(None, boot, reading(10, START)).saved(boot);
        // In 1970, and longer after the start of the machine than what was saved.
        let again = Timekeeper::new(Some(saved), boot, reading(20, 20)).saved(boot);
        assert_eq!(again.start == Start::Behind, !is_the_same, "{boot}");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Run(u64),
    Jump(i64),
    Ntp(Option<i64>),
    Date(i64),
    Save,
    Restart,
    Off(u64, i64),
    /// Something is given so long to live.
    Make(u64),
}

fn jump() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => Just(0),
        2 => -3_540_i64..3_540,
        2 => -40 * 86_400_i64..40 * 86_400,
        1 => -50 * YEAR..50 * YEAR,
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop_oneof![1_u64..7_200, 7_200_u64..3 * 86_400, 0_u64..8 * WEEK].prop_map(Event::Run),
        3 => jump().prop_map(Event::Jump),
        2 => proptest::option::of(jump()).prop_map(Event::Ntp),
        1 => jump().prop_map(Event::Date),
        1 => Just(Event::Save),
        1 => Just(Event::Restart),
        1 => (0_u64..60 * 86_400, jump()).prop_map(|(secs, off)| Event::Off(secs, off)),
        4 => prop_oneof![3 => 0..=LIFE.as_secs(), 1 => 0..=SHORT.as_secs()].prop_map(Event::Make),
    ]
}

/// Something with an end, made at a run time, to live so long.
struct Thing {
    end: UnixTime,
    run: u64,
    life: u64,
}

fn is_over(thing: &Thing, over: Option<Over>) -> bool {
    over.is_some_and(|over| thing.end < over.before || thing.end > over.after)
}

fn happens(machine: &mut Machine, event: Event, things: &mut Vec<Thing>) {
    match event {
        Event::Run(secs) => machine.runs(secs),
        Event::Jump(off) => machine.off = off,
        Event::Ntp(off) => machine.ntp = off,
        Event::Date(off) => machine.hears(off),
        Event::Save => machine.saves(),
        Event::Restart => machine.restarts(),
        Event::Off(secs, off) => machine.is_off(secs, off),
        Event::Make(life) => {
            let secs = u32::try_from(life).unwrap();
            things.push(Thing { end: machine.keeper().now().plus_secs(secs), run: machine.run, life });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_given_a_lifetime_gets_it_in_run_time(events in prop::collection::vec(event(), 1..60)) {
        let (mut machine, mut things) = (new(), Vec::new());
        for event in events {
            happens(&mut machine, event, &mut things);
            machine.looks();
            let (over, soon) = (machine.keeper().over(LIFE), machine.keeper().over(SHORT));
            let is_gone = |thing: &Thing| is_over(thing, if thing.life <= SHORT.as_secs() { soon } else { over });
            for thing in things.iter().filter(|thing| is_gone(thing)) {
                let lived = machine.run - thing.run;
                // A second for whole seconds.
                prop_assert!(lived + 1 >= thing.life, "over after {lived} of {} s", thing.life);
            }
        }
    }

    #[test]
    fn everything_is_over_some_day(events in prop::collection::vec(event(), 1..60)) {
        let (mut machine, mut things) = (new(), Vec::new());
        for event in events {
            happens(&mut machine, event, &mut things);
        }
        machine.ntp = None;
        // A day until the wall clock is believed, a life for what was made before, and one for what was made a moment ago.
        for _ in 0..2 * (2 * DAY + LIFE).as_secs() / 3_600 + 1 {
            machine.runs(3_600);
            let over = machine.keeper().over(LIFE);
            things.retain(|thing| !is_over(thing, over));
        }
        prop_assert!(things.is_empty(), "{:?}", machine.keeper());
    }

    #[test]
    fn what_lives_for_minutes_is_over_within_hours_in_doubt_too(events in prop::collection::vec(event(), 1..60)) {
        let (mut machine, mut things) = (new(), Vec::new());
        for event in events {
            happens(&mut machine, event, &mut things);
        }
        things.clear();
        happens(&mut machine, Event::Make(SHORT.as_secs()), &mut things);
        // Once for itself, once more for each time that time was set meanwhile, and an hour where it was set back.
        for _ in 0..JUMP.as_secs() / 60 + 4 * SHORT.as_secs() / 60 {
            machine.runs(60);
            let soon = machine.keeper().over(SHORT);
            things.retain(|thing| !is_over(thing, soon));
        }
        prop_assert!(things.is_empty(), "{:?}", machine.keeper());
    }

    #[test]
    fn a_jump_that_is_undone_within_a_day_changes_nothing(off in jump(), secs in 1_u64..86_000, ntp in any::<bool>()) {
        let mut machine = sure();
        machine.off = off;
        // A kernel that calls a wrong clock synchronised is believed only after a while.
        machine.ntp = ntp.then_some(off).filter(|_| secs < SETTLE.as_secs());
        machine.runs(secs);
        (machine.off, machine.ntp) = (0, None);
        machine.runs(60);
        prop_assert!((now(&machine) - machine.truth).abs() <= 1);
        prop_assert!(machine.keeper().is_sure());
    }

    #[test]
    fn a_start_within_one_boot_knows_how_long_it_was_away(off in jump(), secs in 0_u64..WEEK) {
        let mut machine = sure();
        machine.saves();
        machine.rests(secs);
        machine.off = off;
        machine.restarts();
        prop_assert!((now(&machine) - machine.truth).abs() <= 1);
    }
}

#[test]
fn after_a_jump_nothing_is_over_until_time_is_confirmed() {
    for off in [JUMP.as_secs().cast_signed() + 60, -7_200, 40 * 86_400, -10 * YEAR] {
        let mut machine = sure();
        machine.off = off;
        machine.looks();
        assert_eq!(machine.keeper().over(LIFE), None, "{off}");
        assert!(
            machine.keeper().over(Duration::from_secs(600)).is_some(),
            "what lives for minutes goes by steady time"
        );
        machine.runs(DAY.as_secs() - 60);
        assert!((now(&machine) - machine.truth).abs() <= 1, "{off} is not believed yet");
        assert_eq!(machine.keeper().over(LIFE), None);
        machine.runs(120);
        assert!((now(&machine) - machine.truth - off).abs() <= 1, "after a day it is");
        assert!(machine.keeper().over(LIFE).is_some());
    }
}

#[test]
fn things_made_with_the_clock_ahead_end_a_lifetime_after_it_is_set_back() {
    let never = UnixTime(u32::MAX);
    let mut machine = sure();
    (machine.off, machine.ntp) = (YEAR, Some(YEAR));
    machine.runs(WEEK);
    let made = machine.keeper().now().plus_secs(LIFE.as_secs() as u32);
    (machine.off, machine.ntp) = (0, Some(0));
    machine.runs(LIFE.as_secs());
    assert_eq!(machine.keeper().after(LIFE), never, "it may be a minute old");
    machine.runs(3 * 3_600);
    assert!(machine.keeper().after(LIFE) < made);
    assert!(
        machine.keeper().after(LIFE) > machine.keeper().now().plus_secs(LIFE.as_secs() as u32),
        "new things have their time"
    );
    // In doubt nothing is deleted; and nothing is let in that would be at once.
    (machine.off, machine.ntp) = (2 * YEAR, None);
    machine.runs(60);
    assert_eq!(machine.keeper().over(LIFE), None);
    assert!(machine.keeper().after(LIFE) < made);
}

#[test]
fn ntp_confirms_a_jump_after_a_quarter_of_an_hour() {
    let mut machine = sure();
    (machine.off, machine.ntp) = (2 * 86_400, Some(2 * 86_400));
    machine.runs(SETTLE.as_secs() - 60);
    assert!(!machine.keeper().is_sure());
    machine.runs(120);
    assert!(machine.keeper().is_sure());
    assert!((now(&machine) - machine.truth - 2 * 86_400).abs() <= 1);
    let over = machine.keeper().over(LIFE).unwrap();
    assert!(i64::from(over.before.0) < machine.truth + 60, "what was promised before has its time all the same");
}

#[test]
fn a_service_confirms_a_jump_where_the_wall_clock_says_the_same() {
    let confirmed = |date_off: i64| {
        let mut machine = sure();
        machine.off = 86_400;
        for _ in 0..20 {
            machine.runs(60);
            machine.hears(date_off);
        }
        machine.looks();
        machine.keeper().is_sure()
    };
    assert!(confirmed(86_400));
    assert!(!confirmed(2 * 86_400), "a service alone sets no clock");
}

#[test]
fn witnesses_who_contradict_each_other_confirm_nothing_for_a_day() {
    let mut machine = sure();
    (machine.off, machine.ntp) = (86_400, Some(86_400));
    for _ in 0..60 {
        machine.runs(60);
        machine.hears(0);
    }
    assert!(!machine.keeper().is_sure());
    assert!((now(&machine) - machine.truth).abs() <= 1);
}

#[test]
fn small_jumps_do_not_add_up() {
    let mut machine = sure();
    for round in 1..=20 {
        machine.off = round * 59 * 60;
        machine.runs(600);
        assert!((now(&machine) - machine.truth).abs() <= 1, "after {round}");
    }
    assert!(!machine.keeper().is_sure(), "together they are noticed");
}

#[test]
fn a_box_without_a_battery_goes_on_from_its_last_good_time() {
    let mut machine = sure();
    machine.saves();
    let last = now(&machine);
    let since_1970 = machine.truth;
    machine.is_off(3_600, -since_1970 - 3_600);
    assert_eq!(machine.reading().wall_us, 0, "1970");
    assert!((now(&machine) - last).abs() <= 1);
    machine.runs(3 * DAY.as_secs());
    assert!(now(&machine) >= last + 3 * 86_400, "1970 is not believed however long it stands");
    (machine.off, machine.ntp) = (0, Some(0));
    machine.runs(SETTLE.as_secs() + 60);
    assert!((now(&machine) - machine.truth).abs() <= 1 && machine.keeper().is_sure());
}

/// Seconds since 1970 end in 2106, and time stood still there: what was tried again after a while was tried again at once, for ever.
#[test]
fn a_clock_beyond_what_seconds_can_say_is_no_help_and_time_goes_on() {
    for begins_so in [true, false] {
        let mut machine = match begins_so {
            true => Machine::new(START + 85 * YEAR.unsigned_abs()),
            false => sure(),
        };
        machine.saves();
        let last = now(&machine);
        assert!(last <= i64::from(LATEST.0), "{begins_so}");
        // At a start, while it runs, and by those who are believed.
        machine.is_off(60, if begins_so { 0 } else { 85 * YEAR });
        machine.ntp = Some(machine.off);
        for day in 1..=3 {
            machine.runs(DAY.as_secs());
            machine.hears(machine.off);
            assert!((now(&machine) - last - day * 86_400).abs() <= 61, "{begins_so}, day {day}");
        }
        // A service alone is not believed.
        machine.ntp = None;
        machine.runs(60);
        let before = now(&machine);
        for _ in 0..20 {
            machine.hears(-40 * YEAR);
            machine.runs(60);
        }
        assert!((now(&machine) - before - 1_200).abs() <= 1, "{begins_so}");
        // It is set right, and stands.
        let off = if begins_so { -85 * YEAR } else { 0 };
        machine.is_off(60, off);
        machine.off = off;
        machine.runs(DAY.as_secs() + 120);
        assert!((now(&machine) - machine.truth - off).abs() <= 1 && machine.keeper().is_sure(), "{begins_so}");
    }
}

#[test]
fn a_start_far_after_the_last_good_time_guesses_and_deletes_nothing() {
    let mut machine = sure();
    machine.saves();
    machine.is_off(3 * 86_400, 0);
    assert!((now(&machine) - machine.truth).abs() <= 1, "the guess");
    assert_eq!(machine.keeper().over(LIFE), None);
    machine.runs(DAY.as_secs() + 60);
    assert!(machine.keeper().is_sure());
    assert!((now(&machine) - machine.truth).abs() <= 1);
}

#[test]
fn what_lives_for_minutes_does_not_wait_until_time_is_confirmed() {
    // Switched off for three days, and started without NTP; set back by 20 hours, which is believed.
    let (mut off, mut back) = (sure(), sure());
    off.is_off(3 * 86_400, 0);
    back.runs(60);
    let made = [now(&off), now(&back)].map(|now| now + 600);
    (back.off, back.ntp) = (-20 * 3_600, Some(-20 * 3_600));
    for (machine, end) in [(&mut off, made[0]), (&mut back, made[1])] {
        machine.runs(540);
        let is_over = |machine: &Machine| {
            let over = machine.keeper().over(SHORT).expect("whatever the time is");
            i64::from(over.before.0) > end || i64::from(over.after.0) < end
        };
        assert!(!is_over(machine), "it has not lived so long");
        machine.runs(2 * 3_600);
        assert!(is_over(machine), "{:?}", machine.keeper());
    }
}

#[test]
fn a_day_in_doubt_is_counted_over_restarts() {
    let mut machine = sure();
    machine.off = 40 * 86_400;
    machine.looks();
    for _ in 0..24 {
        assert!(!machine.keeper().is_sure());
        machine.runs(3_600);
        machine.saves();
        machine.restarts();
        machine.looks();
    }
    assert!(machine.keeper().is_sure(), "a disk that is full has to be emptied some day");
}

#[test]
fn however_often_time_is_set_few_steps_are_kept() {
    let mut machine = sure();
    for _ in 0..200 {
        machine.saves();
        machine.is_off(1_000, 0);
        machine.runs(10);
    }
    machine.saves();
    assert!(machine.disk().steps.len() <= hoop_timekeeper::STEPS_MAX);
    assert!(machine.disk().steps.iter().map(|step| step.by).sum::<u64>() >= 200_000);
}
