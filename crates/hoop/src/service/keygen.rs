//! `hoop keygen`: makes a service's key K_ws, or puts a new one before the old.

use crate::base::exit::{Exit, Failure};
use clap::Args;
use hoop_http::Rng;
use hoop_seal::{Keyring, KwsId, ServiceKey};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct KeygenFlags {
    /// Write the key to this file, readable only by its owner [default: the standard output]
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "rotate")]
    pub output: Option<PathBuf>,
    /// Add a new key at the top of this file. The old keys still open what they sealed
    #[arg(long, value_name = "FILE")]
    pub rotate: Option<PathBuf>,
}

/// Runs it.
pub fn run(flags: &KeygenFlags) -> Result<Exit, Failure> {
    let key = ServiceKey::new(KwsId(Rng.bytes()), Rng.bytes());
    let line = format!("{}\n", key.to_line());
    match (&flags.output, &flags.rotate) {
        (None, None) => print!("{line}"),
        (Some(path), _) => {
            make_parent(path).and_then(|()| write_new(path, &line)).map_err(|error| {
                let exists = error.kind() == io::ErrorKind::AlreadyExists;
                let failure = Failure::new(Exit::File, format!("cannot make {}", path.display()), error);
                match exists {
                    true => failure.hint("choose another name; `--rotate` adds a key to an existing file, and no key file is ever overwritten"),
                    false => failure,
                }
            })?;
            eprintln!("hoop: key {} is in {}", key.id(), path.display());
        }
        (None, Some(path)) => {
            rotate(path, &line)?;
            eprintln!("hoop: key {} is now the first in {}; reload the service (SIGHUP)", key.id(), path.display());
        }
    }
    Ok(Exit::Done)
}

/// Puts `line` first in the file at `path`, whole or not at all.
fn rotate(path: &Path, line: &str) -> Result<(), Failure> {
    let fail = |error| Failure::new(Exit::File, format!("cannot rotate {}", path.display()), error);
    let old = fs::read_to_string(path).map_err(fail)?;
    Keyring::parse(&old)
        .map_err(|error| Failure::new(Exit::Usage, format!("{} is not a key file", path.display()), error))?;
    let beside = hoop_files::beside(path, ".new");
    let text = format!("{line}{old}");
    hoop_files::replace_by(&beside, path, text.as_bytes(), |new| keep_owner(path, new)).map_err(fail)
}

/// Root rotates the file of a service that runs as a user of its own, who is to read it as before. Whoever owns the folder may have put a link in the new file's place since: what
/// was opened is given to him, and nothing else.
fn keep_owner(old: &Path, new: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt as _, fchown};
        let (old, own) = (fs::metadata(old)?, new.metadata()?);
        if (old.uid(), old.gid()) != (own.uid(), own.gid()) {
            fchown(new, Some(old.uid()), Some(old.gid()))?;
        }
    }
    Ok(())
}

/// Makes the folder that a file is to lie in, for its owner alone, if it is not there.
fn make_parent(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(parent)
}

/// Makes a file for its owner alone, on disk; one that exists is left as it is.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = hoop_files::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_file_has_the_new_key_first_and_keeps_the_old() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kws");
        let make = |rotate: bool| {
            let (output, rotate) = if rotate { (None, Some(path.clone())) } else { (Some(path.clone()), None) };
            run(&KeygenFlags { output, rotate })
        };
        make(false).unwrap();
        let first = fs::read_to_string(&path).unwrap();
        assert_eq!(make(false).unwrap_err().exit, Exit::File, "never overwritten");
        make(true).unwrap();
        let both = fs::read_to_string(&path).unwrap();
        assert!(both.ends_with(&first) && both.lines().count() == 2);
        assert_ne!(Keyring::parse(&both).unwrap().primary().id(), Keyring::parse(&first).unwrap().primary().id());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_no_key_file_is_not_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        fs::write(&path, "notes").unwrap();
        let failure = run(&KeygenFlags { output: None, rotate: Some(path.clone()) }).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_was_put_in_the_new_files_place_is_not_given_away() {
        use std::os::unix::fs::{MetadataExt as _, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["old", "victim"] {
            fs::write(at(name), "").unwrap();
        }
        if chown(at("old"), Some(65_534), Some(65_534)).is_err() {
            eprintln!("only root gives a file away: not checked");
            return;
        }
        let new = hoop_files::create_new(&at("old.new")).unwrap();
        fs::remove_file(at("old.new")).unwrap();
        symlink(at("victim"), at("old.new")).unwrap();
        keep_owner(&at("old"), &new).unwrap();
        assert_eq!((new.metadata().unwrap().uid(), fs::metadata(at("victim")).unwrap().uid()), (65_534, 0));
    }
}
