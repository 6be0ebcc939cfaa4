//! Files for their owner alone: [`write_private`].

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How many random digits the name of a file has that is being written, after a dot.
const TEMPORARY_DIGITS: usize = 16;

/// Writes `folder/name` for its owner alone, whole or not at all; makes the folder if need be.
pub(crate) fn write_private(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let random = hex::encode(hoop_http::Rng.bytes::<{ TEMPORARY_DIGITS / 2 }>());
    let (temporary, path) = (folder.join(format!(".{random}")), folder.join(name));
    match hoop_files::replace_by(&temporary, &path, bytes, |_| Ok(())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_private(folder)?;
            hoop_files::replace_by(&temporary, &path, bytes, |_| Ok(()))
        }
        other => other,
    }
}

/// Removes from `folder` what processes that were killed had begun to write, `age` after they last did. Whoever still writes, since a clock has jumped,
/// writes it anew.
pub(crate) fn sweep(folder: &Path, age: Duration) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_temporary) && is_older(&entry.path(), age) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a file was last written so long ago.
pub(crate) fn is_older(path: &Path, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|at| at.elapsed().ok()).is_some_and(|since| since >= age)
}

fn is_temporary(name: &str) -> bool {
    let is_random =
        |digits: &str| digits.len() == TEMPORARY_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    name.strip_prefix('.').is_some_and(is_random)
}

/// Makes a folder for its owner alone, if it is not there.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    hoop_files::folder(folder)?;
    Ok(())
}
