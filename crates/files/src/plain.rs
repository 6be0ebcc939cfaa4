//! Plain files alone: [`open_plain`] and [`read_plain`].

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// Something else is in the place of a file: a link, a folder, a FIFO, a socket or a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is no plain file")]
pub struct NotPlain;

/// Whether an error says that something is no plain file ([`NotPlain`]).
pub fn is_not_plain(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NotPlain>())
}

/// Opens a file as `options` say, if it is a plain one. A link is not followed, and a FIFO is not waited for.
///
/// # Errors
/// As the options have it; [`NotPlain`] if something else is in its place, which stays as it is.
pub fn open_plain(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let not_plain = || io::Error::new(ErrorKind::PermissionDenied, NotPlain);
    match without_links(options).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => Err(not_plain()),
        // How this is refused depends on what it is, and on the system.
        Err(_) if path.symlink_metadata().is_ok_and(|is| !is.is_file()) => Err(not_plain()),
        Err(error) => Err(error),
    }
}

/// Reads a plain file of at most `most` bytes.
///
/// # Errors
/// As [`open_plain`]; if it is longer.
pub fn read_plain(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_plain(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

#[cfg(unix)]
fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    options.custom_flags(i32::try_from(flags.bits()).expect("flags fit in an int"))
}

#[cfg(not(unix))]
fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_a_plain_file_is_opened_and_nothing_else_is_emptied_or_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let path = |name| place.path().join(name);
        let (target, link) = (path("target"), path("link"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        let fifo = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, fifo, 0).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        for name in ["link", "dangling", "folder", "fifo", "socket"] {
            for (write, create) in [(false, false), (true, false), (true, true)] {
                let mut options = OpenOptions::new();
                let refused = open_plain(&path(name), options.read(true).write(write).create(create).truncate(create));
                assert!(is_not_plain(&refused.unwrap_err()), "{name}");
            }
            assert!(is_not_plain(&read_plain(&path(name), 9).unwrap_err()), "{name}");
        }
        assert!(!path("nowhere").exists());
        assert_eq!(read_plain(&target, 4).unwrap(), b"kept");
        assert_eq!(read_plain(&target, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        let missing = open_plain(&path("missing"), OpenOptions::new().read(true)).unwrap_err();
        assert_eq!((missing.kind(), is_not_plain(&missing)), (ErrorKind::NotFound, false));
    }
}
