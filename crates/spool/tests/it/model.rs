//! The spool against a simple model: random operations by several senders, with the spool closed and opened at random points.
use hoop_spool::{Begin, Change, CommitError, Intake, Offer, Settings, Spool, State, Tally};
use hoop_units::{AddressKey, ByteRange, RangeSet, UnixTime, UploadId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

const PRELUDE: &[u8] = b"prelude";
const TOTAL: u64 = 200;

/// What every sender writes at an offset: uploads are told apart, and so are a second sender's other bytes.
fn byte_at(upload: u8, offset: u64, liar: bool) -> u8 {
    match PRELUDE.get(offset as usize) {
        Some(byte) => *byte,
        None => (offset as u8).wrapping_mul(31) ^ upload ^ if liar { 0x80 } else { 0 },
    }
}

fn offer(upload: u8) -> Offer {
    Offer {
        id: UploadId([upload; 16]),
        prelude: PRELUDE.to_vec(),
        total: Some(TOTAL),
        dest: "https://photos.example/hoop/post".into(),
        expires: UnixTime(1_000),
        device: AddressKey::UNKNOWN,
        deadline: None,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin { upload: u8 },
    Write { sender: usize, start: u64, len: u64, liar: bool },
    Commit { sender: usize, which: usize },
    Drop { sender: usize },
    Advance { upload: u8, state: usize },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_u8).prop_map(|upload| Step::Begin { upload }),
        6 => (any::<usize>(), 0..TOTAL, 1..80_u64, any::<bool>())
            .prop_map(|(sender, start, len, liar)| Step::Write { sender, start, len, liar }),
        4 => (any::<usize>(), any::<usize>()).prop_map(|(sender, which)| Step::Commit { sender, which }),
        1 => any::<usize>().prop_map(|sender| Step::Drop { sender }),
        1 => (0..3_u8, 0..11_usize).prop_map(|(upload, state)| Step::Advance { upload, state }),
        1 => Just(Step::Reopen),
    ]
}

/// What must hold of one upload.
#[derive(Clone, Default)]
struct Known {
    stored: RangeSet,
    state: Option<State>,
    /// The acknowledged bytes as they were when they were acknowledged.
    bytes: BTreeMap<u64, u8>,
}

struct Sender {
    upload: u8,
    intake: Intake,
    written: Vec<ByteRange>,
}

fn check(spool: &Spool, model: &BTreeMap<u8, Known>) {
    let mut tally = BTreeMap::<_, Tally>::new();
    for state in model.values().filter_map(|known| known.state) {
        let sum = tally.entry(state).or_default();
        (sum.uploads, sum.bytes) = (sum.uploads + 1, sum.bytes + TOTAL);
    }
    assert_eq!(spool.tally().unwrap(), tally);
    for (upload, known) in model {
        let row = spool.get(UploadId([*upload; 16])).unwrap();
        assert_eq!(row.as_ref().map(|row| row.state), known.state);
        let Some(row) = row else { continue };
        assert_eq!(row.stored, known.stored);
        if row.state.keeps_payload() {
            let payload = spool.payload(row.id).unwrap();
            for range in row.stored.iter() {
                let mut bytes = vec![0; range.len() as usize];
                payload.read_at(range.start, &mut bytes).unwrap();
                for (offset, byte) in (range.start..).zip(bytes) {
                    assert_eq!(known.bytes[&offset], byte, "acknowledged byte {offset} of {upload} changed");
                }
            }
        } else {
            assert!(spool.payload(row.id).is_err(), "the payload of an ended upload is gone");
        }
    }
}

fn open(folder: &Path) -> Spool {
    Spool::open(Settings { sync: false, ..Settings::new(folder) }).unwrap()
}

fn acknowledge(spool: &Spool, known: &mut Known, upload: u8, range: ByteRange) {
    let prelude = ByteRange::new(0, PRELUDE.len() as u64);
    let payload = spool.payload(UploadId([upload; 16])).unwrap();
    for range in [prelude, range] {
        known.stored.insert(range);
        let mut bytes = vec![0; range.len() as usize];
        payload.read_at(range.start, &mut bytes).unwrap();
        for (offset, byte) in (range.start..).zip(bytes) {
            assert!(
                byte == byte_at(upload, offset, false) || byte == byte_at(upload, offset, true),
                "{offset}: {byte}"
            );
            known.bytes.entry(offset).or_insert(byte);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_was_acknowledged_stays_as_it_was_whatever_others_write(steps in prop::collection::vec(step(), 1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = open(folder.path());
        let mut model: BTreeMap<u8, Known> = BTreeMap::new();
        let mut senders: Vec<Sender> = Vec::new();
        for (now, step) in steps.into_iter().enumerate() {
            let now = UnixTime(now as u32);
            match step {
                Step::Begin { upload } => match spool.begin(&offer(upload)).unwrap() {
                    Begin::Take(intake) => {
                        model.entry(upload).or_default();
                        senders.push(Sender { upload, intake, written: Vec::new() });
                    }
                    Begin::Complete(row) => prop_assert!(row.state.is_whole()),
                },
                Step::Write { sender, start, len, liar } if !senders.is_empty() => {
                    let which = sender % senders.len();
                    let sender = &mut senders[which];
                    let range = ByteRange::new(start, (start + len).min(TOTAL));
                    let bytes: Vec<u8> = (range.start..range.end).map(|at| byte_at(sender.upload, at, liar)).collect();
                    sender.intake.write_at(range.start, &bytes).unwrap();
                    sender.written.push(range);
                }
                Step::Commit { sender, which } if !senders.is_empty() => {
                    let index = sender % senders.len();
                    let sender = &senders[index];
                    if sender.written.is_empty() {
                        continue;
                    }
                    let range = sender.written[which % sender.written.len()];
                    let known = model.get_mut(&sender.upload).unwrap();
                    match sender.intake.commit(range, now) {
                        Ok(state) => {
                            acknowledge(&spool, known, sender.upload, range);
                            prop_assert_eq!(state.is_whole(), known.stored.len() == TOTAL);
                            known.state = Some(state);
                        }
                        Err(CommitError::Ended(state)) => prop_assert_eq!(Some(state), known.state),
                        Err(error) => panic!("{error}"),
                    }
                }
                Step::Drop { sender } if !senders.is_empty() => {
                    senders.swap_remove(sender % senders.len());
                }
                Step::Advance { upload, state } => {
                    let state = State::ALL[state];
                    let change = Change { state: Some(state), ..Change::default() };
                    let got = spool.change(UploadId([upload; 16]), &change, now).unwrap();
                    let known = model.entry(upload).or_default();
                    let expected = known.state.map(|before| if before.may_become(state) { state } else { before });
                    prop_assert_eq!(got, expected);
                    known.state = expected;
                }
                Step::Reopen => {
                    senders.clear();
                    drop(spool);
                    spool = open(folder.path());
                }
                Step::Write { .. } | Step::Commit { .. } | Step::Drop { .. } => {}
            }
            check(&spool, &model);
        }
    }
}
