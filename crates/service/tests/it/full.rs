//! A disk without a free byte: the application behind is reached, and uploads are taken once there is room.

use crate::support::device::{Ticket, ask, seal};
use crate::support::upstream::Upstream;
use crate::support::{COOKIE, PATIENCE, Sidecar};
use serde_json::json;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Filled {
    Bytes,
    Files,
}

/// A small disk of its own.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` where mounting is not permitted.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=8m,nr_inodes=200,mode=0700", "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves no byte free, or no file. The folder is what fills it.
    fn fill(&self, what: Filled) -> PathBuf {
        let folder = self.path().join("filler");
        std::fs::create_dir(&folder).unwrap();
        match what {
            Filled::Bytes => {
                let mut file = File::create(folder.join("bytes")).unwrap();
                let page = vec![7; 4096];
                while file.write_all(&page).is_ok() {}
            }
            Filled::Files => {
                let made = (0..1_000).take_while(|number| File::create(folder.join(number.to_string())).is_ok());
                assert!(made.count() < 1_000);
            }
        }
        folder
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_on_a_full_disk_passes_requests_and_takes_uploads_later() {
    let Some(disk) = SmallDisk::mount() else {
        println!("skipped: mounting a file system of its own is not permitted here");
        return;
    };
    let upstream = Upstream::willing().await;
    let cases = [(true, Filled::Bytes), (false, Filled::Bytes), (false, Filled::Files)];
    for (is_new, filled) in cases {
        let dir = disk.path().join("state");
        if !is_new {
            assert!(dir.join("index.sqlite").exists());
        }
        let filler = disk.fill(filled);
        let service = Sidecar::on(upstream.address, dir, |config| config.reserve_bytes = 0).await;
        let before = upstream.arrivals().len();
        assert_eq!(service.send("GET", "/", &[], b"").await.status, 201);
        assert_eq!(upstream.arrivals().len(), before + 1);
        let refused = ask(service.address, COOKIE, &json!({})).await;
        assert_eq!(refused.problem(), (507, "spool-full".to_owned()), "new: {is_new}, {filled:?}");
        std::fs::remove_dir_all(filler).unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let ticket = loop {
            let reply = ask(service.address, COOKIE, &json!({})).await;
            if reply.status == 200 {
                break Ticket::parse(&reply.json()["tickets"][0]);
            }
            assert!(tokio::time::Instant::now() < deadline, "it does not open its state: {reply:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        seal(&ticket, b"the upload").is_taken_by(&service).await;
        service.reaches(&ticket.id, "accepted").await;
        service.stop().await;
    }
}
