//! Index and bodies for asynchronous callers: [`Store`].
//!
//! It opens on a full or a failing disk, too, since an application stands behind the service. Until it
//! [is open](Store::opened), and once it [is closed](Store::close), every call fails as if there were no room.
//!
//! Bounds: [`CHANGES_MAX`] changes and [`LOOKS_MAX`] looks at once, also those that nobody waits for any more. Others wait
//! for their turn without a thread, and leave with whoever asked.

use super::folder::Folder;
use super::sqlite::SqliteIndex;
use super::{Bodies, Changed, Index, Sealed, StoreError};
use crate::model::{Change, Marked, State, Tag, Upload};
use hoop_files::LockError;
use hoop_http::Lines;
use hoop_units::{UnixTime, UploadId};
use parking_lot::{Mutex, RwLock};
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, broadcast, watch};

/// How many changes a waiter may fall behind. One that falls behind looks at its own upload again.
const NEWS_MAX: usize = 256;

/// Changes at once: each waits on a thread for its sync, of which all that wait share one. They take a
/// quarter of the runtime's threads, so that looks and messages have the rest.
const CHANGES_MAX: usize = 128;

/// Looks at once. They take turns at one connection, and none waits for a sync, but where a change comes with it.
const LOOKS_MAX: usize = 64;

/// Uploads whose bodies have become shorter that are looked for at once. Further ones are found before they are replayed.
const SHORT_MAX: usize = 4096;

/// An upload has changed.
#[derive(Clone, Copy, Debug)]
pub struct News {
    /// Which.
    pub id: UploadId,
    /// Whose it is; none: that is not known.
    pub owner: Option<Tag>,
}

/// A body that was opened, or why it could not be.
pub type Opened = io::Result<Arc<dyn Sealed>>;

/// A store that cannot be opened where no file of so many bytes can be written lacks room. SQLite's log and its index take
/// less.
const ROOM: usize = 1 << 20;

/// Index and bodies; cheap to clone. Its asynchronous methods run on the runtime's blocking threads.
#[derive(Clone)]
pub struct Store {
    parts: Arc<Parts>,
    bodies: Arc<dyn Bodies>,
    news: broadcast::Sender<News>,
    changes: Arc<Semaphore>,
    looks: Arc<Semaphore>,
}

/// Where it is, and what of it is open.
struct Parts {
    dir: PathBuf,
    ended_max: u64,
    open: RwLock<Option<Arc<Open>>>,
    /// What is open holds a receiver.
    in_use: watch::Sender<()>,
    /// Held while it is being opened.
    opening: Mutex<()>,
}

struct Open {
    index: Box<dyn Index>,
    bodies: Folder,
    _lock: Lock,
    /// Dropped last: who waits for that finds the folder free.
    _in_use: watch::Receiver<()>,
}

impl Parts {
    /// What is open.
    fn get(&self) -> io::Result<Arc<Open>> {
        self.open.read().clone().ok_or_else(|| io::ErrorKind::StorageFull.into())
    }

    /// Opens it, unless it is open; false: there is no room, or the disk fails.
    fn try_open(&self) -> Result<bool, StoreError> {
        let _turn = self.opening.lock();
        if self.open.read().is_some() {
            return Ok(true);
        }
        match Open::at(self) {
            Ok(open) => {
                *self.open.write() = Some(Arc::new(open));
                Ok(true)
            }
            Err(error) if error.may_pass() || lacks_room(&self.dir, &error) => {
                static LINES: Lines = Lines::at_most(1);
                if LINES.have_room(Instant::now(), || ()) {
                    tracing::warn!(dir = %self.dir.display(), %error, "the state cannot be opened now, and is tried again: uploads are refused, and all else passes");
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether a store cannot be opened because there is no room, or nothing can be written at all. SQLite says so in several ways.
fn lacks_room(dir: &Path, error: &StoreError) -> bool {
    error.is_full() || matches!(error, StoreError::Index(_)) && !has_room(dir)
}

/// Why the index cannot be opened. Of a file that the disk cannot open, SQLite says what it says of one that may not be opened.
fn cause(path: &Path, error: StoreError) -> StoreError {
    let says_why = |error: &StoreError| match error {
        StoreError::Index(error) => error.sqlite_error_code() != Some(rusqlite::ErrorCode::CannotOpen),
        StoreError::Damaged(_) | StoreError::InUse | StoreError::Body(_) => true,
    };
    if says_why(&error) {
        return error;
    }
    let opened = ["", "-wal", "-shm"].map(|end| {
        let path = format!("{}{end}", path.display());
        File::options().read(true).write(true).open(path).map_err(StoreError::from)
    });
    opened.into_iter().filter_map(Result::err).find(StoreError::may_pass).unwrap_or(error)
}

/// Whether there is room in a folder. Bytes, files or a quota may be used up: writing shows each of them.
fn has_room(dir: &Path) -> bool {
    let path = dir.join("probe");
    let probed = hoop_files::create(&path).and_then(|mut file| {
        file.write_all(&vec![1; ROOM])?;
        file.sync_data()
    });
    let _ = std::fs::remove_file(path);
    !probed.is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem || StoreError::from(error).is_full())
}

impl Open {
    fn at(parts: &Parts) -> Result<Self, StoreError> {
        let dir = &parts.dir;
        make_dir(dir)?;
        hoop_files::folder(dir).map_err(io::Error::from)?;
        // Two services would replay what the other is replaying.
        let lock = Lock::take(dir)?;
        let bodies = Folder::open(&dir.join("bodies"))?;
        let path = dir.join("index.sqlite");
        let index = SqliteIndex::open(&path, parts.ended_max).map_err(|error| cause(&path, error))?;
        // The names of what was made just now are on disk, too.
        File::open(dir)?.sync_all()?;
        Ok(Self { index: Box::new(index), bodies, _lock: lock, _in_use: parts.in_use.subscribe() })
    }
}

impl Parts {
    /// What is open, once it is certain which uploads the index has: a body that looks unused may be one's of which the index
    /// has said that it cannot be noted.
    fn certain(&self) -> io::Result<Arc<Open>> {
        let open = self.get()?;
        open.index.settle().map_err(|error| match error.is_full() {
            true => io::ErrorKind::StorageFull.into(),
            false => io::Error::other(error),
        })?;
        Ok(open)
    }
}

impl Bodies for Parts {
    fn create(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>> {
        self.certain()?.bodies.create(id)
    }

    fn open(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>> {
        self.get()?.bodies.open(id)
    }

    fn remove(&self, id: UploadId) -> io::Result<()> {
        self.certain()?.bodies.remove(id)
    }

    fn idle(&self, secs: u64, limit: usize, wanted: &dyn Fn(UploadId) -> bool) -> io::Result<Vec<UploadId>> {
        self.get()?.bodies.idle(secs, limit, wanted)
    }
}

/// Held while a service has the folder. It ends with the process, however that ends.
struct Lock(#[expect(dead_code, reason = "held until this is dropped")] hoop_files::Lock);

impl Lock {
    fn take(dir: &Path) -> Result<Self, StoreError> {
        match hoop_files::Lock::take(&dir.join("lock")) {
            Ok(lock) => Ok(Self(lock)),
            Err(LockError::Held) => Err(StoreError::InUse),
            Err(LockError::File(error)) => Err(error.into()),
        }
    }
}

impl Store {
    /// The store in a folder: `index.sqlite` and `bodies/`. It keeps at most `ended_max` bytes of ended uploads. If
    /// there is no room to open it, or the disk fails, [`Store::opened`] tries again.
    ///
    /// # Errors
    /// If it cannot be made or used.
    pub fn open(dir: &Path, ended_max: u64) -> Result<Self, StoreError> {
        let (in_use, _) = watch::channel(());
        let (open, opening) = (RwLock::default(), Mutex::default());
        let parts = Arc::new(Parts { dir: dir.to_owned(), ended_max, open, in_use, opening });
        parts.try_open()?;
        let (news, _) = broadcast::channel(NEWS_MAX);
        let [changes, looks] = [CHANGES_MAX, LOOKS_MAX].map(|max| Arc::new(Semaphore::new(max)));
        Ok(Self { bodies: parts.clone(), parts, news, changes, looks })
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.parts.open.read().is_some()
    }

    /// Opens it if it could not be before. Returns whether it is open. Other errors are logged.
    pub async fn opened(&self) -> bool {
        if self.is_open() {
            return true;
        }
        let parts = self.parts.clone();
        let opened = blocking(move || parts.try_open()).await.map_err(StoreError::from).flatten();
        match opened {
            Ok(true) => tracing::info!("the state is open: uploads are taken"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the state cannot be used"),
        }
        self.is_open()
    }

    /// Closes it, and returns once the folder is free for another service. Calls that are under way end first, also
    /// those that nobody waits for any more. Later ones fail.
    pub async fn close(&self) {
        *self.parts.open.write() = None;
        self.parts.in_use.closed().await;
    }

    /// The bodies, for whoever is on a blocking thread already.
    pub fn bodies(&self) -> &Arc<dyn Bodies> {
        &self.bodies
    }

    /// Uploads as they change.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    /// Runs `work` on the index, on a blocking thread. What changes it for a client is a [`Store::change`].
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn with<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Index) -> Result<T, StoreError> + Send + 'static,
    {
        self.in_turn(&self.looks, work).await
    }

    /// Changes the index, on a blocking thread that waits until it is synced. Once it has begun it is done, also if nobody
    /// waits for it any more.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn change<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Index) -> Result<T, StoreError> + Send + 'static,
    {
        self.in_turn(&self.changes, work).await
    }

    /// The turn is given back when `work` is done, and no earlier.
    async fn in_turn<T, F>(&self, turns: &Arc<Semaphore>, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Index) -> Result<T, StoreError> + Send + 'static,
    {
        let turn = turns.clone().acquire_owned().await.map_err(io::Error::other)?;
        let parts = self.parts.clone();
        blocking(move || {
            let _turn = turn;
            work(&*parts.get()?.index)
        })
        .await?
    }

    /// What is known of an upload.
    ///
    /// # Errors
    /// If the index fails.
    pub async fn load(&self, id: UploadId) -> Result<Option<Upload>, StoreError> {
        self.with(move |index| index.load(id)).await
    }

    /// What is known of an upload, and its body while it takes more bytes.
    ///
    /// # Errors
    /// If the index fails.
    pub async fn load_to_receive(&self, id: UploadId) -> Result<Option<(Upload, Option<Opened>)>, StoreError> {
        let bodies = self.bodies.clone();
        self.with(move |index| {
            let Some(upload) = index.load(id)? else { return Ok(None) };
            let takes_more = upload.state == State::Receiving && !upload.paused;
            let body = takes_more.then(|| bodies.open(id));
            Ok(Some((upload, body)))
        })
        .await
    }

    /// What is known of an upload, once nothing more happens to it by itself, or `wait` is over. It waits for an
    /// announced upload, too.
    ///
    /// # Errors
    /// If the index fails.
    pub async fn settled(&self, id: UploadId, wait: Duration) -> Result<Option<Upload>, StoreError> {
        // Subscribed before the first look, so that no change falls in between.
        let mut news = self.news();
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let upload = self.load(id).await?;
            let over = match &upload {
                _ if wait.is_zero() => true,
                Some(upload) => upload.state.is_settled(),
                None => self.with(move |index| index.marked(id)).await?.is_none_or(|marked| marked.stopped),
            };
            if over {
                return Ok(upload);
            }
            let changed = async {
                // Falling behind means news, too. The channel never closes: its sender lives in this store.
                while news.recv().await.is_ok_and(|changed| changed.id != id) {}
            };
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(upload);
            }
        }
    }

    /// Applies a change, and tells who waits for it.
    ///
    /// # Errors
    /// If the index fails.
    pub async fn apply(&self, id: UploadId, change: Change, now: UnixTime) -> Result<Changed, StoreError> {
        let changed = self.change(move |index| index.apply(id, change, now)).await?;
        self.announce(id, changed.owner());
        Ok(changed)
    }

    /// Pauses an upload, and tells who waits for it ([`Index::pause`]).
    ///
    /// # Errors
    /// If the index fails.
    pub async fn pause(&self, new: Marked, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError> {
        let (id, owner) = (new.id, new.owner);
        let paused = self.change(move |index| index.pause(new, now)).await?;
        self.announce(id, Some(owner));
        Ok(paused)
    }

    /// Stops an upload, and tells who waits for it ([`Index::stop`]).
    ///
    /// # Errors
    /// If the index fails.
    pub async fn stop(&self, new: Marked, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError> {
        let (id, owner) = (new.id, new.owner);
        let stopped = self.change(move |index| index.stop(new, now)).await?;
        self.announce(id, Some(owner));
        Ok(stopped)
    }

    /// Takes a pause back, and tells who waits for the upload ([`Index::resume`]).
    ///
    /// # Errors
    /// If the index fails.
    pub async fn resume(&self, id: UploadId, now: UnixTime) -> Result<(Changed, Option<Marked>), StoreError> {
        let (changed, marked) = self.change(move |index| index.resume(id, now)).await?;
        self.announce(id, changed.owner().or(marked.as_ref().map(|marked| marked.owner)));
        Ok((changed, marked))
    }

    /// Syncs what was written to an upload's body, then notes it, and tells who waits for it. Blocking.
    ///
    /// # Errors
    /// If the body cannot be synced, or the index fails.
    pub fn receive(&self, body: &dyn Sealed, progress: Upload, first: bool) -> Result<Changed, StoreError> {
        let id = progress.id;
        body.sync()?;
        let changed = self.parts.get()?.index.receive(&progress, first)?;
        self.announce(id, changed.owner());
        Ok(changed)
    }

    /// What is known of an upload. Blocking.
    ///
    /// # Errors
    /// If the index fails.
    pub fn load_now(&self, id: UploadId) -> Result<Option<Upload>, StoreError> {
        self.parts.get()?.index.load(id)
    }

    /// Forgets an upload of which nothing is proven ([`Index::discard`]). Returns whether none of that id is known now.
    /// Blocking.
    ///
    /// # Errors
    /// If the index fails.
    pub fn discard_now(&self, id: UploadId) -> Result<bool, StoreError> {
        let open = self.parts.get()?;
        open.index.discard(id)?;
        Ok(open.index.load(id)?.is_none())
    }

    /// Lets go of these kept uploads in one transaction, and deletes their bodies.
    ///
    /// # Errors
    /// If the index fails. Bodies that cannot be deleted are tried again at the next round of cleaning.
    pub async fn let_go(&self, ids: Vec<UploadId>, now: UnixTime) -> Result<(), StoreError> {
        let changed = self.change(move |index| index.let_go(ids, now)).await?;
        let gone: Vec<_> = changed.iter().filter_map(Changed::done).filter(|upload| !upload.kept).collect();
        for upload in &gone {
            tracing::info!(id = %upload.id, state = upload.state.name(), "what was kept of it has made way");
            self.announce(upload.id, upload.facts.as_ref().map(|facts| facts.owner));
        }
        self.dispose(gone.iter().map(|upload| upload.id).collect()).await
    }

    /// Deletes the bodies of uploads that no longer need them, and notes that.
    ///
    /// # Errors
    /// If that fails; it is tried again at the next round of cleaning.
    pub async fn dispose(&self, ids: Vec<UploadId>) -> Result<(), StoreError> {
        let bodies = self.bodies.clone();
        let work = move |index: &dyn Index| {
            let ids = index.need_no_body(ids)?;
            let (gone, left): (Vec<_>, Vec<_>) =
                ids.into_iter().map(|id| bodies.remove(id).map(|()| id)).partition(Result::is_ok);
            index.disposed(gone.into_iter().flatten().collect())?;
            left.into_iter().try_for_each(|failed| Ok(failed.map(drop)?))
        };
        self.change(work).await
    }

    /// Bodies that nobody has written to for so many seconds and that no upload has, at most `limit`.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub async fn orphans(&self, secs: u64, limit: usize) -> Result<Vec<UploadId>, StoreError> {
        let parts = self.parts.clone();
        let work = move || {
            let open = parts.get()?;
            // If the index cannot say, the body counts as used.
            Ok(open.bodies.idle(secs, limit, &|id| matches!(open.index.load(id), Ok(None)))?)
        };
        blocking(work).await?
    }

    /// Received uploads whose bodies `is_short` says to be shorter than they are.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub async fn short(&self, is_short: fn(&dyn Sealed, &Upload) -> bool) -> Result<Vec<UploadId>, StoreError> {
        let parts = self.parts.clone();
        let work = move || {
            let open = parts.get()?;
            let is_wanted = |id| match (open.index.load(id), open.bodies.open(id)) {
                (Ok(Some(upload)), Ok(body)) => upload.state == State::Received && is_short(&*body, &upload),
                _ => false,
            };
            Ok(open.bodies.idle(0, SHORT_MAX, &is_wanted)?)
        };
        blocking(work).await?
    }

    /// Tells who waits for an upload that it has changed.
    pub fn announce(&self, id: UploadId, owner: Option<Tag>) {
        // An error means that nobody waits.
        let _ = self.news.send(News { id, owner });
    }
}

/// Makes a folder and its parents, and syncs each new name into its parent. Only their owner may read them: ids and
/// sealed tokens are private.
fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_dir(parent)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::open(parent)?.sync_all(),
    }
}

/// Runs `work` on a blocking thread.
///
/// # Errors
/// If the runtime is stopping.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, io::Error> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::super::ENDED_MAX;
    use super::super::conformance::progress;
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn a_closed_folder_is_free_though_nobody_waits_for_a_call_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), ENDED_MAX).unwrap();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel();
        let call = store.with(move |_| {
            begun.send(()).unwrap();
            ended.recv().unwrap();
            Ok(())
        });
        tokio::select! {
            _ = call => unreachable!("it waits to be ended"),
            () = async { has_begun.await.unwrap() } => {}
        }
        let closing = async {
            tokio::task::yield_now().await;
            assert!(matches!(Store::open(folder.path(), ENDED_MAX), Err(StoreError::InUse)));
            end.send(()).unwrap();
        };
        tokio::join!(store.close(), closing);
        assert!(Store::open(folder.path(), ENDED_MAX).unwrap().is_open());
        assert!(store.load(UploadId([1; 16])).await.is_err(), "it is closed");
    }

    #[tokio::test]
    async fn a_state_that_somebody_else_reads_or_a_disk_that_fails_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), ENDED_MAX).unwrap();
        store.close().await;
        let other = rusqlite::Connection::open(folder.path().join("index.sqlite")).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let store = Store::open(folder.path(), ENDED_MAX).unwrap();
        assert!(!store.is_open() && !store.opened().await);
        drop(other);
        assert!(store.opened().await);
        for (number, passes) in [
            (5, true),
            (6, true),
            (30, true),
            (61, true),
            (74, true),
            (116, true),
            (117, true),
            (2, false),
            (13, false),
            (20, false),
        ] {
            assert_eq!(StoreError::from(io::Error::from_raw_os_error(number)).may_pass(), passes, "{number}");
        }
    }

    /// SQLite says the same of a socket as of a file that the disk cannot open: that it cannot be opened.
    #[tokio::test]
    async fn an_index_that_the_disk_cannot_open_is_waited_for_and_a_folder_in_its_place_is_told() {
        for end in ["", "-wal", "-shm"] {
            let folder = tempfile::tempdir().unwrap();
            Store::open(folder.path(), ENDED_MAX).unwrap().close().await;
            let path = folder.path().join(format!("index.sqlite{end}"));
            let (aside, was_there) = (folder.path().join("aside"), path.exists());
            if was_there {
                std::fs::rename(&path, &aside).unwrap();
            }
            let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
            let store = Store::open(folder.path(), ENDED_MAX).unwrap();
            assert!(!store.is_open() && !store.opened().await, "{end}");
            drop(socket);
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            let told = Store::open(folder.path(), ENDED_MAX).err();
            assert!(matches!(told, Some(StoreError::Index(_))), "{end}: {told:?}");
            std::fs::remove_dir(&path).unwrap();
            if was_there {
                std::fs::rename(&aside, &path).unwrap();
            }
            assert!(store.opened().await, "{end}");
        }
    }

    /// What a commit had written when it failed may be there for the next process.
    #[tokio::test]
    async fn after_a_failed_commit_no_body_is_begun_or_removed_until_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), ENDED_MAX).unwrap();
        store.close().await;
        let index = SqliteIndex::open(&folder.path().join("index.sqlite"), ENDED_MAX).unwrap();
        let fails = "PRAGMA foreign_keys = ON; CREATE TABLE parents (id INTEGER PRIMARY KEY);
            CREATE TABLE children (id REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
            CREATE TRIGGER fails AFTER INSERT ON uploads BEGIN INSERT INTO children VALUES (1); END;";
        index.lock().execute_batch(fails).unwrap();
        index.lock().busy_timeout(Duration::ZERO).unwrap();
        *store.parts.open.write() = Some(Arc::new(Open {
            index: Box::new(index),
            bodies: Folder::open(&folder.path().join("bodies")).unwrap(),
            _lock: Lock::take(folder.path()).unwrap(),
            _in_use: store.parts.in_use.subscribe(),
        }));
        let (upload, other) = (progress(1, 1_000), UploadId([2; 16]));
        let read = |id: UploadId| std::fs::read(folder.path().join("bodies").join(id.to_hex())).unwrap();
        for id in [upload.id, other] {
            store.bodies().create(id).unwrap().write_at(b"kept", 0).unwrap();
        }
        let body = store.bodies().open(upload.id).unwrap();
        assert!(store.receive(&*body, upload.clone(), true).is_err(), "its commit fails");
        let disk = rusqlite::Connection::open(folder.path().join("index.sqlite")).unwrap();
        disk.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(store.bodies().create(upload.id).is_err() && store.bodies().remove(other).is_err());
        assert_eq!([read(upload.id), read(other)], [b"kept", b"kept"]);
        disk.execute_batch("ROLLBACK").unwrap();
        let log = || folder.path().join("index.sqlite-wal").metadata().unwrap().len();
        let before = log();
        store.bodies().create(upload.id).unwrap();
        assert!(log() > before, "other frames have taken the place of those of the commit that failed");
        store.bodies().remove(other).unwrap();
        assert!(read(upload.id).is_empty() && store.bodies().open(other).is_err());
    }

    /// Whoever saves and hangs up, again and again, must not have all threads.
    #[tokio::test]
    async fn changes_that_nobody_waits_for_leave_looks_their_threads() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), ENDED_MAX).unwrap();
        let (begun, mut beginning) = tokio::sync::mpsc::unbounded_channel();
        let disk = Arc::new(Semaphore::new(0));
        let change = || {
            let (store, begun, disk) = (store.clone(), begun.clone(), disk.clone());
            let work = move |_: &dyn Index| {
                begun.send(()).unwrap();
                drop(tokio::runtime::Handle::current().block_on(disk.acquire()));
                Ok(())
            };
            tokio::spawn(async move { store.change(work).await })
        };
        let calls: Vec<_> = (0..1_000).map(|_| change()).collect();
        for _ in 0..CHANGES_MAX {
            beginning.recv().await.unwrap();
        }
        calls.iter().for_each(tokio::task::JoinHandle::abort);
        let another = change();
        let look = tokio::time::timeout(Duration::from_secs(30), store.load(UploadId([1; 16]))).await;
        assert!(look.expect("it does not wait for changes").unwrap().is_none());
        assert!(beginning.try_recv().is_err(), "no more than so many at once");
        disk.close();
        another.await.unwrap().unwrap();
    }

    #[test]
    fn a_state_folder_is_made_with_its_parents_for_its_owner_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("lib/hoop");
        drop(Store::open(&dir, ENDED_MAX).unwrap());
        drop(Store::open(&dir, ENDED_MAX).unwrap());
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let file = temporary.path().join("file");
        File::create(&file).unwrap();
        assert!(
            matches!(Store::open(&file.join("hoop"), ENDED_MAX), Err(StoreError::Body(_))),
            "no folder to make it in"
        );
    }
}
