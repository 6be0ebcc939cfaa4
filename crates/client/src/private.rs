//! Files for their owner alone: [`write_private`].

use std::io;
use std::path::Path;

/// Writes `folder/name` for its owner alone, whole or not at all; makes the folder if need be.
pub(crate) fn write_private(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (temporary, path) = (folder.join(format!(".{}", hex::encode(hoop_http::Rng.bytes::<8>()))), folder.join(name));
    match hoop_files::replace_by(&temporary, &path, bytes, |_| Ok(())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_private(folder)?;
            hoop_files::replace_by(&temporary, &path, bytes, |_| Ok(()))
        }
        other => other,
    }
}

/// Makes a folder for its owner alone, if it is not there.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    hoop_files::folder(folder)?;
    Ok(())
}
