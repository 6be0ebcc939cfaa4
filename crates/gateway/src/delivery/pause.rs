//! Whether the owner lets this gateway deliver: [`Pause`]. It outlives a restart as a file in the spool, `paused`.

use std::fs;
use std::io;
use std::path::PathBuf;
use tokio::sync::watch;

/// A switch.
#[derive(Debug)]
pub struct Pause {
    file: PathBuf,
    on: watch::Sender<bool>,
}

impl Pause {
    /// As it was left.
    pub fn open(file: PathBuf) -> Self {
        let on = watch::Sender::new(file.exists());
        Self { file, on }
    }

    pub fn is_on(&self) -> bool {
        *self.on.borrow()
    }

    /// Stops deliveries, or lets them go on.
    ///
    /// # Errors
    /// If it cannot be written down; then nothing changes.
    pub fn set(&self, on: bool) -> io::Result<()> {
        match on {
            true => hoop_files::touch(&self.file)?,
            false => match fs::remove_file(&self.file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            },
        }
        self.on.send_replace(on);
        Ok(())
    }

    /// Returns once it is as said, at once if it is.
    pub async fn until(&self, on: bool) {
        // An error means that the switch is gone, and so is whoever waits.
        let _ = self.on.subscribe().wait_for(|is| *is == on).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pause_outlives_a_restart_and_whoever_waits_for_its_end_hears_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("paused");
        Pause::open(file.clone()).set(true).unwrap();
        let pause = Pause::open(file.clone());
        assert!(pause.is_on());
        tokio::join!(pause.until(false), async { pause.set(false).unwrap() });
        pause.set(false).unwrap();
        assert!(!Pause::open(file).is_on());
    }
}
