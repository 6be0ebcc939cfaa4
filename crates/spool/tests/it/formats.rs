//! Folders of every format there was, made by their own SQL: all that is in them survives, and a later format is left alone.
use hoop_spool::{
    Begin, Held, OpenError, Place, Queue, Reason, Resource, Settings, Spool, State, Tally, Token, Upload,
};
use hoop_units::{AddressKey, ByteRange, UnixTime, UploadId};
use rusqlite::{Connection, params};
use std::path::Path;

const NOW: UnixTime = UnixTime(1_000_000);
const STEPS: [&str; 10] = [
    include_str!("../formats/1.sql"),
    include_str!("../formats/2.sql"),
    include_str!("../formats/3.sql"),
    include_str!("../formats/4.sql"),
    include_str!("../formats/5.sql"),
    include_str!("../formats/6.sql"),
    include_str!("../formats/7.sql"),
    include_str!("../formats/8.sql"),
    include_str!("../formats/9.sql"),
    include_str!("../formats/10.sql"),
];
const ROWS: &str = include_str!("../formats/rows.sql");

fn id(number: u8) -> UploadId {
    UploadId([number; 16])
}

/// A folder as the version that knew only `format` left it.
fn make(folder: &Path, format: usize) {
    drop(Spool::open(Settings::new(folder)).unwrap());
    for name in ["index.db", "index.db-wal", "index.db-shm", "journal"] {
        std::fs::remove_file(folder.join(name)).ok();
    }
    let db = Connection::open(folder.join("index.db")).unwrap();
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
    db.execute_batch(&format!("{} {ROWS} PRAGMA user_version = {format};", STEPS[..format].concat())).unwrap();
    if format >= 9 {
        // Counted when their bytes go, and these came without.
        db.execute("UPDATE holding SET away = 1", []).unwrap();
    }
    for number in 1..=3 {
        let path = folder.join(format!("uploads/{number:02x}/{}.z", id(number)));
        std::fs::write(path, [number; 100]).unwrap();
    }
}

fn due(spool: &Spool, queue: Queue, now: UnixTime) -> Vec<u8> {
    let devices = spool.due_devices(now, queue, None, 9).unwrap();
    let of = |device| spool.due_of(now, queue, device, Place::START, 9).unwrap();
    devices.into_iter().flat_map(of).map(|due| due.id.as_bytes()[0]).collect()
}

fn check(spool: &Spool) {
    let row = |number| spool.get(id(number)).unwrap().unwrap();
    let rows: Vec<Upload> = (1..=5).map(row).collect();
    let states = [State::Receiving, State::Stored, State::Delivering, State::Held, State::Accepted];
    for (row, state) in rows.iter().zip(states) {
        assert_eq!((row.state, row.total, row.expires), (state, 100, UnixTime(1_001_000)));
        assert_eq!((&row.prelude[..], &row.dest[..]), (&b"prelude"[..], "https://photos.example/hoop/post"));
        assert_eq!((row.device, row.deadline), (AddressKey::UNKNOWN, None));
        assert_eq!(row.stored.len(), if state == State::Receiving { 50 } else { 100 });
    }
    assert_eq!((rows[2].delivered.to_string(), rows[2].attempts), ("0-49".into(), 3));
    assert_eq!(rows[2].next_attempt, Some(UnixTime(NOW.0 + 60)));
    assert_eq!(rows[2].reason, Some(Reason::new("dest-unreachable", "no route")));
    assert_eq!((rows[4].finished_at, rows[4].answer.as_deref()), (Some(UnixTime(999_995)), Some(&b"answer"[..])));
    assert_eq!(spool.kept_bytes(), 250);
    assert_eq!(spool.held_by(AddressKey::UNKNOWN).unwrap(), Held { uploads: 3, bytes: 250, away: 1, early: 0, own: 0 });
    let one = Tally { uploads: 1, bytes: 100 };
    assert_eq!(spool.tally().unwrap(), states.map(|state| (state, one)).into());
    assert_eq!((due(spool, Queue::Send, NOW), due(spool, Queue::Small, NOW)), (vec![2], vec![2]));
    assert_eq!(due(spool, Queue::Ask, NOW), [4]);
}

#[test]
fn every_row_of_an_earlier_format_survives_and_the_upload_goes_on() {
    for format in 1..=STEPS.len() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), format);
        for _ in 0..2 {
            check(&Spool::open(Settings::new(folder.path())).unwrap());
        }
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        assert_eq!(due(&spool, Queue::Send, NOW.plus_secs(60)), [2, 3], "what was put off comes");
        let known = spool.get(id(1)).unwrap().unwrap();
        let offer = hoop_spool::Offer {
            id: known.id,
            prelude: known.prelude,
            total: Some(known.total),
            dest: known.dest,
            expires: known.expires,
            device: AddressKey([7; 16]),
            deadline: None,
        };
        let Begin::Take(mut intake) = spool.begin(&offer).unwrap() else { panic!("half of it is missing") };
        intake.write_at(50, &[1; 50]).unwrap();
        assert_eq!(intake.commit(ByteRange::new(50, 100), NOW).unwrap(), State::Stored, "from format {format}");
        let mut bytes = [0; 100];
        spool.payload(id(1)).unwrap().read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 100]);
    }
}

#[test]
fn a_tail_of_an_earlier_format_is_there_and_goes_on() {
    let token = Token([7; 16]);
    let there = Resource {
        upload: Some(id(1)),
        tail_at: 50,
        tail: vec![9; 40_000],
        ..Resource::new(AddressKey([7; 16]), "https://photos.example/hoop/post".into(), Some(100_000), NOW)
    };
    // The first that has resources, and the last that has a tail in one piece.
    for format in [5, 9] {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), format);
        let db = Connection::open(folder.path().join("index.db")).unwrap();
        let sql = "INSERT INTO resource VALUES (zeroblob(16), ?1, 'https://photos.example/hoop/post', 9, NULL, 0, x'', 0, 1000000),
                                               (?2, ?1, ?3, 100000, ?4, 50, ?5, 0, 1000000)";
        let (device, upload) = (there.device.as_bytes(), id(1));
        db.execute(sql, params![device, token.0, there.dest, upload.as_bytes(), there.tail]).unwrap();
        drop(db);
        let spool = Spool::open(Settings::new(folder.path())).unwrap();
        assert_eq!(spool.resource(token, NOW).unwrap(), Some(there.clone()), "from format {format}");
        assert_eq!(spool.resource(Token([0; 16]), NOW).unwrap().unwrap().tail, []);
        let longer = Resource { tail: [&there.tail[..], &[8; 100]].concat(), ..there.clone() };
        assert!(spool.keep_resource(token, &longer).unwrap());
        assert_eq!(spool.resource(token, NOW).unwrap(), Some(longer));
    }
}

/// All tables, indexes and triggers, by their SQL without its comments.
fn schema(folder: &Path) -> Vec<String> {
    let db = Connection::open(folder.join("index.db")).unwrap();
    let mut statement =
        db.prepare("SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema").unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let code = |line: &str| line.split("--").next().unwrap_or_default().trim().to_owned();
    let mut all: Vec<String> = rows.map(|row| row.unwrap().lines().map(code).collect::<Vec<_>>().join(" ")).collect();
    all.sort();
    all
}

#[test]
fn a_folder_of_an_earlier_format_becomes_what_a_new_one_is() {
    let new = tempfile::tempdir().unwrap();
    drop(Spool::open(Settings::new(new.path())).unwrap());
    let new = schema(new.path());
    assert!(!new.is_empty());
    for format in 1..=STEPS.len() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), format);
        assert_ne!(schema(folder.path()), new, "format {format} is another");
        drop(Spool::open(Settings::new(folder.path())).unwrap());
        assert_eq!(schema(folder.path()), new, "from format {format}");
    }
}

#[test]
fn a_spool_of_a_later_format_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(Spool::open(Settings::new(folder.path())).unwrap());
    let db = Connection::open(folder.path().join("index.db")).unwrap();
    db.execute_batch("PRAGMA user_version = 12").unwrap();
    drop(db);
    let error = Spool::open(Settings::new(folder.path())).unwrap_err();
    assert!(matches!(error, OpenError::Later { found: 12, known: 11, .. }), "{error}");
}
