//! What an upload costs the index, counted as SQLite does it: so that nobody adds to it unseen.
#![allow(unsafe_code)]

use crate::index::resource::{Resource, Token};
use crate::index::{Place, Queue};
use crate::model::limits::KEEP_SECS;
use crate::model::state::State;
use crate::model::upload::{Change, Offer, Reason};
use crate::spool::{Begin, Settings, Spool};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use parking_lot::Mutex;
use rusqlite::ffi;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: UnixTime = UnixTime(1_000_000);
const DEVICE: AddressKey = AddressKey([7; 16]);
const TOTAL: u64 = 100_000;

/// Uploads that are counted together: pages are split now and then.
const UPLOADS: u32 = 100;

#[test]
fn a_hundred_small_uploads_share_a_transaction_from_first_byte_to_end() {
    let (_folder, spool) = open();
    let meter = Meter::new(&spool);
    let phases: [fn(&Spool, u32); 3] = [take, send, answer];
    let mut sums = [Cost::default(); 3];
    for number in 0..2 * UPLOADS {
        for (sum, phase) in sums.iter_mut().zip(phases) {
            phase(&spool, number);
            let cost = meter.take();
            // The first find the trees small, and compile what the others use again.
            sum.add(if number < UPLOADS { Cost::default() } else { cost });
        }
    }
    let of_each = |statements| Cost { statements: statements * UPLOADS, ..Cost::default() };
    let [stored, sent, over] = sums.map(|sum| Cost { pages: 0, transactions: 0, groups: 0, ..sum });
    // What opens and commits the transaction that they share is not counted.
    assert_eq!(stored, of_each(7), "from the first byte to `stored`");
    assert_eq!(sent, of_each(13), "from `stored` to the first byte sent");
    assert_eq!(over, of_each(7), "`received` and `accepted`");
    let pages: u32 = sums.iter().map(|sum| sum.pages).sum();
    let transactions: u32 = sums.iter().map(|sum| sum.transactions).sum();
    assert!(transactions <= 1 && pages <= 2 * UPLOADS, "{sums:?}");
}

#[test]
fn nothing_that_an_upload_needs_in_its_life_reads_the_whole_table() {
    let (_folder, spool) = open();
    let meter = Meter::new(&spool);
    for number in 0..3 {
        take(&spool, number);
        send(&spool, number);
    }
    change(&spool, 0, Change { next_attempt: Some(NOW.plus_secs(9)), ..Change::default() });
    assert_eq!(spool.due_of(NOW.plus_secs(9), Queue::Send, DEVICE, Place::START, 9).unwrap().len(), 3);
    answer(&spool, 0);
    let (reason, range) = (Reason::new("spool-damaged", ""), ByteRange::new(128, 70_000));
    spool.spoil(offer(1).id, &hoop_units::RangeSet::from_iter([range]).into(), &reason, NOW).unwrap();
    let Begin::Take(mut intake) = spool.begin(&Offer { prelude: Vec::new(), ..offer(4) }).unwrap() else { panic!() };
    intake.write_at(128, &[7; 200]).unwrap();
    intake.commit(ByteRange::new(128, 328), NOW).unwrap();
    drop(intake);
    spool.abandon(offer(5).id).unwrap();
    spool.sweep(offer(1).id.0[0]).unwrap();
    let ended = [2, 4].map(|times| spool.end(&reason, NOW.plus_secs(times * KEEP_SECS), 9).unwrap());
    assert_eq!(ended, [4, 2], "one is forgotten, one had no prelude, two expire; and these are forgotten");
    assert!(spool.tally().unwrap().is_empty());
    let queries = meter.queries();
    assert!(queries.iter().any(|sql| sql.starts_with("DELETE")) && queries.len() > 20, "{queries:?}");
    let index = spool.shared.index();
    for sql in queries {
        let mut statement = index.db().prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().unwrap() {
            let step = row.get::<_, String>("detail").unwrap();
            let whole = ["upload", "sums", "holding"].map(|table| format!("SCAN {table}"));
            assert!(!whole.iter().any(|whole| step.starts_with(whole)), "{sql}: {step}");
        }
    }
}

#[test]
fn concurrent_changes_and_a_senders_bytes_share_a_transaction() {
    const CHANGES: u32 = 5;
    let (_folder, spool) = open();
    (0..CHANGES).for_each(|number| take(&spool, number));
    // Of one that has come to its end nothing is recorded, and nobody else is kept from it.
    change(&spool, 0, Change { state: Some(State::Accepted), ..Change::default() });
    let Begin::Take(mut intake) = spool.begin(&offer(CHANGES)).unwrap() else { panic!("it is new") };
    intake.write_at(128, &[7; TOTAL as usize - 128]).unwrap();
    let meter = Meter::new(&spool);
    std::thread::scope(|scope| {
        // As if another transaction were under way.
        let index = spool.shared.index();
        for number in 0..CHANGES {
            let (spool, received) = (&spool, Change { state: Some(State::Received), ..Change::default() });
            scope.spawn(move || change(spool, number, received));
        }
        scope.spawn(|| intake.commit(ByteRange::new(128, TOTAL), NOW).unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        while spool.shared.committer.len() <= CHANGES as usize {
            assert!(Instant::now() < end, "they do not come to be recorded");
            std::thread::yield_now();
        }
        drop(index);
    });
    assert_eq!(meter.take().groups, 1);
    let states = (0..=CHANGES).map(|number| spool.get(offer(number).id).unwrap().unwrap().state);
    let received = [State::Received; CHANGES as usize - 1];
    assert_eq!(states.collect::<Vec<_>>(), [&[State::Accepted], &received[..], &[State::Stored]].concat());
}

#[test]
fn waiting_changes_beyond_a_group_commit_in_turns_and_none_is_lost() {
    const CHANGES: u32 = 70;
    let (_folder, spool) = open();
    (0..CHANGES).for_each(|number| take(&spool, number));
    let meter = Meter::new(&spool);
    std::thread::scope(|scope| {
        let index = spool.shared.index();
        for number in 0..CHANGES {
            let (spool, received) = (&spool, Change { state: Some(State::Received), ..Change::default() });
            scope.spawn(move || change(spool, number, received));
        }
        let end = Instant::now() + Duration::from_secs(60);
        while spool.shared.committer.len() < CHANGES as usize {
            assert!(Instant::now() < end, "they do not come to be recorded");
            std::thread::yield_now();
        }
        drop(index);
    });
    assert_eq!(meter.take().groups, 2, "of 64 at most");
    assert!((0..CHANGES).all(|number| spool.get(offer(number).id).unwrap().unwrap().state == State::Received));
    // And whoever comes later is not kept waiting.
    change(&spool, 0, Change { state: Some(State::Accepted), ..Change::default() });
    assert_eq!(spool.get(offer(0).id).unwrap().unwrap().state, State::Accepted);
}

#[test]
fn a_part_of_one_byte_costs_few_pages_however_long_the_tail_is() {
    const PARTS: u32 = 200;
    let (_folder, spool) = open();
    let token = Token([7; 16]);
    let mut resource = Resource::new(DEVICE, offer(0).dest, Some(TOTAL), NOW);
    assert!(spool.add_resource(token, &resource, NOW).unwrap());
    resource.tail = (0..60_000_u32).map(|at| at as u8).collect();
    assert!(spool.keep_resource(token, &resource).unwrap());
    let meter = Meter::new(&spool);
    for part in 0..PARTS {
        resource.tail.push(part as u8);
        resource.expires = NOW.plus_secs(part);
        assert!(spool.keep_resource(token, &resource).unwrap());
    }
    let cost = meter.take();
    assert_eq!(cost.transactions, PARTS);
    assert!(cost.pages <= 5 * PARTS, "{cost:?}");
    assert_eq!(spool.resource(token, NOW).unwrap(), Some(resource));
}

fn open() -> (tempfile::TempDir, Spool) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { first_record: 128, sync: false, ..Settings::new(folder.path()) };
    let spool = Spool::open(settings).unwrap();
    (folder, spool)
}

fn offer(number: u32) -> Offer {
    let mut id = [0; 16];
    // Spread as random ids are.
    id[..4].copy_from_slice(&(number + 1).wrapping_mul(0x9e37_79b1).to_be_bytes());
    Offer {
        id: UploadId(id),
        prelude: vec![7; 128],
        total: Some(TOTAL),
        dest: "https://photos.example/hoop/post".into(),
        expires: NOW.plus_secs(1_000 + number),
        device: DEVICE,
        deadline: None,
    }
}

/// As a gateway takes an upload in.
fn take(spool: &Spool, number: u32) {
    let offer = offer(number);
    assert!(spool.get(offer.id).unwrap().is_none());
    spool.held_by(DEVICE).unwrap();
    let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("it is new") };
    intake.write_at(128, &[7; TOTAL as usize - 128]).unwrap();
    assert_eq!(intake.commit(ByteRange::new(128, TOTAL), NOW).unwrap(), State::Stored);
}

/// As it finds that one is due, and begins to send it.
fn send(spool: &Spool, number: u32) {
    for queue in [Queue::Send, Queue::Small] {
        assert_eq!(spool.due_devices(NOW, queue, None, 64).unwrap(), [DEVICE]);
        assert!(!spool.due_of(NOW, queue, DEVICE, Place::START, 64).unwrap().is_empty());
    }
    spool.due_devices(NOW, Queue::Ask, None, 64).unwrap();
    spool.next_due(NOW).unwrap();
    let upload = spool.get(offer(number).id).unwrap().unwrap();
    change(spool, number, Change { state: Some(State::Delivering), ..Change::default() });
    spool.payload(upload.id).unwrap().read_at(0, &mut [0; TOTAL as usize]).unwrap();
}

/// As it records what the service said.
fn answer(spool: &Spool, number: u32) {
    let all = Some([ByteRange::new(0, TOTAL)].into_iter().collect());
    change(spool, number, Change { state: Some(State::Received), delivered: all, ..Change::default() });
    change(spool, number, Change { state: Some(State::Accepted), answer: Some(vec![7; 200]), ..Change::default() });
}

fn change(spool: &Spool, number: u32, change: Change) {
    spool.change(offer(number).id, &change, NOW).unwrap().unwrap();
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cost {
    /// Those that SQLite committed.
    transactions: u32,
    /// Those that were recorded together: each waits for the disk at most once.
    groups: u32,
    /// Without those of triggers, and those that open and commit.
    statements: u32,
    /// Of these, those that were compiled for it.
    compiled: u32,
    /// Pages that were written into the log.
    pages: u32,
}

impl Cost {
    fn add(&mut self, more: Self) {
        self.transactions += more.transactions;
        self.groups += more.groups;
        self.statements += more.statements;
        self.compiled += more.compiled;
        self.pages += more.pages;
    }
}

/// Counts what a spool's index does.
struct Meter {
    spool: Spool,
    noted: Arc<Mutex<Noted>>,
}

#[derive(Default)]
struct Noted {
    cost: Cost,
    queries: BTreeSet<String>,
}

impl Meter {
    fn new(spool: &Spool) -> Self {
        let noted = Arc::<Mutex<Noted>>::default();
        let context: *mut c_void = Arc::as_ptr(&noted).cast_mut().cast();
        let index = spool.shared.index();
        // SAFETY: the connection is open; the meter takes both away again before what they are given is gone.
        unsafe {
            let mask = ffi::SQLITE_TRACE_STMT as c_uint;
            assert_eq!(ffi::sqlite3_trace_v2(index.db().handle(), mask, Some(on_statement), context), ffi::SQLITE_OK);
            ffi::sqlite3_commit_hook(index.db().handle(), Some(on_commit), context);
        }
        drop(index);
        Self { spool: spool.clone(), noted }
    }

    /// What it came to since this was asked last.
    fn take(&self) -> Cost {
        let (mut pages, mut highest) = (0, 0);
        let index = self.spool.shared.index();
        let status = ffi::SQLITE_DBSTATUS_CACHE_WRITE;
        // SAFETY: the connection is open, and the two numbers outlive the call.
        let code = unsafe { ffi::sqlite3_db_status(index.db().handle(), status, &raw mut pages, &raw mut highest, 1) };
        assert_eq!(code, ffi::SQLITE_OK);
        Cost { pages: pages.unsigned_abs(), ..std::mem::take(&mut self.noted.lock().cost) }
    }

    /// All statements that there were, but those that open and commit.
    fn queries(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.noted.lock().queries)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let index = self.spool.shared.index();
        // SAFETY: the connection is open.
        unsafe {
            ffi::sqlite3_trace_v2(index.db().handle(), 0, None, std::ptr::null_mut());
            ffi::sqlite3_commit_hook(index.db().handle(), None, std::ptr::null_mut());
        }
    }
}

unsafe extern "C" fn on_statement(_: c_uint, noted: *mut c_void, statement: *mut c_void, sql: *mut c_void) -> c_int {
    // SAFETY: the meter's own; a statement that begins to run; its text. As SQLite's documentation has it.
    let (noted, runs, again, sql) = unsafe {
        let runs = ffi::sqlite3_stmt_status(statement.cast(), ffi::SQLITE_STMTSTATUS_RUN, 0);
        let again = ffi::sqlite3_stmt_status(statement.cast(), ffi::SQLITE_STMTSTATUS_REPREPARE, 1);
        (&*noted.cast::<Mutex<Noted>>(), runs, again, CStr::from_ptr(sql.cast()))
    };
    let (mut noted, sql) = (noted.lock(), sql.to_string_lossy());
    let opens = ["BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK", "UPDATE room SET epoch"];
    let is_query = !opens.iter().any(|start| sql.starts_with(start));
    // A trigger is told as a comment.
    if !sql.starts_with("--") {
        noted.cost.statements += u32::from(is_query);
        noted.cost.groups += u32::from(sql == "RELEASE steps");
        noted.cost.compiled += u32::from((runs == 0 || again > 0) && is_query);
        noted.queries.extend(is_query.then(|| sql.into_owned()));
    }
    0
}

unsafe extern "C" fn on_commit(noted: *mut c_void) -> c_int {
    // SAFETY: the meter's own.
    let noted = unsafe { &*noted.cast::<Mutex<Noted>>() };
    noted.lock().cost.transactions += 1;
    0
}
