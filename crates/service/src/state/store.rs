//! Index and bodies for asynchronous callers: [`Store`].

use super::folder::Folder;
use super::sqlite::SqliteIndex;
use super::{Bodies, Change, Changed, Index, Sealed, StoreError, Upload};
use crate::owner::Tag;
use hoop_files::LockError;
use hoop_units::{UnixTime, UploadId};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::broadcast;

/// News of changed uploads that a waiter may fall behind by; one that does looks again at its own.
const NEWS_MAX: usize = 256;

/// An upload has changed.
#[derive(Clone, Copy, Debug)]
pub struct News {
    /// Which.
    pub id: UploadId,
    /// Whose it is; none: that is not known.
    pub owner: Option<Tag>,
}

/// Index and bodies; cheap to clone. Its methods run on the runtime's blocking threads.
#[derive(Clone)]
pub struct Store {
    index: Arc<dyn Index>,
    bodies: Arc<dyn Bodies>,
    news: broadcast::Sender<News>,
    _lock: Arc<Lock>,
}

/// Held while a service has the folder. It ends with the process, however that ends.
struct Lock(File);

impl Lock {
    fn take(dir: &Path) -> Result<Self, StoreError> {
        match hoop_files::lock(&dir.join("lock")) {
            Ok(file) => Ok(Self(file)),
            Err(LockError::Held) => Err(StoreError::InUse),
            Err(LockError::File(error)) => Err(error.into()),
        }
    }
}

impl Drop for Lock {
    /// Closing it is not enough: a child process that begins just now has it too, until it runs its program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Store {
    /// The store in a folder: `index.sqlite` and `bodies/`. It keeps so many bytes at most of what has ended.
    ///
    /// # Errors
    /// If it cannot be made or used.
    pub fn open(dir: &Path, ended_max: u64) -> Result<Self, StoreError> {
        make_dir(dir)?;
        hoop_files::folder(dir).map_err(io::Error::from)?;
        // Two services would replay what the other is replaying.
        let lock = Arc::new(Lock::take(dir)?);
        let bodies = Folder::open(&dir.join("bodies"))?;
        let index = SqliteIndex::open(&dir.join("index.sqlite"), ended_max)?;
        // The names of what was made just now are on disk, too.
        File::open(dir)?.sync_all()?;
        let (news, _) = broadcast::channel(NEWS_MAX);
        Ok(Self { index: Arc::new(index), bodies: Arc::new(bodies), news, _lock: lock })
    }

    /// The bodies, for whoever is on a blocking thread already.
    pub fn bodies(&self) -> &Arc<dyn Bodies> {
        &self.bodies
    }

    /// Uploads as they change.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    /// Runs `work` on the index, on a blocking thread.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn with<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Index) -> Result<T, StoreError> + Send + 'static,
    {
        let index = self.index.clone();
        blocking(move || work(&*index)).await?
    }

    /// What is known of an upload.
    ///
    /// # Errors
    /// If the index fails.
    pub async fn load(&self, id: UploadId) -> Result<Option<Upload>, StoreError> {
        self.with(move |index| index.load(id)).await
    }

    /// Applies a change, and tells who waits for it.
    ///
    /// # Errors
    /// If the index fails.
    pub async fn apply(&self, id: UploadId, change: Change, now: UnixTime) -> Result<Changed, StoreError> {
        let changed = self.with(move |index| index.apply(id, change, now)).await?;
        self.announce(id, changed.owner());
        Ok(changed)
    }

    /// Syncs what was written to an upload's body, then notes it, and tells who waits for it.
    ///
    /// # Errors
    /// If the body cannot be synced, or the index fails.
    pub async fn receive(&self, body: Arc<dyn Sealed>, progress: Upload, first: bool) -> Result<Changed, StoreError> {
        let id = progress.id;
        let work = move |index: &dyn Index| {
            body.sync()?;
            index.receive(&progress, first)
        };
        let changed = self.with(work).await?;
        self.announce(id, changed.owner());
        Ok(changed)
    }

    /// Lets go of what is kept for its owner, all of these at once.
    ///
    /// # Errors
    /// If the index fails. Bodies that cannot be deleted are tried again at the next round of cleaning.
    pub async fn let_go(&self, ids: Vec<UploadId>, now: UnixTime) -> Result<(), StoreError> {
        let changed = self.with(move |index| index.let_go(ids, now)).await?;
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
            let (gone, left): (Vec<_>, Vec<_>) =
                ids.into_iter().map(|id| bodies.remove(id).map(|()| id)).partition(Result::is_ok);
            index.disposed(gone.into_iter().flatten().collect())?;
            left.into_iter().try_for_each(|failed| Ok(failed.map(drop)?))
        };
        self.with(work).await
    }

    /// Bodies that nobody has written to for so many seconds and that no upload has, at most `limit`.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub async fn orphans(&self, secs: u64, limit: usize) -> Result<Vec<UploadId>, StoreError> {
        let (index, bodies) = (self.index.clone(), self.bodies.clone());
        // What the index cannot say belongs to somebody.
        let work = move || bodies.idle(secs, limit, &|id| matches!(index.load(id), Ok(None)));
        Ok(blocking(work).await??)
    }

    /// Tells who waits for an upload that it has changed.
    pub fn announce(&self, id: UploadId, owner: Option<Tag>) {
        // An error means that nobody waits.
        let _ = self.news.send(News { id, owner });
    }
}

/// Makes a folder and those above it, and syncs each new name into the folder that holds it. Ids and sealed tokens are
/// nobody else's business.
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
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_state_folder_is_made_with_those_above_it_and_for_its_owner_alone() {
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
