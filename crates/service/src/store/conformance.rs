//! What any index and any bodies must do, whatever they are made of: [`check`] runs it against an implementation, so that the next one (PostgreSQL,
//! S3) has only to call it.

use super::{Bodies, Changed, Index, UnderWay};
use crate::model::{BLOCK, Change, Facts, KEPT_SECS, LINGER_SECS, Marked, Payer, Reason, State, Sum, Tag, Upload};
use hoop_http::Code;
use hoop_timekeeper::Over;
use hoop_units::{ByteRange, UnixTime, UploadId};
use std::io;
use std::sync::{Arc, Barrier};

/// The two parts of a state, empty.
pub struct Fresh {
    /// Facts.
    pub index: Arc<dyn Index>,
    /// Sealed bytes.
    pub bodies: Arc<dyn Bodies>,
}

/// Runs every claim on a state of its own, which `fresh` makes.
///
/// # Panics
/// At the first claim that does not hold.
pub fn check(fresh: impl Fn() -> Fresh) {
    let index_claims: [fn(&Arc<dyn Index>); 15] = [
        what_was_received_adds_up_and_ends_with_the_whole,
        nothing_is_received_of_what_was_forgotten,
        of_many_who_claim_an_upload_one_gets_it,
        what_many_change_at_once_is_all_there,
        a_refused_change_changes_nothing,
        what_is_due_comes_in_order_and_never_while_it_is_paused,
        what_is_interrupted_is_found_page_by_page,
        an_owner_sees_the_newest_first_and_only_what_is_theirs,
        whoever_has_an_upload_under_way_is_found_once,
        a_body_counts_until_it_is_disposed_of,
        what_may_be_released_is_kept_for_its_time_and_then_disposed_of,
        only_what_is_long_over_and_disposed_of_is_forgotten,
        what_a_payer_has_is_told_and_who_has_no_beginning,
        what_nothing_has_proven_is_discarded_and_no_other,
        a_pause_or_a_stop_before_anything_has_come_holds,
    ];
    index_claims.iter().for_each(|claim| claim(&fresh().index));
    let body_claims: [fn(&Arc<dyn Bodies>); 3] =
        [a_body_is_what_was_written_whoever_opens_it, a_body_that_is_not_there_is_an_error, idle_bodies_are_found];
    body_claims.iter().for_each(|claim| claim(&fresh().bodies));
}

const TOTAL: u64 = 1_000;

fn id(n: u8) -> UploadId {
    UploadId([n; 16])
}

/// What has come of an upload of the owner 0 or 1.
pub fn progress(n: u8, end: u64) -> Upload {
    let begun = Upload::begun(id(n), vec![n; 128], TOTAL, UnixTime(1_000), UnixTime(100 + u32::from(n)));
    Upload {
        received: [ByteRange::new(0, end)].into_iter().collect(),
        facts: Some(Facts { method: "POST".into(), path: "/up".into(), owner: [n % 2; 16] }),
        payer: Some(Payer::Owner([n % 2; 16])),
        ..begun
    }
}

/// The upload after a change that was made.
pub fn done(changed: Changed) -> Upload {
    match changed {
        Changed::Done(upload) => upload,
        other => panic!("{other:?}"),
    }
}

/// Puts in an upload of which all has come.
fn received(index: &Arc<dyn Index>, n: u8) -> Upload {
    done(index.receive(&progress(n, TOTAL), true).unwrap())
}

fn apply(index: &Arc<dyn Index>, n: u8, change: Change) -> Changed {
    index.apply(id(n), change, UnixTime(500)).unwrap()
}

/// Takes an upload to its end.
fn accept(index: &Arc<dyn Index>, n: u8) -> Upload {
    received(index, n);
    done(apply(index, n, Change::Claim));
    let answered =
        Change::Answered { state: State::Accepted, reason: None, answer: vec![1, 2], receipt: Some(vec![3, 4]) };
    done(apply(index, n, answered))
}

fn what_was_received_adds_up_and_ends_with_the_whole(index: &Arc<dyn Index>) {
    let first = done(index.receive(&progress(1, 300), true).unwrap());
    assert_eq!((first.state, first.received.len()), (State::Receiving, 300));
    let mut rest = progress(1, 0);
    rest.received = [ByteRange::new(500, TOTAL)].into_iter().collect();
    rest.facts = None;
    let second = done(index.receive(&rest, false).unwrap());
    assert_eq!((second.state, second.received.len()), (State::Receiving, 800));
    assert!(second.facts.is_some(), "what is known stays");
    rest.received = [ByteRange::new(250, 550)].into_iter().collect();
    let whole = done(index.receive(&rest, true).unwrap());
    assert_eq!((whole.state, whole.received.missing(TOTAL).next()), (State::Received, None));
    assert!(index.load(id(1)).unwrap() == Some(whole), "what was returned is what is kept");
    assert!(matches!(index.receive(&rest, false).unwrap(), Changed::Refused(_)), "it takes no more");
}

fn nothing_is_received_of_what_was_forgotten(index: &Arc<dyn Index>) {
    assert!(matches!(index.receive(&progress(1, 9), false).unwrap(), Changed::Unknown));
    assert!(matches!(apply(index, 1, Change::Claim), Changed::Unknown));
    assert!(index.load(id(1)).unwrap().is_none());
}

/// Many processes may look at one index: a claim is a comparison and a change in one.
fn of_many_who_claim_an_upload_one_gets_it(index: &Arc<dyn Index>) {
    received(index, 1);
    let barrier = Arc::new(Barrier::new(8));
    let claims: Vec<_> = (0..8)
        .map(|_| {
            let (index, barrier) = (index.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                matches!(index.apply(id(1), Change::Claim, UnixTime(500)).unwrap(), Changed::Done(_))
            })
        })
        .collect();
    let got = claims.into_iter().map(|claim| claim.join().unwrap()).filter(|got| *got).count();
    assert_eq!(got, 1);
    assert_eq!(index.load(id(1)).unwrap().unwrap().attempts, 1);
}

fn what_many_change_at_once_is_all_there(index: &Arc<dyn Index>) {
    let barrier = Arc::new(Barrier::new(16));
    let senders: Vec<_> = (0..16_u8)
        .map(|n| {
            let (index, barrier) = (index.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                for step in 1..=10_u64 {
                    let end = step * 100;
                    let told = done(index.receive(&progress(n, end), step == 1).unwrap());
                    assert_eq!((told.id, told.received.len()), (id(n), end), "each caller gets its own");
                    assert_eq!(index.load(id(n)).unwrap().unwrap().received.len(), end, "and reads what it wrote");
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert!((0..16).all(|n| index.load(id(n)).unwrap().unwrap().state == State::Received));
}

fn a_refused_change_changes_nothing(index: &Arc<dyn Index>) {
    let accepted = accept(index, 1);
    for change in [Change::Claim, Change::Stop, Change::Pause, Change::Expire] {
        match apply(index, 1, change) {
            Changed::Refused(upload) => assert!(upload == accepted),
            other => panic!("{other:?}"),
        }
    }
    assert!(index.load(id(1)).unwrap() == Some(accepted));
}

fn what_is_due_comes_in_order_and_never_while_it_is_paused(index: &Arc<dyn Index>) {
    (1..=4).for_each(|n| drop(received(index, n)));
    done(apply(index, 1, Change::Claim));
    let reason = Reason::new(Code::UpstreamBusy, "for once");
    done(apply(index, 1, Change::Retry { at: UnixTime(700), reason }));
    done(apply(index, 3, Change::Pause));
    received(index, 5);
    let (even, odd) = (Some(Payer::Owner([0; 16])), Some(Payer::Owner([1; 16])));
    assert_eq!(index.due(None, UnixTime(600)).unwrap(), [(even, id(2)), (even, id(4)), (odd, id(5))]);
    assert_eq!(index.due(even, UnixTime(600)).unwrap(), [(odd, id(5)), (even, id(2)), (even, id(4))]);
    assert_eq!(index.next_due(UnixTime(600)).unwrap(), Some(UnixTime(700)));
    assert!(index.due(None, UnixTime(700)).unwrap().contains(&(odd, id(1))));
    assert_eq!(index.next_due(UnixTime(700)).unwrap(), None);
}

fn what_is_interrupted_is_found_page_by_page(index: &Arc<dyn Index>) {
    (1..=5).for_each(|n| drop(received(index, n)));
    (1..=4).for_each(|n| drop(done(apply(index, n, Change::Claim))));
    done(apply(index, 2, Change::Commit));
    assert_eq!(index.interrupted(None, 3).unwrap(), [id(1), id(2), id(3)]);
    assert_eq!(index.interrupted(Some(id(3)), 3).unwrap(), [id(4)]);
}

fn an_owner_sees_the_newest_first_and_only_what_is_theirs(index: &Arc<dyn Index>) {
    (1..=6).for_each(|n| drop(received(index, n)));
    let ids = |tags: &[_], limit| index.owned(tags, limit).unwrap().iter().map(|upload| upload.id).collect::<Vec<_>>();
    assert_eq!(ids(&[[1; 16]], 9), [id(5), id(3), id(1)]);
    assert_eq!(ids(&[[1; 16], [0; 16]], 3), [id(6), id(5), id(4)]);
    assert_eq!(ids(&[[7; 16]], 9), []);
}

fn whoever_has_an_upload_under_way_is_found_once(index: &Arc<dyn Index>) {
    (1..=4).for_each(|n| drop(received(index, n)));
    index.receive(&Upload { facts: None, ..progress(5, 9) }, true).unwrap();
    let under_way = |turn, of_payer, limit| index.under_way([turn; 16], of_payer, limit).unwrap();
    let of =
        |turn, of_payer, limit| -> Vec<Tag> { under_way(turn, of_payer, limit).iter().map(|of| of.owner).collect() };
    let owners = |limit| of(9, 9, limit);
    assert_eq!((owners(9), owners(1)), (vec![[0; 16], [1; 16]], vec![[0; 16]]));
    for n in [1, 3] {
        done(apply(index, n, Change::Pause));
    }
    assert_eq!(owners(9), [[0; 16]], "a pause is none of the session's");
    done(apply(index, 2, Change::Claim));
    assert_eq!(under_way(9, 9, 9), [UnderWay { owner: [0; 16], id: id(4), began: progress(4, 9).created }]);
    // Strangers: of one payer so many, and behind those whom the application names.
    for n in 21..=26 {
        let owner = [n + 100; 16];
        let payer = Some(Payer::Address([n / 26; 16]));
        let facts = Some(Facts { method: "POST".into(), path: "/".into(), owner });
        index.receive(&Upload { facts, payer, ..progress(n, 9) }, true).unwrap();
    }
    let anonymous =
        |turn, of_payer| of(turn, of_payer, 9).split_off(1).iter().map(|tag| tag[0] - 100).collect::<Vec<_>>();
    assert_eq!((anonymous(0, 9), of(0, 9, 1)), (vec![21, 22, 23, 24, 25, 26], vec![[0; 16]]));
    assert_eq!(anonymous(0, 2), [21, 22, 26], "an address has so many");
    assert_eq!((anonymous(122, 2), anonymous(124, 2)), (vec![23, 24, 26], vec![25, 26, 21]), "and each has its turn");
}

fn a_body_counts_until_it_is_disposed_of(index: &Arc<dyn Index>) {
    accept(index, 1);
    received(index, 2);
    let counts = index.counts().unwrap();
    assert!(counts.contains(&(State::Accepted, 1)) && counts.contains(&(State::Received, 1)), "{counts:?}");
    assert_eq!((index.stored().unwrap(), index.disposable(9).unwrap()), (2 * BLOCK, vec![id(1)]));
    index.disposed(vec![id(1)]).unwrap();
    assert_eq!((index.stored().unwrap(), index.disposable(9).unwrap()), (BLOCK, vec![]));
}

fn what_may_be_released_is_kept_for_its_time_and_then_disposed_of(index: &Arc<dyn Index>) {
    for n in 1..=3 {
        received(index, n);
        done(apply(index, n, Change::Claim));
        let rejected = Change::Answered { state: State::Rejected, reason: None, answer: vec![1], receipt: None };
        done(index.apply(id(n), rejected, UnixTime(500 + u32::from(n))).unwrap());
    }
    assert_eq!((index.disposable(9).unwrap(), index.stored().unwrap()), (vec![], 3 * BLOCK));
    assert_eq!(index.longest_kept(None, 2).unwrap(), [id(1), id(2)]);
    assert_eq!(index.kept(UnixTime(501 + KEPT_SECS).into(), 9).unwrap(), []);
    assert_eq!(index.kept(UnixTime(502 + KEPT_SECS).into(), 9).unwrap(), [id(1)]);
    assert_eq!(
        index.kept(UnixTime(1_001 + LINGER_SECS).into(), 9).unwrap().len(),
        3,
        "no longer than the upload may last"
    );
    done(apply(index, 1, Change::LetGo));
    let release = || Change::Release { token: vec![1], owner: [1; 16], twice: true };
    done(apply(index, 2, release()));
    assert!(matches!(apply(index, 1, release()), Changed::Refused(_)), "its body may be gone");
    assert_eq!((index.disposable(9).unwrap(), index.longest_kept(None, 9).unwrap()), (vec![id(1)], vec![id(3)]));
    assert_eq!(index.due(None, UnixTime(600)).unwrap().iter().map(|(_, id)| *id).collect::<Vec<_>>(), [id(2)]);
}

fn only_what_is_long_over_and_disposed_of_is_forgotten(index: &Arc<dyn Index>) {
    (1..=2).for_each(|n| drop(accept(index, n)));
    received(index, 3);
    index.disposed(vec![id(1)]).unwrap();
    let end = 1_000 + 2 * LINGER_SECS;
    assert_eq!(index.overdue(UnixTime(1_000 + LINGER_SECS).into(), 9).unwrap(), []);
    assert_eq!(index.overdue(UnixTime(1_001 + LINGER_SECS).into(), 9).unwrap(), [id(3)], "what still waits");
    let ending = |before| index.ending(UnixTime(before)).unwrap();
    assert_eq!((ending(1_000 + LINGER_SECS), ending(1_001 + LINGER_SECS)), (0, 1), "and is told before");
    assert_eq!(index.forget(UnixTime(end).into(), 9).unwrap(), 0);
    assert_eq!(index.forget(UnixTime(end + 1).into(), 9).unwrap(), 1);
    assert_eq!([1, 2, 3].map(|n| index.load(id(n)).unwrap().is_some()), [false, true, true]);
}

fn what_a_payer_has_is_told_and_who_has_no_beginning(index: &Arc<dyn Index>) {
    let address = Payer::Address([1; 16]);
    index.receive(&Upload { facts: None, payer: Some(address), ..progress(1, 9) }, true).unwrap();
    index.receive(&Upload { facts: None, payer: Some(address), ..progress(2, 9) }, true).unwrap();
    // Nobody would know that it was paused.
    done(apply(index, 2, Change::Pause));
    index.receive(&progress(3, 100), true).unwrap();
    received(index, 5);
    let paid = |payer| index.paid_by(payer).unwrap();
    assert_eq!(paid(Payer::Owner([1; 16])), Sum { uploads: 2, bytes: 2 * BLOCK }, "each counts as a block");
    assert_eq!(paid(address), Sum { uploads: 2, bytes: 2 * BLOCK });
    let headless = |over: Over| index.headless(over, 50, 9).unwrap();
    assert_eq!((headless(UnixTime(150).into()), headless(UnixTime(999).into())), (vec![], vec![id(1)]));
    // It began while the clock was ahead, and that was long ago.
    let after = |after| Over { before: UnixTime(0), after: UnixTime(after) };
    assert_eq!((headless(after(151)), headless(after(149))), (vec![], vec![id(1)]));
    // Record 0 says whose it is.
    index.receive(&progress(1, 20), false).unwrap();
    assert_eq!((paid(address).bytes, paid(Payer::Owner([1; 16])).bytes), (BLOCK, 3 * BLOCK));
    index.disposed(vec![id(5)]).unwrap();
    assert_eq!(paid(Payer::Owner([1; 16])).uploads, 3, "it needs its body");
    assert_eq!(index.need_no_body(vec![id(5), id(77)]).unwrap(), [id(77)]);
    done(apply(index, 5, Change::Stop));
    assert_eq!(index.need_no_body(vec![id(5), id(77)]).unwrap(), [id(5), id(77)]);
    index.disposed(vec![id(5)]).unwrap();
    assert_eq!((paid(Payer::Owner([1; 16])).uploads, headless(UnixTime(999).into())), (2, vec![]));
}

fn what_nothing_has_proven_is_discarded_and_no_other(index: &Arc<dyn Index>) {
    index.receive(&Upload { facts: None, ..progress(1, 9) }, true).unwrap();
    index.receive(&progress(2, 9), true).unwrap();
    assert_eq!([1, 2].map(|n| index.discard(id(n)).unwrap()), [true, false]);
    assert_eq!([1, 2].map(|n| index.load(id(n)).unwrap().is_some()), [false, true]);
    // Nobody has counted its note: that goes with it, and what its owner has said of it stays.
    for (n, paused) in [(3, false), (4, true)] {
        let upload = Upload { facts: None, ..progress(n, 9) };
        index.receive(&upload, true).unwrap();
        let new = Marked::new(id(n), [n; 16], Payer::Owner([n; 16]), UnixTime(50), UnixTime(1_000));
        let note = crate::model::Note::parse(b"{\"total\":9}").unwrap();
        index
            .mark(new.clone(), Box::new(move |marked| (marked.note, marked.paused) = (Some(note.clone()), paused)))
            .unwrap()
            .unwrap();
        if paused {
            done(apply(index, n, Change::Pause));
        }
        assert!(index.discard(id(n)).unwrap(), "its mark says whether it is paused");
        let left = index.marked(id(n)).unwrap();
        assert_eq!(left.map(|marked| (marked.note.is_some(), marked.paused)), paused.then_some((false, true)));
    }
}

fn a_pause_or_a_stop_before_anything_has_come_holds(index: &Arc<dyn Index>) {
    let mark = |n: u8, change: fn(&mut Marked)| {
        let new = Marked::new(id(n), [1; 16], Payer::Owner([1; 16]), UnixTime(50), UnixTime(1_000));
        index.mark(new, Box::new(change)).unwrap().unwrap()
    };
    assert!(mark(1, |marked| marked.paused = true).paused);
    assert!(mark(2, |marked| marked.stopped = true).stopped);
    assert!(index.marked(id(1)).unwrap().is_some_and(|marked| marked.refusal() == Some(Code::UploadPaused)));
    assert!(done(index.receive(&progress(1, 9), true).unwrap()).paused);
    match index.receive(&progress(2, 9), true).unwrap() {
        Changed::Refused(upload) => assert_eq!(upload.state, State::Stopped),
        other => panic!("{other:?}"),
    }
    assert!(index.load(id(2)).unwrap().is_none(), "what is stopped takes no room");
}

fn a_body_is_what_was_written_whoever_opens_it(bodies: &Arc<dyn Bodies>) {
    let body = bodies.create(id(1)).unwrap();
    body.write_at(b"late", 100).unwrap();
    body.write_at(b"early", 0).unwrap();
    body.sync().unwrap();
    let mut bytes = [9; 104];
    bodies.open(id(1)).unwrap().read_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes[..5], &bytes[100..]), (&b"early"[..], &b"late"[..]));
    assert!(bodies.open(id(1)).unwrap().read_at(&mut bytes, 1).is_err(), "there is no more");
    bodies.open(id(1)).unwrap().write_at(b"more", 104).unwrap();
    body.read_at(&mut bytes[..4], 104).unwrap();
    assert_eq!(&bytes[..4], b"more");
    let anew = bodies.create(id(1)).unwrap();
    assert!(anew.read_at(&mut bytes, 0).is_err(), "a new body is empty");
}

fn a_body_that_is_not_there_is_an_error(bodies: &Arc<dyn Bodies>) {
    let missing = |opened: io::Result<_>| opened.err().map(|error: io::Error| error.kind());
    assert_eq!(missing(bodies.open(id(1)).map(drop)), Some(io::ErrorKind::NotFound));
    bodies.remove(id(1)).unwrap();
    bodies.create(id(1)).unwrap().sync().unwrap();
    bodies.remove(id(1)).unwrap();
    assert_eq!(missing(bodies.open(id(1)).map(drop)), Some(io::ErrorKind::NotFound));
}

fn idle_bodies_are_found(bodies: &Arc<dyn Bodies>) {
    (1..=4).for_each(|n| bodies.create(id(n)).unwrap().sync().unwrap());
    let mut idle = bodies.idle(0, 9, &|id| id.0[0] > 2).unwrap();
    idle.sort();
    assert_eq!(idle, [id(3), id(4)]);
    assert_eq!(bodies.idle(0, 1, &|_| true).unwrap().len(), 1);
    assert_eq!(bodies.idle(3_600, 9, &|_| true).unwrap(), []);
}

mod tests {
    use super::super::ENDED_MAX;
    use super::super::folder::Folder;
    use super::super::sqlite::SqliteIndex;
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn sqlite_and_a_folder_do_what_any_state_must() {
        let folders = RefCell::new(Vec::new());
        check(|| {
            let dir = tempfile::tempdir().unwrap();
            let index = Arc::new(SqliteIndex::open(&dir.path().join("index.sqlite"), ENDED_MAX).unwrap());
            let bodies = Arc::new(Folder::open(&dir.path().join("bodies")).unwrap());
            folders.borrow_mut().push(dir);
            Fresh { index, bodies }
        });
    }
}
