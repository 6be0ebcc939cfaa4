//! Files with keys in them: [`Output`].

use super::exit::{Exit, Failure};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A new file for its owner alone. It is taken away again if nothing comes of it.
pub struct Output<'a> {
    path: &'a Path,
    file: File,
    is_written: bool,
}

impl<'a> Output<'a> {
    /// Makes it.
    pub fn create(path: &'a Path) -> Result<Self, Failure> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        file.map(|file| Self { path, file, is_written: false }).map_err(|error| Self::fail(path, &error))
    }

    /// Writes all of it, to the disk.
    pub fn write(mut self, text: &str) -> Result<(), Failure> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_all());
        self.is_written = written.is_ok();
        written.map_err(|error| Self::fail(self.path, &error))
    }

    fn fail(path: &Path, error: &io::Error) -> Failure {
        let failure = Failure::new(Exit::File, format!("cannot write {}", path.display()), error);
        match error.kind() {
            io::ErrorKind::AlreadyExists => {
                failure.hint("choose another name, or remove the file if nobody needs it any more")
            }
            _ => failure,
        }
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            let _ = std::fs::remove_file(self.path);
        }
    }
}
