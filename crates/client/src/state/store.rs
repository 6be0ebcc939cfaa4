//! What the device remembers of its uploads, so that it can ask about them later: [`UploadRecord`] and [`Store`].
//!
//! One JSON file an upload, `uploads/{id}.json`, readable by its owner alone: it holds K, which opens the application's
//! answer. At most [`KEPT_MAX`] finished ones are kept.

use crate::private::{self, write_private};
use crate::state::resume_state::ResumeState;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_seal::UploadKey;
use hoop_units::UploadId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files kept; beyond it the oldest finished uploads are forgotten. A thousand files of half a kilobyte are listed in a
/// few milliseconds.
const KEPT_MAX: usize = 1000;

/// Gateways that are passed over for one upload; as many as one push tries. Beyond it the first is forgotten.
const DENIED_MAX: usize = 16;

/// One upload, as the device knows it. `Debug` does not show the key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UploadRecord {
    /// Its id.
    pub id: String,
    /// K, in base64url.
    pub key: SecretText,
    /// The URL that the request is for, without its query.
    pub url: String,
    /// The service's post URL.
    pub dest: String,
    /// Where its status stands at the service, without the id.
    pub uploads: String,
    /// The gateway that has it, as an origin; `None`: it went directly.
    pub gateway: Option<String>,
    /// The page to follow it on.
    pub monitor: Option<String>,
    /// What it holds, in words: file names or a count.
    pub name: String,
    /// The length of the body.
    pub bytes: u64,
    /// The length of Z.
    pub total: u64,
    /// When it was begun, in seconds since 1970.
    pub created: u32,
    /// When its ticket ends.
    pub expires: u32,
    /// The last state known.
    pub state: String,
    /// Whether that is final, by the service's word.
    pub finished: bool,
    /// Gateways that are not relied on for it any longer, by their origins: they claimed what the service denied, gave it up, or forgot it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// What gateways have acknowledged of it, by their origins, in the form of `Content-Range`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, String>,
    /// When it should be at the service, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u32>,
    /// Permits for gateways that the service lists, by their names, in base64url.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub permits: BTreeMap<String, String>,
    /// T, in base64url: its owner's leave to hand it over again. Kept as long as that may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<SecretText>,
    /// How to go on with it; `None`: it cannot be, or need not.
    #[serde(default, rename = "saved", skip_serializing_if = "Option::is_none")]
    pub(crate) resume_state: Option<ResumeState>,
}

impl UploadRecord {
    /// Whether a later process can go on with it.
    pub const fn is_resumable(&self) -> bool {
        self.resume_state.is_some()
    }

    /// Relies no longer on the gateway that has it.
    pub(crate) fn deny_gateway(&mut self) {
        let Some(gateway) = self.gateway.clone() else { return };
        self.held.remove(&gateway);
        if !self.denied.contains(&gateway) {
            if self.denied.len() == DENIED_MAX {
                self.denied.remove(0);
            }
            self.denied.push(gateway);
        }
    }
}

/// Text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl SecretText {
    /// The text of a key.
    pub fn of(key: &UploadKey) -> Self {
        Self(URL_SAFE_NO_PAD.encode(key.0))
    }

    /// A text that is a secret as it stands.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The key, if it is one.
    pub fn key(&self) -> Option<UploadKey> {
        URL_SAFE_NO_PAD.decode(&self.0).ok()?.try_into().ok().map(UploadKey)
    }
}

/// The folder of records.
#[derive(Clone, Debug)]
pub(crate) struct Store(pub(crate) PathBuf);

impl Store {
    /// Writes a record, new or again. Nobody goes on with what is finished, and of that only what was rejected, or is unknown, may be handed
    /// over again.
    pub(crate) fn save(&self, record: &UploadRecord) -> io::Result<()> {
        let may_go_again = !record.finished || matches!(record.state.as_str(), "rejected" | "unknown");
        let record = &UploadRecord {
            resume_state: record.resume_state.clone().filter(|_| !record.finished),
            token: record.token.clone().filter(|_| may_go_again),
            ..record.clone()
        };
        let bytes = serde_json::to_vec_pretty(record).expect("a record has a JSON form");
        write_private(&self.0, &format!("{}.json", record.id), &bytes)?;
        if record.finished {
            let _ = fs::remove_file(self.0.join(format!("{}.tags", record.id)));
        }
        Ok(())
    }

    /// Where the tags of an upload's records are kept.
    pub(crate) fn seal_guard(&self, id: UploadId) -> PathBuf {
        self.0.join(format!("{id}.tags"))
    }

    /// The record of that upload; `None` if there is none that can be read.
    pub(crate) fn load(&self, id: UploadId) -> Option<UploadRecord> {
        read(&self.0.join(format!("{id}.json")))
    }

    /// All records, the newest first.
    pub(crate) fn list(&self) -> Vec<UploadRecord> {
        let mut records: Vec<_> = self.files().iter().filter_map(|(_, path)| read(path)).collect();
        records.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        records
    }

    /// Forgets the oldest finished uploads beyond [`KEPT_MAX`].
    pub(crate) fn prune(&self) {
        self.prune_to(KEPT_MAX);
    }

    fn prune_to(&self, keep: usize) {
        let mut files = self.files();
        let mut excess = files.len().saturating_sub(keep);
        files.sort();
        for (_, path) in files {
            if excess == 0 {
                return;
            }
            if read(&path).is_none_or(|record| record.finished) && fs::remove_file(&path).is_ok() {
                excess -= 1;
            }
        }
    }

    /// Removes tags that no record goes with and no push is at, `age` after they were last written: a push may be about to write its record. And
    /// records that were not written to their end.
    pub(crate) fn sweep(&self, age: Duration) {
        private::sweep(&self.0, age);
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "tags")) {
            let old = private::is_older(&path, age);
            // A clock that jumps makes them old in the middle of a push.
            let is_left = || fs::File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
            if old && !path.with_extension("json").exists() && is_left() {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn files(&self) -> Vec<(SystemTime, PathBuf)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "json"));
        let modified = |entry: &fs::DirEntry| entry.metadata().and_then(|metadata| metadata.modified());
        entries.map(|entry| (modified(&entry).unwrap_or(SystemTime::UNIX_EPOCH), entry.path())).collect()
    }
}

/// A record as it was saved. Its id is one: file names and addresses are made of it.
fn read(path: &Path) -> Option<UploadRecord> {
    let record: UploadRecord = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    record.id.parse::<UploadId>().is_ok().then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u8, finished: bool) -> UploadRecord {
        UploadRecord {
            id: UploadId([number; 16]).to_hex(),
            key: SecretText::of(&UploadKey([number; 32])),
            url: "https://photos.example/".into(),
            dest: "https://photos.example/hoop/post".into(),
            uploads: "https://photos.example/hoop/uploads".into(),
            gateway: None,
            monitor: None,
            name: "a.jpg".into(),
            bytes: 1,
            total: 2,
            created: u32::from(number),
            expires: 9,
            state: "stored".into(),
            finished,
            denied: Vec::new(),
            held: BTreeMap::new(),
            deadline: None,
            permits: BTreeMap::new(),
            token: None,
            resume_state: None,
        }
    }

    #[test]
    fn a_record_survives_and_the_newest_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store(folder.path().join("uploads"));
        assert_eq!(store.list(), []);
        for number in [1, 3, 2] {
            store.save(&record(number, true)).unwrap();
        }
        assert_eq!(store.load(UploadId([3; 16])), Some(record(3, true)));
        assert_eq!(store.list().iter().map(|record| record.created).collect::<Vec<_>>(), [3, 2, 1]);
        assert_eq!(record(3, true).key.key(), Some(UploadKey([3; 32])));
        assert!(!format!("{:?}", record(3, true)).contains(&URL_SAFE_NO_PAD.encode([3; 32])));
    }

    #[test]
    fn what_a_denied_gateway_held_counts_no_more_and_sixteen_are_remembered() {
        let mut record = record(1, false);
        for number in 0..20 {
            let gateway = format!("http://192.0.2.{number}:4667");
            record.held.insert(gateway.clone(), "0-99".into());
            record.gateway = Some(gateway);
            record.deny_gateway();
            record.deny_gateway();
        }
        assert!(record.held.is_empty());
        assert_eq!((record.denied.len(), &*record.denied[0]), (16, "http://192.0.2.4:4667"));
    }

    #[test]
    fn tags_of_a_push_under_way_outlive_a_clock_that_jumps() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store(folder.path().to_owned());
        let [held, left] = [1, 2].map(|number| store.seal_guard(UploadId([number; 16])));
        let guard = crate::seal::seal_guard::SealGuard::create(&held).unwrap();
        drop(crate::seal::seal_guard::SealGuard::create(&left).unwrap());
        store.sweep(Duration::ZERO);
        assert_eq!([held.exists(), left.exists()], [true, false]);
        drop(guard);
        store.sweep(Duration::ZERO);
        assert!(!held.exists());
    }

    #[test]
    fn a_record_that_a_killed_process_began_to_write_is_removed_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store(folder.path().to_owned());
        store.save(&record(1, false)).unwrap();
        let [left, other] = [".0123456789abcdef", ".notes"].map(|name| folder.path().join(name));
        fs::write(&left, "{\"key\":").unwrap();
        fs::write(&other, "").unwrap();
        store.sweep(Duration::from_secs(3600));
        assert!(left.exists(), "it may still be written");
        let two_hours_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
        fs::File::options().write(true).open(&left).unwrap().set_modified(two_hours_ago).unwrap();
        store.sweep(Duration::from_secs(3600));
        assert_eq!([left.exists(), other.exists(), store.list().len() == 1], [false, true, true]);
    }

    #[test]
    fn a_record_whose_id_is_none_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store(folder.path().to_owned());
        for id in ["", "0011", "../../../../../../../../../../tmp", "äääääääääääääääää"] {
            let damaged = UploadRecord { id: id.to_owned(), ..record(2, false) };
            fs::write(folder.path().join("damaged.json"), serde_json::to_vec(&damaged).unwrap()).unwrap();
            assert_eq!(store.list(), [], "{id}");
        }
    }

    #[test]
    fn only_finished_uploads_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store(folder.path().to_owned());
        for number in 1..=5 {
            store.save(&record(number, number != 1)).unwrap();
        }
        store.prune_to(2);
        let left = store.list();
        assert_eq!(left.len(), 2);
        assert!(left.iter().any(|record| record.created == 1), "the unfinished one is kept");
        store.prune_to(0);
        assert_eq!(store.list().len(), 1);
    }
}
