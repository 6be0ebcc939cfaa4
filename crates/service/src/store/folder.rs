//! The sealed bodies in a folder: one file an upload, named by its id, which is exactly Z.

use super::{Bodies, Sealed};
use hoop_units::UploadId;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A folder of sealed bodies.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens the folder, and makes it if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        hoop_files::folder(path)?;
        Ok(Self { path: path.to_owned() })
    }

    fn file(&self, id: UploadId) -> PathBuf {
        self.path.join(id.to_hex())
    }
}

impl Bodies for Folder {
    fn create(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>> {
        let file = hoop_files::create(&self.file(id))?;
        Ok(Arc::new(SealedFile::new(file, true, &self.path)))
    }

    fn open(&self, id: UploadId) -> io::Result<Arc<dyn Sealed>> {
        let file = hoop_files::open_plain(&self.file(id), OpenOptions::new().read(true).write(true))?;
        Ok(Arc::new(SealedFile::new(file, false, &self.path)))
    }

    fn remove(&self, id: UploadId) -> io::Result<()> {
        match fs::remove_file(self.file(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn idle(&self, secs: u64, limit: usize, wanted: &dyn Fn(UploadId) -> bool) -> io::Result<Vec<UploadId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // Its body may have been deleted meanwhile.
            let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            // One from after now was written while the clock was ahead.
            let age = modified.elapsed().unwrap_or_else(|ahead| ahead.duration());
            if age >= Duration::from_secs(secs) && wanted(id) {
                ids.push(id);
            }
            if ids.len() == limit {
                break;
            }
        }
        Ok(ids)
    }
}

#[derive(Debug)]
struct SealedFile {
    file: File,
    /// Whether the file's name has yet to be synced into its folder.
    unnamed: AtomicBool,
    /// Whether a sync has failed. Linux says so once, drops the pages, and calls the next sync a success.
    broken: AtomicBool,
    folder: PathBuf,
}

impl SealedFile {
    fn new(file: File, unnamed: bool, folder: &Path) -> Self {
        let (unnamed, broken) = (AtomicBool::new(unnamed), AtomicBool::new(false));
        Self { file, unnamed, broken, folder: folder.to_owned() }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_data()?;
        if self.unnamed.load(Ordering::Acquire) {
            File::open(&self.folder)?.sync_all()?;
            self.unnamed.store(false, Ordering::Release);
        }
        Ok(())
    }
}

impl Sealed for SealedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        if self.broken.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier sync of this body failed"));
        }
        self.sync_all().inspect_err(|_| self.broken.store(true, Ordering::Release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn the_wanted_bodies_are_found_among_many_others() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        (0..50).for_each(|n| drop(folder.create(UploadId([n; 16])).unwrap()));
        fs::write(dir.path().join("a stranger"), b"").unwrap();
        let mut found = folder.idle(0, 2, &|id| id.0[0] >= 48).unwrap();
        found.sort();
        assert_eq!(found, [UploadId([48; 16]), UploadId([49; 16])]);
        assert_eq!(folder.idle(0, 2, &|_| true).unwrap().len(), 2);
        assert_eq!(folder.idle(3600, 2, &|_| true).unwrap(), []);
        // One was written while the clock was ahead.
        let ahead = SystemTime::now() + Duration::from_secs(7200);
        File::options().write(true).open(folder.file(UploadId([7; 16]))).unwrap().set_modified(ahead).unwrap();
        assert_eq!(folder.idle(3600, 2, &|_| true).unwrap(), [UploadId([7; 16])]);
    }

    #[test]
    fn a_link_or_a_fifo_in_the_place_of_a_body_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("bodies")).unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "kept").unwrap();
        let [link, fifo] = [1, 2].map(|number| UploadId([number; 16]));
        std::os::unix::fs::symlink(&target, folder.file(link)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(folder.file(fifo)).status().unwrap().success());
        for id in [link, fifo] {
            for opened in [folder.create(id), folder.open(id)] {
                assert!(hoop_files::is_not_plain(&opened.err().unwrap()), "{id}");
            }
        }
        assert_eq!(fs::read(target).unwrap(), b"kept");
    }

    #[test]
    fn after_a_failed_sync_none_succeeds_until_the_body_is_reopened() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let id = UploadId([1; 16]);
        folder.create(id).unwrap().sync().unwrap();
        // A character device cannot be synced.
        let null = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        let mut body = SealedFile::new(null, false, dir.path());
        assert!(body.sync().is_err());
        body.file = OpenOptions::new().read(true).write(true).open(folder.file(id)).unwrap();
        body.write_at(b"later", 0).unwrap();
        assert!(body.sync().is_err());
        folder.open(id).unwrap().sync().unwrap();
    }
}
