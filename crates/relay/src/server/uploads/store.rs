//! The folder that uploads are in: [`UploadStore`].
//!
//! `FLOW.head` has the request's head, and is written first. `FLOW.body` has as much of the body as has come. Before a server gets any of it, it is renamed to `FLOW.sent`. Both are removed once the device has the answer.
//! If they are removed otherwise, and the device may still ask, the [journal](Journal) has a new id first. Nothing is synced, so after a power cut nothing is believed.
//!
//! Bounds: bytes on disk, shared with answers ([`Room`]). An upload takes room for its whole length when it begins. What nobody has asked for in [`LEFT_MAX`] is removed.

use super::journal::Journal;
use crate::server::objects::ObjectStore;
use crate::server::objects::file::{FILES, FILES_BYTES, HEADS_MAX, Heads};
use crate::server::objects::room::{Lease, Room};
use crate::server::objects::store::{LEFT_MAX, flow_of, folder_of};
use crate::server::places::{Place, PlacedFile};
use crate::upload::JournalId;
use bytes::Bytes;
use hoop_endpoint::{DeviceId, FlowName};
use hoop_files::{open_plain, read_plain};
use hoop_http::{Body, Lines, empty, streamed};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::task::{JoinHandle, spawn_blocking};

/// So much is read from disk at once, in bytes.
const STEP: u64 = 256 << 10;

static LINES: Lines = Lines::new();

/// The uploads of a relay.
#[derive(Debug)]
pub(crate) struct UploadStore {
    folder: PathBuf,
    room: Arc<Room>,
    boot: String,
    journal: Journal,
    uploads: Mutex<HashMap<FlowName, Entry>>,
}

#[derive(Debug)]
enum Entry {
    /// A flow has it.
    Held,
    /// Nobody has, since then.
    Left(Lease, Instant),
}

/// What there is of an upload that a device asks for.
#[derive(Debug)]
pub(crate) enum Found {
    /// This, and the section of its head.
    Left(Upload, Bytes),
    /// Nothing, and nothing of it was ever passed on.
    New(Hold),
    /// Nothing, and nobody knows what there was.
    Nothing,
    /// Another flow has it still, or it is damaged.
    Unknown,
}

/// The right to make an upload's files. Without files, it is forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    store: Arc<UploadStore>,
    name: FlowName,
    /// Of the file that is to be.
    place: Option<Place>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut uploads = self.store.uploads.lock();
        if matches!(uploads.get(&self.name), Some(Entry::Held)) {
            uploads.remove(&self.name);
        }
    }
}

impl UploadStore {
    /// Opens the folder, or makes it, beside that of the answers. What an earlier process has left of this boot is kept, if its device is known still.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn open(
        folder: &Path,
        answers: &ObjectStore,
        is_known: impl Fn(DeviceId) -> bool,
    ) -> io::Result<Arc<Self>> {
        let folder = folder.join("uploads");
        hoop_files::folder(&folder)?;
        let (room, boot) = answers.shared();
        let journal = Journal::open(folder.join("journal"), boot.clone())?;
        let store = Self { folder, room, boot, journal, uploads: Mutex::default() };
        let (mut unusable, mut are_listed) = (Vec::new(), true);
        for of_device in fs::read_dir(&store.folder)? {
            match store.find_left(&of_device?.path(), &is_known, &mut unusable) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    LINES.warn("what is left of a device's uploads cannot be listed", &error);
                    are_listed = false;
                }
                _ => {}
            }
        }
        // What is not listed may have been passed on.
        if !are_listed || unusable.iter().any(|name| store.is_sent(*name)) {
            store.journal.renew()?;
        }
        unusable.into_iter().for_each(|name| store.remove(name));
        Ok(Arc::new(store))
    }

    /// Finds what is left of a device, and adds to `unusable` what of it cannot be used.
    ///
    /// # Errors
    /// If not all of it can be listed.
    fn find_left(
        &self,
        folder: &Path,
        is_known: impl Fn(DeviceId) -> bool,
        unusable: &mut Vec<FlowName>,
    ) -> io::Result<()> {
        let Some(device) = folder_of(folder) else { return Ok(()) };
        for file in fs::read_dir(folder)? {
            let file = file?.file_name();
            let flow = file.to_str().and_then(|file| flow_of(file, &["head", "body", "sent"]));
            let Some(name) = flow.map(|flow| FlowName { device, flow }) else { continue };
            if self.uploads.lock().contains_key(&name) {
                continue;
            }
            let mut lease = self.room.lease(device);
            if let Some(found) = self.find(name).filter(|_| is_known(device)) {
                lease.take_found(found.bytes());
                let to_come = found.length.saturating_sub(found.there());
                lease.owes((to_come > 0).then(|| lease.promise_again(to_come)));
                self.uploads.lock().insert(name, Entry::Left(lease, Instant::now()));
            } else if !unusable.contains(&name) {
                unusable.push(name);
            }
        }
        // It stays if something is in it.
        let _ = fs::remove_dir(folder);
        Ok(())
    }

    fn path(&self, name: FlowName, kind: &str) -> PathBuf {
        self.folder.join(name.device.to_string()).join(format!("{}.{kind}", name.flow))
    }

    /// What is on disk of one that was left.
    fn find(&self, name: FlowName) -> Option<OnDisk> {
        let head = read_plain(&self.path(name, "head"), HEADS_MAX).ok()?;
        let heads = Heads::decode(&head, &self.boot).filter(|_| !self.boot.is_empty())?;
        let open = |kind| open_plain(&self.path(name, kind), File::options().read(true).write(true)).ok();
        let (body, is_sent) = open("sent").map(|body| (body, true)).or_else(|| Some((open("body")?, false)))?;
        Some(OnDisk { body, is_sent, length: heads.first, head: heads.request })
    }

    /// Whether any of it may have been passed on, also if the disk does not say.
    fn is_sent(&self, name: FlowName) -> bool {
        let sent = fs::symlink_metadata(self.path(name, "sent"));
        !sent.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Removes its files. If it was passed on perhaps, and its device may ask what became of it, the journal is to be renewed before.
    fn remove(&self, name: FlowName) {
        // Last of all what says that there is one. A body may become a sent one meanwhile.
        for kind in ["body", "sent", "head"] {
            let _ = fs::remove_file(self.path(name, kind));
        }
    }

    /// As long as this is the same, an upload of which there is nothing was never passed on.
    pub(crate) fn journal(&self) -> JournalId {
        self.journal.id()
    }

    /// One is passed on that is not noted here: of some it is not known any more whether they were.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn renew(&self) -> io::Result<()> {
        self.journal.renew()
    }

    /// What there is of an upload. `journal`: that of the relay which had it; none: it is a new one.
    pub(crate) fn take(self: &Arc<Self>, name: FlowName, journal: Option<JournalId>) -> Found {
        let place = self.room.file(name.device);
        let mut uploads = self.uploads.lock();
        let lease = match uploads.get(&name) {
            Some(Entry::Held) => return Found::Unknown,
            Some(Entry::Left(..)) => match uploads.insert(name, Entry::Held) {
                Some(Entry::Left(lease, _)) => Some(lease),
                _ => None,
            },
            None if journal.is_none_or(|journal| journal == self.journal()) => {
                uploads.insert(name, Entry::Held);
                None
            }
            None => return Found::Nothing,
        };
        drop(uploads);
        let mut hold = Hold { store: self.clone(), name, place: None };
        let Some(lease) = lease else {
            hold.place = place;
            return Found::New(hold);
        };
        let Some(OnDisk { body, is_sent, length, head }) = self.find(name) else {
            match self.journal.renew() {
                Ok(()) => self.remove(name),
                Err(error) => {
                    LINES.warn("an upload cannot be removed", &error);
                    self.uploads.lock().insert(name, Entry::Left(lease, Instant::now()));
                }
            }
            return Found::Unknown;
        };
        let came = body.metadata().map_or(0, |body| body.len());
        let body = Arc::new(PlacedFile::new(body, place));
        Found::Left(Upload { hold, lease: Some(lease), body, length, came, is_sent, is_owned: true }, head)
    }

    /// Removes what was left of devices that are gone, and what was left for too long.
    pub(crate) fn forget(&self, is_gone: impl Fn(DeviceId) -> bool) {
        let mut over = Vec::new();
        for (name, entry) in self.uploads.lock().iter_mut() {
            if let Entry::Left(_, since) = entry
                && (since.elapsed() > LEFT_MAX || is_gone(name.device))
                && let Entry::Left(lease, since) = std::mem::replace(entry, Entry::Held)
            {
                over.push((*name, lease, since));
            }
        }
        let renewed = match over.iter().any(|(name, ..)| self.is_sent(*name)) {
            true => self.journal.renew(),
            false => Ok(()),
        };
        let is_renewed = renewed.inspect_err(|error| LINES.warn("uploads cannot be removed", error)).is_ok();
        for (name, lease, since) in over {
            if is_renewed {
                self.remove(name);
                self.uploads.lock().remove(&name);
            } else {
                self.uploads.lock().insert(name, Entry::Left(lease, since));
            }
        }
    }

    /// Removes one that was left, since its device has the answer.
    pub(crate) fn answered(&self, name: FlowName) {
        let mut uploads = self.uploads.lock();
        if matches!(uploads.get(&name), Some(Entry::Left(..))) {
            self.remove(name);
            uploads.remove(&name);
        }
    }
}

/// What is on disk of an upload.
struct OnDisk {
    body: File,
    /// Whether any of it may have been passed on.
    is_sent: bool,
    /// How long its body is to be.
    length: u64,
    /// The section of its head.
    head: Bytes,
}

impl OnDisk {
    /// The room that it takes, with what is to come.
    fn bytes(&self) -> u64 {
        (FILES_BYTES + self.head.len() as u64).saturating_add(self.there().max(self.length))
    }

    /// What its body takes on disk, with what was set aside for it.
    fn there(&self) -> u64 {
        self.body.metadata().map_or(0, |body| body.blocks() * 512)
    }
}

impl Hold {
    /// Makes its files. None: there is no room.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn create(mut self, head: Bytes, length: u64) -> io::Result<Option<Upload>> {
        let Some(place) = self.place.take() else { return Ok(None) };
        let (store, name) = (&self.store, self.name);
        let mut lease = store.room.lease(name.device);
        let bytes = (FILES_BYTES + head.len() as u64).saturating_add(length);
        let Some(promise) = lease.grow(bytes, FILES) else { return Ok(None) };
        let folder = store.folder.join(name.device.to_string());
        if !folder.exists() {
            hoop_files::folder(&folder)?;
        }
        store.remove(name);
        let heads = Heads { request: head, answer: Bytes::new(), first: length };
        let made = hoop_files::create(&store.path(name, "head"))
            .and_then(|mut head| head.write_all(&heads.encode(&store.boot)))
            .and_then(|()| File::options().read(true).write(true).create_new(true).open(store.path(name, "body")));
        let body = made.inspect_err(|_| store.remove(name))?;
        // Others than this relay may take the room meanwhile.
        let Ok(to_come) = promise.set_aside(&body, 0, length) else {
            store.remove(name);
            return Ok(None);
        };
        lease.owes(to_come);
        let body = Arc::new(PlacedFile::new(body, Some(place)));
        Ok(Some(Upload { lease: Some(lease), body, length, came: 0, is_sent: false, is_owned: false, hold: self }))
    }
}

/// An upload that a flow has. Dropped, it is left for another.
#[derive(Debug)]
pub(crate) struct Upload {
    hold: Hold,
    /// None: it was removed.
    lease: Option<Lease>,
    body: Arc<PlacedFile>,
    /// How long its body is to be.
    length: u64,
    came: u64,
    is_sent: bool,
    /// A flow has it. One that was made for a flow which is over by then is not left.
    is_owned: bool,
}

impl Upload {
    /// From now on it is left for another if it is dropped.
    pub(crate) const fn own(&mut self) {
        self.is_owned = true;
    }

    /// Forgets what has come of its body.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn begin_again(&mut self) -> io::Result<()> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        // The file system gives back what was set aside, and nobody else may have it.
        let promise = lease.promise_again(self.length);
        self.body.set_len(0)?;
        self.came = 0;
        lease.owes(promise.set_aside(&self.body, 0, self.length)?);
        Ok(())
    }

    /// How much of its body is there, in bytes.
    pub(crate) const fn came(&self) -> u64 {
        self.came
    }

    /// Whether any of it may have been passed on.
    pub(crate) const fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Adds what has come.
    ///
    /// # Errors
    /// If the disk fails, or is full.
    pub(crate) async fn put(&mut self, pieces: Vec<Bytes>) -> io::Result<()> {
        let (body, mut at) = (self.body.clone(), self.came);
        let written = spawn_blocking(move || {
            for piece in pieces {
                body.write_all_at(&piece, at)?;
                at += piece.len() as u64;
            }
            Ok(at)
        });
        let end = written.await.map_err(io::Error::other).flatten()?;
        self.lease.iter_mut().for_each(|lease| lease.wrote(end - self.came));
        self.came = end;
        Ok(())
    }

    /// Notes that it is passed on from now on.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) async fn mark_sent(&mut self) -> io::Result<()> {
        let Hold { store, name, .. } = &self.hold;
        if !self.is_sent {
            let [body, sent] = ["body", "sent"].map(|kind| store.path(*name, kind));
            spawn_blocking(move || fs::rename(body, sent)).await.map_err(io::Error::other).flatten()?;
            self.is_sent = true;
        }
        Ok(())
    }

    /// Its body, as a request has it.
    pub(crate) fn body(&self) -> Body {
        match self.came {
            0 => empty(),
            length => streamed(FileBody { file: Arc::downgrade(&self.body), at: 0, length, reading: None }),
        }
    }

    /// Removes it. `renews`: it was passed on perhaps, and its device may ask what became of it.
    pub(crate) async fn discard(mut self, renews: bool) {
        let _ = spawn_blocking(move || {
            let Hold { store, name, .. } = &self.hold;
            match if renews { store.journal.renew() } else { Ok(()) } {
                Ok(()) => {
                    store.remove(*name);
                    drop(self.lease.take());
                }
                Err(error) => LINES.warn("an upload cannot be removed", &error),
            }
        })
        .await;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let Hold { store, name, .. } = &self.hold;
        match self.is_owned {
            true => drop(store.uploads.lock().insert(*name, Entry::Left(lease, Instant::now()))),
            false => store.remove(*name),
        }
    }
}

/// A body that is on disk. It holds no file: a web server over HTTP/2 that reads nothing may hold this for long.
#[derive(Debug)]
struct FileBody {
    file: Weak<PlacedFile>,
    at: u64,
    length: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let (file, at, left) = (self.file.clone(), self.at, self.length - self.at);
        if left == 0 {
            return Poll::Ready(None);
        }
        let reading = self.reading.get_or_insert_with(|| {
            spawn_blocking(move || {
                let mut bytes = vec![0; left.min(STEP) as usize];
                let file = file.upgrade().ok_or_else(|| io::Error::other("the upload is over"))?;
                file.read_exact_at(&mut bytes, at).map(|()| bytes.into())
            })
        });
        let read = ready!(Pin::new(reading).poll(context)).map_err(io::Error::other).flatten();
        self.reading = None;
        let bytes = read.inspect_err(|error| tracing::debug!(%error, "an upload on disk cannot be read"))?;
        self.at += bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length - self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::objects::StoreConfig;
    use crate::server::places::Places;
    use crate::server::reserve::Reserve;
    use crate::server::reserve::tests::small;
    use hoop_endpoint::FlowId;
    use http_body_util::BodyExt as _;

    const NAME: FlowName = FlowName { device: DeviceId([1; 20]), flow: FlowId(7) };

    fn open(folder: &Path, bytes: u64) -> (Arc<ObjectStore>, Arc<UploadStore>) {
        let config = StoreConfig { bytes, bytes_of_device: bytes, ..StoreConfig::new(folder) };
        let is_known = |device| device == NAME.device;
        let answers = ObjectStore::open(&config, Reserve::of(folder), Places::new(100, 100), is_known).unwrap();
        let uploads = UploadStore::open(folder, &answers, is_known).unwrap();
        (answers, uploads)
    }

    fn begin(store: &Arc<UploadStore>) -> Upload {
        let Found::New(hold) = store.take(NAME, None) else { panic!("it is new") };
        let mut upload = hold.create(Bytes::from_static(b"head"), 10).unwrap().expect("there is room");
        upload.own();
        upload
    }

    #[tokio::test]
    async fn what_a_process_has_left_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (answers, store) = open(folder.path(), 1 << 30);
        let journal = store.journal();
        let mut upload = begin(&store);
        assert!(matches!(store.take(NAME, Some(journal)), Found::Unknown), "a flow has it");
        upload.put(vec![Bytes::from_static(b"01"), Bytes::from_static(b"234")]).await.unwrap();
        drop((upload, store, answers));
        let (_answers, store) = open(folder.path(), 1 << 30);
        assert_eq!(store.journal(), journal);
        let Found::Left(mut upload, head) = store.take(NAME, Some(journal)) else { panic!("it is there") };
        assert_eq!((upload.came(), upload.is_sent(), &head[..]), (5, false, &b"head"[..]));
        // As for a device that has not heard of the process before.
        upload.begin_again().unwrap();
        upload.put(vec![Bytes::from_static(b"01234")]).await.unwrap();
        upload.put(vec![Bytes::from_static(b"56789")]).await.unwrap();
        upload.mark_sent().await.unwrap();
        drop(upload);
        let Found::Left(upload, _) = store.take(NAME, None) else { panic!("it is there") };
        assert!(upload.is_sent());
        assert_eq!(upload.body().collect().await.unwrap().to_bytes(), &b"0123456789"[..]);
        upload.discard(false).await;
        assert_eq!(store.journal(), journal, "its device has the answer");
        assert_eq!(store.room.usage(), (0, 0));
        assert!(matches!(store.take(NAME, Some(journal)), Found::New(_)));
    }

    #[tokio::test]
    async fn a_link_or_a_fifo_in_the_place_of_a_body_is_no_upload() {
        let folder = tempfile::tempdir().unwrap();
        let (_answers, store) = open(folder.path(), 1 << 30);
        let target = folder.path().join("target");
        fs::write(&target, "kept").unwrap();
        for is_link in [true, false] {
            drop(begin(&store));
            let body = store.path(NAME, "body");
            fs::remove_file(&body).unwrap();
            match is_link {
                true => std::os::unix::fs::symlink(&target, &body).unwrap(),
                false => assert!(std::process::Command::new("mkfifo").arg(&body).status().unwrap().success()),
            }
            assert!(matches!(store.take(NAME, None), Found::Unknown));
            assert_eq!(fs::read(&target).unwrap(), b"kept");
        }
    }

    #[tokio::test]
    async fn what_may_have_been_passed_on_is_never_taken_for_new() {
        let folder = tempfile::tempdir().unwrap();
        let (answers, store) = open(folder.path(), 1 << 30);
        let journal = store.journal();
        let mut upload = begin(&store);
        upload.mark_sent().await.unwrap();
        upload.discard(true).await;
        assert!(matches!(store.take(NAME, Some(journal)), Found::Nothing));
        for is_damaged in [true, false] {
            let journal = store.journal();
            let mut upload = begin(&store);
            upload.mark_sent().await.unwrap();
            drop(upload);
            match is_damaged {
                true => {
                    fs::write(store.path(NAME, "head"), "other").unwrap();
                    assert!(matches!(store.take(NAME, Some(journal)), Found::Unknown));
                }
                false => store.forget(|device| device == NAME.device),
            }
            assert!(matches!(store.take(NAME, Some(journal)), Found::Nothing));
        }
        let journal = store.journal();
        let mut upload = begin(&store);
        upload.mark_sent().await.unwrap();
        drop((upload, store, answers));
        let is_known = |_| false;
        let (config, reserve) = (StoreConfig::new(folder.path()), Reserve::of(folder.path()));
        let answers = ObjectStore::open(&config, reserve, Places::new(1, 1), is_known).unwrap();
        let store = UploadStore::open(folder.path(), &answers, is_known).unwrap();
        assert!(matches!(store.take(NAME, Some(journal)), Found::Nothing), "its device was shut out meanwhile");
    }

    /// A disk that failed while a relay started had a POST made twice.
    #[tokio::test]
    async fn what_a_relay_cannot_list_when_it_starts_is_never_taken_for_new() {
        let folder = tempfile::tempdir().unwrap();
        for is_listed in [false, true] {
            let (answers, store) = open(folder.path(), 1 << 30);
            let journal = store.journal();
            let mut upload = begin(&store);
            upload.mark_sent().await.unwrap();
            let (sent, of_device) = (store.path(NAME, "sent"), store.folder.join(NAME.device.to_string()));
            drop((upload, store, answers));
            match is_listed {
                // Whoever asks what is there gets an error: a link that leads to itself.
                true => {
                    fs::remove_file(&sent).unwrap();
                    std::os::unix::fs::symlink(&sent, &sent).unwrap();
                }
                // No folder, and so no list.
                false => {
                    fs::rename(&of_device, folder.path().join("aside")).unwrap();
                    fs::write(&of_device, "").unwrap();
                }
            }
            let (_answers, store) = open(folder.path(), 1 << 30);
            assert!(matches!(store.take(NAME, Some(journal)), Found::Nothing), "listed: {is_listed}");
            if !is_listed {
                fs::remove_file(&of_device).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn an_upload_takes_room_for_all_of_it_when_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let (_answers, store) = open(folder.path(), FILES_BYTES + 100);
        let begin = |length| {
            let Found::New(hold) = store.take(NAME, None) else { panic!("it is new") };
            hold.create(Bytes::new(), length).unwrap()
        };
        assert!(begin(101).is_none());
        assert!(begin(u64::MAX).is_none());
        // Its flow was over by then.
        drop(begin(100));
        assert_eq!(store.room.usage(), (0, 0));
        let upload = begin(100).unwrap();
        upload.discard(false).await;
        assert_eq!(store.room.usage(), (0, 0));
        assert_eq!(fs::read_dir(store.folder.join(NAME.device.to_string())).unwrap().count(), 0);
    }

    /// Four uploads that were announced together all had the room of two.
    #[test]
    fn uploads_that_are_announced_together_leave_the_reserve() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = small(folder.path(), 5 << 19);
        let config = StoreConfig::new(folder.path());
        let answers = ObjectStore::open(&config, reserve.clone(), Places::new(100, 100), |_| true).unwrap();
        let store = UploadStore::open(folder.path(), &answers, |_| true).unwrap();
        let announce = |flow| {
            let Found::New(hold) = store.take(FlowName { flow: FlowId(flow), ..NAME }, None) else {
                panic!("it is new")
            };
            hold.create(Bytes::from_static(b"head"), 1 << 20).unwrap()
        };
        let mut uploads: Vec<_> = std::thread::scope(|scope| {
            let announced: Vec<_> = (0..4).map(|flow| scope.spawn(move || announce(flow))).collect();
            announced.into_iter().filter_map(|upload| upload.join().unwrap()).collect()
        });
        assert_eq!(uploads.len(), 2);
        assert!(reserve.promise(0, 0).is_some(), "the reserve is there");
        // What begins again keeps its room, and nobody else gets it.
        uploads[0].begin_again().unwrap();
        assert!(reserve.promise(1 << 20, 0).is_none());
        drop(uploads);
        assert!(reserve.promise(2 << 20, 0).is_some());
    }
}
