//! A disk that spoils what it was given, or lets itself no longer be written: nothing wrong leaves the gateway, nothing is lost, and
//! whoever looks is told.

use crate::crash::spawn_with;
use crate::support::service::{Service, Weather, plain};
use crate::support::{
    LATER, border, config, head, id_of, payload_files, post, put, sealed, start, status, until, until_state,
};
use http::Method;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn file(folder: &Path) -> PathBuf {
    let [file] = &payload_files(folder)[..] else { panic!("one upload is there") };
    file.clone()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn records_damaged_on_disk_are_delivered_only_after_they_come_again() {
    let busy = |_: usize, method: &Method, _: &str, _: &http::HeaderMap| match *method {
        Method::PUT => Weather::Answer(plain(503, "")),
        _ => Weather::Fair,
    };
    let service = Service::start(busy).await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = start(config(folder.path())).await;
    let z = sealed(1, 600_000, LATER);
    assert_eq!(post(gateway.address, &service.dest(), &z).await.status, 201);
    until(gateway.address, id_of(&z), "a failure", |status| status["attempts"].as_u64() > Some(0)).await;
    let path = file(folder.path());
    [3, border(2) + 5, border(6) - 1].into_iter().for_each(|at| flip(&path, at));
    service.set_mood(|_, _, _, _| Weather::Fair);
    let spoilt = |status: &serde_json::Value| status["reason"]["code"] == "spool-damaged";
    until(gateway.address, id_of(&z), "the damage", spoilt).await;
    let missing = format!("{}-{}, {}-{}", border(2), border(3) - 1, border(5), border(6) - 1);
    assert_eq!(head(gateway.address, id_of(&z)).await.header("hoop-missing"), missing);
    let arrived = service.bytes(id_of(&z));
    let wrong = arrived.iter().zip(&z).filter(|(arrived, sent)| **arrived != 0 && arrived != sent).count();
    assert_eq!(wrong, 0, "nothing that is not as it was sent arrives");
    for first in [2, 5] {
        let range = hoop_units::ByteRange::new(border(first), border(first + 1));
        assert!(put(gateway.address, &service.dest(), &z, range).await.status.is_success());
    }
    until_state(gateway.address, id_of(&z), "accepted").await;
    assert!(service.bytes(id_of(&z)) == z);
    gateway.stop().await;
}

/// Nothing below the folder of uploads can be read as long as there is a file `UNREADABLE`.
const UNREADABLE_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t pread64(int file, void *bytes, size_t len, off64_t offset) {
    ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    const char *unreadable = getenv("UNREADABLE");
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (unreadable && readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/uploads/")
        && access(unreadable, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return real(file, bytes, len, offset);
}
"#;

/// Ends when it is dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_a_read_error_hides_for_a_while_is_delivered_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let (source, shim, unreadable) = (path("shim.c"), path("shim.so"), path("unreadable"));
    std::fs::write(&source, UNREADABLE_DISK).unwrap();
    assert!(run("cc", &["-shared", "-fPIC", "-O1", "-o", shim.to_str().unwrap(), source.to_str().unwrap()]));
    let service = Service::start(|_, _, _, _| Weather::Fair).await;
    let (victim, address) = spawn_with(&path("spool"), &[("LD_PRELOAD", &shim), ("UNREADABLE", &unreadable)]);
    let _victim = Victim(victim);
    std::fs::write(&unreadable, "").unwrap();
    // In a segment, and with a file of its own.
    let uploads = [sealed(1, 300_000, LATER), sealed(2, 3_000_000, LATER)];
    for z in &uploads {
        assert_eq!(post(address, &service.dest(), z).await.status, 201);
        let again = |status: &serde_json::Value| status["attempts"].as_u64() > Some(2);
        let seen = until(address, id_of(z), "failures", again).await;
        assert_eq!((&seen["reason"]["code"], &seen["stored"]), (&"spool-failed".into(), &z.len().into()), "{seen}");
        assert_eq!(head(address, id_of(z)).await.header("hoop-missing"), "", "all of it is kept");
    }
    std::fs::remove_file(&unreadable).unwrap();
    for z in &uploads {
        until_state(address, id_of(z), "accepted").await;
        assert!(service.bytes(id_of(z)) == *z);
    }
}

/// A file system of its own that an error makes read-only.
struct FrailDisk {
    folder: tempfile::TempDir,
    /// Keeps the image.
    _above: tempfile::TempDir,
    image: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl FrailDisk {
    /// `None` where mounting is not permitted.
    fn mount() -> Option<Self> {
        let (folder, above) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let image = above.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(24 << 20).unwrap();
        let disk = Self { folder, _above: above, image };
        let made = run("mkfs.ext4", &["-q", disk.image.to_str().unwrap()]);
        (made && disk.mount_again()).then_some(disk)
    }

    fn mount_again(&self) -> bool {
        let (image, folder) = (self.image.to_str().unwrap(), self.folder.path().to_str().unwrap());
        run("mount", &["-o", "loop,errors=remount-ro", image, folder])
    }

    /// What the kernel does when it finds the file system damaged.
    fn fail(&self) -> bool {
        let folder = self.folder.path().to_str().unwrap();
        let found = Command::new("findmnt").args(["-n", "-o", "SOURCE", folder]).output().unwrap();
        let device = String::from_utf8(found.stdout).unwrap();
        let name = device.trim().trim_start_matches("/dev/");
        std::fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").is_ok()
    }

    fn unmount(&self) -> bool {
        run("umount", &[self.folder.path().to_str().unwrap()])
    }

    /// As an operator would: check it, and mount it again.
    fn repair(&self) {
        assert!(self.unmount());
        // 1: it found something, and has put it right.
        let status = Command::new("e2fsck").args(["-f", "-y"]).arg(&self.image).stdout(Stdio::null()).status().unwrap();
        assert!(matches!(status.code(), Some(0 | 1)), "{status}");
        assert!(self.mount_again());
    }
}

impl Drop for FrailDisk {
    fn drop(&mut self) {
        run("umount", &["-l", self.folder.path().to_str().unwrap()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_disk_is_503_loses_nothing_and_works_on_after_a_remount() {
    let Some(disk) = FrailDisk::mount() else {
        println!("skipped: mounting a file system of its own is not permitted here");
        return;
    };
    let service = Service::start(|_, _, _, _| Weather::Answer(plain(503, ""))).await;
    let spool = disk.folder.path().join("spool");
    let gateway = start(config(&spool)).await;
    let (kept, z) = (sealed(1, 300_000, LATER), sealed(2, 300_000, LATER));
    assert_eq!(post(gateway.address, &service.dest(), &kept).await.status, 201);
    let half = hoop_units::ByteRange::new(0, border(2));
    assert_eq!(put(gateway.address, &service.dest(), &z, half).await.status, 202);
    if !disk.fail() {
        println!("skipped: this kernel has no way to make a file system fail");
        return;
    }
    for _ in 0..2 {
        let refused = post(gateway.address, &service.dest(), &z).await;
        let got = (refused.status.as_u16(), refused.code(), refused.header("retry-after").to_owned());
        assert_eq!(got, (503, "spool-failed".into(), "60".into()));
        let refused = post(gateway.address, &service.dest(), &sealed(3, 1_000, LATER)).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (503, "spool-failed".into()));
    }
    assert_eq!(status(gateway.address, id_of(&kept)).await["stored"], kept.len(), "it can still be asked");
    gateway.stop().await;
    disk.repair();
    let gateway = start(config(&spool)).await;
    let missing = format!("{}-{}", border(2), z.len() - 1);
    assert_eq!(head(gateway.address, id_of(&z)).await.header("hoop-missing"), missing);
    assert_eq!(post(gateway.address, &service.dest(), &z).await.status, 201);
    service.set_mood(|_, _, _, _| Weather::Fair);
    for z in [&kept, &z] {
        until_state(gateway.address, id_of(z), "accepted").await;
        assert!(service.bytes(id_of(z)) == *z);
    }
    gateway.stop().await;
    assert!(disk.unmount());
}
