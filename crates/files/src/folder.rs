//! A folder for its owner alone: [`folder`].

use crate::judgement::Refusal;
use std::io;
use std::path::{Path, PathBuf};

/// A folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It can be neither found nor made.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is there, and is not safe.
    #[error("{} is refused: {why}", path.display())]
    Refused {
        /// The folder.
        path: PathBuf,
        /// Why.
        why: Refusal,
    },
}

impl From<FolderError> for io::Error {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Io { source, .. } => source,
            FolderError::Refused { .. } => Self::new(io::ErrorKind::PermissionDenied, error),
        }
    }
}

/// Makes a folder, and those above it, for its owner alone, and puts their names on disk; one that is there is judged, and narrowed with all that is in it where it is too wide. Whether it was is
/// returned, and logged as a warning.
///
/// # Errors
/// If it cannot be made, or is refused.
pub fn folder(path: &Path) -> Result<bool, FolderError> {
    let at = |source| FolderError::Io { path: path.to_owned(), source };
    make(path).map_err(at)?;
    #[cfg(unix)]
    let narrowed = unix::claim(path)?;
    #[cfg(unix)]
    if let Some((above, owner)) = unix::owned_by_others(path).map_err(at)? {
        tracing::warn!(path = %path.display(), above = %above.display(), owner, "another user owns a folder above this one, and could put another in its place");
    }
    #[cfg(not(unix))]
    let narrowed = false;
    if narrowed {
        tracing::warn!(
            path = %path.display(),
            "others could look into this folder; it and what is in it are now for their owner alone"
        );
    }
    Ok(narrowed)
}

fn make(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, crate::FOLDER_MODE);
    let whole = std::path::absolute(path)?;
    let made: Vec<&Path> = whole.ancestors().take_while(|folder| !folder.exists()).collect();
    builder.recursive(true).create(path)?;
    #[cfg(unix)]
    made.into_iter().filter_map(Path::parent).try_for_each(|above| std::fs::File::open(above)?.sync_all())?;
    Ok(())
}

#[cfg(unix)]
mod unix {
    use super::FolderError;
    use crate::judgement::{Facts, Verdict, judge};
    use std::fs::{self, Permissions};
    use std::io;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::{Path, PathBuf};

    /// Folders within folders that are narrowed; nothing of ours is deeper, and a loop of mounts ends.
    const DEPTH_MAX: usize = 4;

    /// Judges the folder, and narrows it if that is the verdict.
    pub fn claim(path: &Path) -> Result<bool, FolderError> {
        let refuse = |why| FolderError::Refused { path: path.to_owned(), why };
        let at = |source| FolderError::Io { path: path.to_owned(), source };
        match judge(&facts(path).map_err(at)?) {
            Verdict::Private => return Ok(false),
            Verdict::Refuse(why) => return Err(refuse(why)),
            Verdict::Narrow => {}
        }
        let was_writable = fs::metadata(path).map_err(at)?.mode() & 0o022 != 0;
        narrow(path, 0).map_err(at)?;
        // Somebody may have put something there after it was found empty; nobody can from now on.
        let is_empty = fs::read_dir(path).map_err(at)?.next().is_none();
        match was_writable && !is_empty {
            true => Err(refuse(crate::Refusal::Writable(0o777))),
            false => Ok(true),
        }
    }

    /// A folder above that is another user's than root's and one's own, and whose: it lets its owner move what is in it.
    pub fn owned_by_others(path: &Path) -> io::Result<Option<(PathBuf, u32)>> {
        let (whole, me) = (fs::canonicalize(path)?, rustix::process::geteuid().as_raw());
        let mut owned = whole.ancestors().skip(1).filter_map(|above| Some((above, fs::metadata(above).ok()?.uid())));
        Ok(owned.find(|(_, owner)| *owner != 0 && *owner != me).map(|(above, owner)| (above.to_owned(), owner)))
    }

    fn facts(path: &Path) -> io::Result<Facts> {
        let (named, is) = (fs::symlink_metadata(path)?, fs::metadata(path)?);
        let whole = fs::canonicalize(path)?;
        let is_movable = whole.ancestors().skip(1).any(|above| {
            fs::metadata(above).is_ok_and(|above| above.mode() & 0o002 != 0 && above.mode() & 0o1000 == 0)
        });
        Ok(Facts {
            me: rustix::process::geteuid().as_raw(),
            owner: is.uid(),
            mode: is.mode() & 0o7777,
            is_empty: fs::read_dir(path)?.next().is_none(),
            link_owner: named.is_symlink().then(|| named.uid()),
            is_movable,
        })
    }

    /// Takes others' rights away: from the folder first, then from what is in it and may have been linked to elsewhere. Links and what belongs to others are left.
    fn narrow(path: &Path, depth: usize) -> io::Result<()> {
        let is = fs::metadata(path)?;
        fs::set_permissions(path, Permissions::from_mode(is.mode() & 0o700))?;
        if depth == DEPTH_MAX {
            return Ok(());
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            // One that has gone meanwhile needs nothing.
            let Ok(inner) = entry.metadata() else { continue };
            if inner.uid() != is.uid() || inner.mode() & 0o077 == 0 {
                continue;
            }
            match inner.file_type() {
                kind if kind.is_dir() => narrow(&entry.path(), depth + 1)?,
                kind if kind.is_file() => {
                    fs::set_permissions(entry.path(), Permissions::from_mode(inner.mode() & 0o600))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_is_made_for_its_owner_alone_and_so_are_those_above() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        assert!(!folder(&path).unwrap());
        assert_eq!((mode(&place.path().join("a")), mode(&path)), (0o700, 0o700));
        assert!(!folder(&path).unwrap(), "again");
    }

    #[test]
    fn a_folder_below_another_users_is_found_out() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("theirs/state");
        fs::create_dir_all(&path).unwrap();
        assert_eq!(unix::owned_by_others(&path).unwrap(), None);
        // Only root can give it away.
        if rustix::process::geteuid().is_root() {
            let theirs = path.parent().unwrap();
            std::os::unix::fs::chown(theirs, Some(65_534), None).unwrap();
            let found = unix::owned_by_others(&path).unwrap();
            assert_eq!(found, Some((theirs.canonicalize().unwrap(), 65_534)));
        }
    }

    #[test]
    fn a_wider_folder_is_narrowed_with_what_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        fs::create_dir_all(path.join("bodies")).unwrap();
        for name in ["lock", "bodies/one"] {
            fs::write(path.join(name), "x").unwrap();
            chmod(&path.join(name), 0o664);
        }
        let outside = place.path().join("outside");
        fs::write(&outside, "x").unwrap();
        chmod(&outside, 0o644);
        symlink(&outside, path.join("link")).unwrap();
        chmod(&path.join("bodies"), 0o755);
        chmod(&path, 0o755);
        assert!(folder(&path).unwrap());
        assert_eq!((mode(&path), mode(&path.join("bodies"))), (0o700, 0o700));
        assert_eq!((mode(&path.join("lock")), mode(&path.join("bodies/one"))), (0o600, 0o600));
        assert_eq!(mode(&outside), 0o644, "links are not followed");
    }

    #[test]
    fn a_folder_that_others_may_have_filled_is_refused_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        fs::create_dir(&path).unwrap();
        chmod(&path, 0o777);
        assert!(folder(&path).unwrap(), "empty: nobody has put anything there");
        chmod(&path, 0o770);
        fs::write(path.join("planted"), "").unwrap();
        let error = folder(&path).unwrap_err();
        assert!(error.to_string().contains("chmod 700"), "{error}");
        assert_eq!(mode(&path), 0o770);
        chmod(&path, 0o1777);
        assert!(matches!(folder(&path).unwrap_err(), FolderError::Refused { why: Refusal::Shared, .. }));
        chmod(&path, 0o700);
        assert!(!folder(&path).unwrap());
    }

    #[test]
    fn a_folder_that_anybody_can_move_away_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let (above, path) = (place.path().join("open"), place.path().join("open/state"));
        fs::create_dir_all(&path).unwrap();
        chmod(&path, 0o700);
        chmod(&above, 0o777);
        assert!(matches!(folder(&path).unwrap_err(), FolderError::Refused { why: Refusal::Movable, .. }));
        chmod(&above, 0o1777);
        assert!(!folder(&path).unwrap(), "sticky: only owners move things");
    }

    #[test]
    fn ones_own_link_is_followed_to_a_folder_that_is_judged() {
        let place = tempfile::tempdir().unwrap();
        let (path, link) = (place.path().join("private"), place.path().join("state"));
        fs::create_dir(&path).unwrap();
        chmod(&path, 0o755);
        symlink(&path, &link).unwrap();
        assert!(folder(&link).unwrap());
        assert_eq!(mode(&path), 0o700);
    }
}
