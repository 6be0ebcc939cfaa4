//! Files for their owner alone: [`write_private`].

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes `folder/name` for its owner alone, whole or not at all; makes the folder if need be.
pub(crate) fn write_private(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!(".{}", hex::encode(hoop_http::Rng.octets::<8>())));
    let mut options = fs::File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = match options.open(&temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_private(folder)?;
            options.open(&temporary)?
        }
        other => other?,
    };
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, folder.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Makes a folder for its owner alone, if it is not there.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    hoop_files::folder(folder)?;
    Ok(())
}
