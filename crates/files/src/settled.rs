//! Files that people write: whether one is whole ([`settled`]), and where its mistake is ([`line_at`]).

use crate::Print;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What has not changed for so long is not being written: editors and copies take milliseconds between two writes.
const STILL: Duration = Duration::from_millis(200);

/// So often it is looked at: two seconds in all.
const LOOKS: usize = 10;

/// Waits until nobody writes a file any more, so that whoever reads it then has all of it. A file that has not been changed lately costs no wait.
///
/// # Errors
/// If it is not there, is empty (an editor may empty a file before it writes it), or is still being written after two seconds.
pub fn settled(path: &Path) -> io::Result<()> {
    for _ in 0..LOOKS {
        let print = Print::of(path);
        let file = std::fs::metadata(path)?;
        let age = file.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        // A time to come is one of a clock that was set, and says nothing.
        if age.is_none_or(|age| age < STILL) {
            std::thread::sleep(STILL);
        }
        if Print::of(path) != print {
            continue;
        }
        return match file.is_file() && file.len() == 0 {
            true => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it is empty: a comment (#) says that nothing is meant",
            )),
            false => Ok(()),
        };
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "it is still being written"))
}

/// The line, from 1, in which a byte of the text stands; beyond its end, the last.
pub fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn lines_are_counted_from_one() {
        let at = |offset| line_at("a = 1\n\nb = ü\n", offset);
        assert_eq!([0, 5, 6, 7, 12].map(at), [1, 1, 2, 3, 3]);
    }

    #[test]
    fn a_file_that_is_empty_or_being_written_is_not_settled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.toml");
        assert_eq!(settled(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut file = std::fs::File::create(&path).unwrap();
        assert_eq!(settled(&path).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let writer = std::thread::spawn(move || {
            for _ in 0..10 {
                file.write_all(b"# one line\n").unwrap();
                std::thread::sleep(STILL / 4);
            }
        });
        // It comes back with the first line written, and not before the last one is.
        while std::fs::metadata(&path).unwrap().len() == 0 {
            std::thread::yield_now();
        }
        settled(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 110);
        writer.join().unwrap();
    }
}
