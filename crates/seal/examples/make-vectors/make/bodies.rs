//! Sealed bodies: what opens, and each way in which one does not.

use super::format::{self, Class, Made, Octets, Vector, pattern};
use super::raw::{Body, RECORD_SIZE, Suite, seeded, sha256};

type Add<'a> = &'a mut dyn FnMut(String, Vector);

/// Small records for what is altered: two full ones and a third.
const SMALL_RECORD: u32 = 40;
const SMALL_ROOM: usize = 23;
const SMALL_PLAINTEXT: &[u8] = b"A transfer should outlive the connection it began on. Hoop.";
const PRELUDE: usize = 21 + 6;

/// In each suite.
pub fn make(add: Add) {
    for suite in Suite::BOTH {
        let body = |record_size, key_id: &[u8]| Body {
            suite,
            key: seeded("key", 32),
            salt: seeded(suite.name(), 16),
            record_size,
            key_id: key_id.to_vec(),
        };
        let mut bodies = Bodies { suite, add };
        bodies.made(&body(RECORD_SIZE, b"ticket"));
        bodies.small(&body);
        bodies.foreign(&body(SMALL_RECORD, b"ticket"));
        bodies.altered(&body(SMALL_RECORD, b"ticket"));
        bodies.cut(&body(SMALL_RECORD, b"ticket"));
        bodies.rearranged(&body(SMALL_RECORD, b"ticket"));
        bodies.misdelimited(&body(SMALL_RECORD, b"ticket"));
    }
}

struct Bodies<'a> {
    suite: Suite,
    add: Add<'a>,
}

/// What is to come of a body.
enum Outcome<'a> {
    /// It opens, and sealing the plaintext again gives the same bytes.
    Canonical(&'a [u8]),
    /// It opens.
    Opens(&'a [u8]),
    Header,
    Record(u64, &'a [u8]),
    Truncated(&'a [u8]),
}

impl Bodies<'_> {
    fn add(&mut self, name: &str, about: &str, body: &Body, z: Result<Vec<u8>, Made>, outcome: Outcome) {
        let (class, failed_record, released) = match outcome {
            Outcome::Canonical(plaintext) | Outcome::Opens(plaintext) => (Class::Success, None, plaintext),
            Outcome::Header => (Class::HeaderFailure, None, &[][..]),
            Outcome::Record(index, released) => (Class::RecordFailure, Some(index), released),
            Outcome::Truncated(released) => (Class::Truncated, None, released),
        };
        let (sealed, made) = z.map_or_else(|made| (None, Some(made)), |z| (Some(Octets(z)), None));
        let vector = format::Body {
            about: about.into(),
            class,
            failed_record,
            canonical: matches!(outcome, Outcome::Canonical(_)),
            suite: body.suite.name().into(),
            key: Octets(body.key.clone()),
            sealed,
            made,
            released_sha256: sha256(released),
        };
        (self.add)(format!("body-{}-{name}", self.suite.name()), Vector::Body(vector));
    }

    fn stored(&mut self, name: &str, about: &str, body: &Body, z: Vec<u8>, outcome: Outcome) {
        self.add(name, about, body, Ok(z), outcome);
    }

    fn by_rule(&mut self, name: &str, about: &str, body: &Body, edit: Edit, outcome: fn(&[u8]) -> Outcome) {
        let plaintext = pattern(edit.length);
        let mut z = body.seal(&plaintext);
        if let Some(flip) = edit.flip {
            z[flip] ^= 1;
        }
        z.truncate(edit.cut.unwrap_or(z.len()));
        let made = Made {
            salt: Octets(body.salt.clone()),
            record_size: body.record_size,
            key_id: Octets(body.key_id.clone()),
            plaintext_length: edit.length,
            flip: edit.flip,
            cut: edit.cut,
            sealed_sha256: sha256(&z),
        };
        self.add(name, about, body, Err(made), outcome(&plaintext));
    }

    /// Records of the size that uploads have.
    fn made(&mut self, body: &Body) {
        const ROOM: usize = 65_519;
        const SEVERAL: usize = 3 * ROOM + 1_000;
        for (name, about, length) in [
            ("one-record", "one record, as full as it can be", ROOM),
            ("one-record-and-one-octet", "a full record and one octet in the next", ROOM + 1),
            ("two-records", "two full records", 2 * ROOM),
            ("several-records", "three full records and a fourth", SEVERAL),
            ("megabytes", "five million octets", 5_000_000),
        ] {
            self.by_rule(name, about, body, Edit { length, ..Edit::NONE }, |plaintext| Outcome::Canonical(plaintext));
        }
        let many = Body { record_size: 18, ..body.clone() };
        let about = "records of one octet each, more than a single octet can count";
        self.by_rule("300-records", about, &many, Edit { length: 300, ..Edit::NONE }, |all| Outcome::Canonical(all));
        let border = |index| PRELUDE + index * RECORD_SIZE as usize;
        let edit = |flip, cut| Edit { length: SEVERAL, flip, cut };
        let about = "a flipped bit in the last of several large records";
        let flip = edit(Some(border(3) + 500), None);
        self.by_rule("large-flipped", about, body, flip, |all| Outcome::Record(3, &all[..3 * ROOM]));
        let about = "large records, cut at a record's border";
        let cut = edit(None, Some(border(2)));
        self.by_rule("large-cut-at-border", about, body, cut, |all| Outcome::Truncated(&all[..ROOM]));
        let about = "large records, cut in the middle of one";
        let cut = edit(None, Some(border(2) + 30_000));
        self.by_rule("large-cut-in-record", about, body, cut, |all| Outcome::Record(2, &all[..2 * ROOM]));
    }

    fn small(&mut self, body: &dyn Fn(u32, &[u8]) -> Body) {
        let text = SMALL_PLAINTEXT;
        for (name, about, body, plaintext) in [
            ("empty", "no plaintext: one record of 17 octets", body(RECORD_SIZE, b"ticket"), &[][..]),
            ("one-octet", "one octet", body(RECORD_SIZE, b"ticket"), b"1"),
            ("smallest-records", "records of 18 octets, one octet of plaintext each", body(18, b"ticket"), &text[..8]),
            ("small-records", "small records, the last of them shorter", body(SMALL_RECORD, b"ticket"), text),
            ("small-records-full", "small records, all full", body(SMALL_RECORD, b"ticket"), &text[..2 * SMALL_ROOM]),
            (
                "largest-record-size",
                "a record size of 2^32 - 1, of which little is used",
                body(u32::MAX, b"ticket"),
                text,
            ),
            ("no-key-id", "an empty key id", body(SMALL_RECORD, b""), text),
            ("longest-key-id", "a key id of 255 octets", body(SMALL_RECORD, &[0xff; 255]), text),
        ] {
            self.stored(name, about, &body, body.seal(plaintext), Outcome::Canonical(plaintext));
        }
    }

    /// What others may write and Hoop does not: padding, and records that are not as full as they could be.
    fn foreign(&mut self, body: &Body) {
        let last = [b"padded\x02", &[0; 16][..]].concat();
        let sealed = [body.prelude(), body.record(0, &last)].concat();
        self.stored("padded-last", "padding in the last record", body, sealed, Outcome::Opens(b"padded"));
        let first = [b"first \x01", &[0; 17][..]].concat();
        let sealed = [body.prelude(), body.record(0, &first), body.record(1, &last)].concat();
        self.stored("padded-each", "padding in each record", body, sealed, Outcome::Opens(b"first padded"));
        let first = [b"\x01", &[0; 23][..]].concat();
        let sealed = [body.prelude(), body.record(0, &first), body.record(1, &last)].concat();
        self.stored("padding-only", "a record of nothing but padding", body, sealed, Outcome::Opens(b"padded"));
        let full = [&SMALL_PLAINTEXT[..SMALL_ROOM], b"\x01"].concat();
        let followed = [body.prelude(), body.record(0, &full), body.record(1, b"\x02")].concat();
        let about = "an empty last record after a full one";
        self.stored("empty-last", about, body, followed, Outcome::Opens(&SMALL_PLAINTEXT[..SMALL_ROOM]));
        let zeros = [&b"ends in zeros\0\0\0"[..], b"\x02\0\0\0"].concat();
        let sealed = [body.prelude(), body.record(0, &zeros)].concat();
        let about = "plaintext that ends in zeros, and padding";
        self.stored("zeros-and-padding", about, body, sealed, Outcome::Opens(b"ends in zeros\0\0\0"));
    }

    fn altered(&mut self, body: &Body) {
        let z = body.seal(SMALL_PLAINTEXT);
        let flipped = |at: usize, bit: u8| {
            let mut z = z.clone();
            z[at] ^= 1 << bit;
            z
        };
        let nothing = || Outcome::Record(0, &[]);
        self.stored("salt-flipped", "a flipped bit in the salt", body, flipped(3, 5), nothing());
        self.stored("record-size-flipped", "a flipped bit in the record size: 41", body, flipped(19, 0), nothing());
        self.stored(
            "record-size-17",
            "a record size that holds no plaintext",
            body,
            with_record_size(&z, 17),
            Outcome::Header,
        );
        self.stored("record-size-0", "a record size of nothing", body, with_record_size(&z, 0), Outcome::Header);
        self.stored("idlen-flipped", "a flipped bit in the key id's length: 7", body, flipped(20, 0), nothing());
        let about = "a key id that is longer than the body";
        self.stored("idlen-beyond-the-end", about, body, flipped(20, 7), Outcome::Header);
        let about = "a flipped bit in the key id, which chooses the key and has no other part in opening";
        self.stored("key-id-flipped", about, body, flipped(23, 0), Outcome::Opens(SMALL_PLAINTEXT));
        for index in 0..3 {
            let start = PRELUDE + index * SMALL_RECORD as usize;
            let end = (start + SMALL_RECORD as usize).min(z.len());
            let outcome = || Outcome::Record(index as u64, &SMALL_PLAINTEXT[..index * SMALL_ROOM]);
            let about = format!("a flipped bit in the ciphertext of record {index}");
            self.stored(&format!("record-{index}-flipped"), &about, body, flipped(start + 4, 2), outcome());
            let about = format!("a flipped bit in the tag of record {index}");
            self.stored(&format!("tag-{index}-flipped"), &about, body, flipped(end - 1, 7), outcome());
        }
        let other = Body { key: seeded("another key", 32), ..body.clone() };
        self.stored("wrong-key", "another key", &other, z.clone(), nothing());
        let suite = if self.suite == Suite::Aes256 { Suite::Aes128 } else { Suite::Aes256 };
        let other = Body { suite, ..body.clone() };
        self.stored("wrong-suite", "sealed in the other suite", body, other.seal(SMALL_PLAINTEXT), nothing());
    }

    fn cut(&mut self, body: &Body) {
        let z = body.seal(SMALL_PLAINTEXT);
        let border = |index: usize| PRELUDE + index * SMALL_RECORD as usize;
        let released = |records: usize| &SMALL_PLAINTEXT[..records * SMALL_ROOM];
        for (name, about, len, outcome) in [
            ("cut-to-nothing", "no octet at all", 0, Outcome::Header),
            ("cut-in-salt", "cut in the salt", 10, Outcome::Header),
            ("cut-in-key-id", "cut in the key id", PRELUDE - 1, Outcome::Header),
            ("cut-after-prelude", "no record", PRELUDE, Outcome::Truncated(&[])),
            ("cut-after-record-0", "cut at the border after record 0", border(1), Outcome::Truncated(&[])),
            ("cut-after-record-1", "cut at the border after record 1", border(2), Outcome::Truncated(released(1))),
            ("cut-in-record-0", "cut in the ciphertext of record 0", border(0) + 20, Outcome::Record(0, &[])),
            ("cut-in-record-1", "cut in the ciphertext of record 1", border(1) + 20, Outcome::Record(1, released(1))),
            (
                "cut-short",
                "fewer octets than a tag are left of record 2",
                border(2) + 5,
                Outcome::Record(2, released(2)),
            ),
            ("cut-in-tag", "the last octet of the last tag is missing", z.len() - 1, Outcome::Record(2, released(2))),
        ] {
            self.stored(name, about, body, z[..len].to_vec(), outcome);
        }
    }

    fn rearranged(&mut self, body: &Body) {
        let records = body.records(SMALL_PLAINTEXT);
        let full = body.records(&SMALL_PLAINTEXT[..2 * SMALL_ROOM]);
        let released = |records: usize| &SMALL_PLAINTEXT[..records * SMALL_ROOM];
        let join = |records: &[&[u8]]| [&body.prelude(), &records.concat()[..]].concat();
        let [a, b, c] = &records[..] else { unreachable!("the text fills three records") };
        for (name, about, z, outcome) in [
            ("swapped", "records 0 and 1 are swapped", join(&[b, a, c]), Outcome::Record(0, &[])),
            ("first-dropped", "record 0 is missing", join(&[b, c]), Outcome::Record(0, &[])),
            ("middle-dropped", "record 1 is missing", join(&[a, c]), Outcome::Record(1, released(1))),
            ("duplicated", "record 1 stands there twice", join(&[a, b, b, c]), Outcome::Record(2, released(2))),
            (
                "data-after-end",
                "octets after a short last record",
                join(&[a, b, c, b"more"]),
                Outcome::Record(2, released(2)),
            ),
            (
                "data-after-full-end",
                "octets after a full last record",
                join(&[&full[0], &full[1], b"more"]),
                Outcome::Record(1, released(1)),
            ),
            (
                "record-after-end",
                "a genuine record after a full last record",
                join(&[&full[0], &full[1], c]),
                Outcome::Record(1, released(1)),
            ),
        ] {
            self.stored(name, about, body, z, outcome);
        }
    }

    fn misdelimited(&mut self, body: &Body) {
        let room = &SMALL_PLAINTEXT[..SMALL_ROOM];
        let end = body.record(1, b"end\x02");
        let first = |delimiter: u8| body.record(0, &[room, &[delimiter]].concat());
        let join = |records: &[&[u8]]| [&body.prelude(), &records.concat()[..]].concat();
        let zeros = body.record(0, &[0; SMALL_ROOM + 1]);
        let nothing = || Outcome::Record(0, &[]);
        for (name, about, z, outcome) in [
            ("last-too-early", "record 0 says that it is the last", join(&[&first(2), &end]), nothing()),
            (
                "never-last",
                "the last record, a short one, says that others follow",
                join(&[&first(1), &body.record(1, b"end\x01")]),
                Outcome::Truncated(room),
            ),
            ("delimiter-3", "a delimiter that is none", join(&[&first(3), &end]), nothing()),
            (
                "last-delimiter-3",
                "a delimiter that is none in the last record",
                join(&[&first(1), &body.record(1, b"end\x03")]),
                Outcome::Record(1, room),
            ),
            ("no-delimiter", "a record of zeros alone", join(&[&zeros, &end]), nothing()),
            (
                "last-no-delimiter",
                "a last record of zeros alone",
                join(&[&first(1), &body.record(1, &[0; 8])]),
                Outcome::Record(1, room),
            ),
            (
                "no-inner",
                "a last record without even a delimiter",
                join(&[&first(1), &body.record(1, b"")]),
                Outcome::Record(1, room),
            ),
        ] {
            self.stored(name, about, body, z, outcome);
        }
    }
}

/// What is done to a body that is made by rule.
struct Edit {
    length: usize,
    flip: Option<usize>,
    cut: Option<usize>,
}

impl Edit {
    const NONE: Self = Self { length: 0, flip: None, cut: None };
}

fn with_record_size(z: &[u8], record_size: u32) -> Vec<u8> {
    [&z[..16], &record_size.to_be_bytes(), &z[20..]].concat()
}
