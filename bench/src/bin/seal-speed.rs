//! Sealing and opening beside the AEAD library alone, 64 KiB records, one core; and memory from 1 MB to 10 GB.
//!
//! The rivals take turns on 16 MiB of data, so that the machine's mood treats them alike. All work in place, so each pass
//! works on a copy; the copy is made by every rival, and by a stream anyway.

use hoop_bench::{Table, Verdict, median, rounds, spread, wait_usage};
use hoop_seal::{ContentKey, Opener, Prelude, RECORD_SIZE, Sealer, Suite, UploadKey};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

const RECORD: usize = RECORD_SIZE as usize;
const RECORDS: usize = 256;
const DATA: usize = RECORD * RECORDS;

/// How often the data is gone through in one measurement.
const PASSES: usize = 16;

fn main() -> ExitCode {
    let mut verdict = Verdict::default();
    // Memory first: a child's peak counts from its parent's size at the fork, and the other part fills caches.
    memory(&mut verdict);
    speed(&mut verdict);
    verdict.exit()
}

fn speed(verdict: &mut Verdict) {
    let mut table = Table::new(["suite", "what", "MB/s, median", "min-max", "of the AEAD alone", "limit", ""]);
    for (suite, algorithm) in [(Suite::Aes256Gcm, &AES_256_GCM), (Suite::Aes128Gcm, &AES_128_GCM)] {
        let mut results: [Vec<f64>; 6] = Default::default();
        for _ in 0..rounds() {
            let measured = [
                aead_seal(algorithm),
                seal_records(suite),
                seal_stream(suite),
                aead_open(algorithm),
                open_records(suite),
                open_stream(suite),
            ];
            results.iter_mut().zip(measured).for_each(|(all, one)| all.push(one));
        }
        let names = ["AEAD seals", "records sealed", "stream sealed", "AEAD opens", "records opened", "stream opened"];
        for (index, (name, values)) in names.iter().zip(&results).enumerate() {
            let (low, high) = spread(values);
            // Round by round: rivals that ran in the same second met the same machine.
            let ratios: Vec<f64> = values.iter().zip(&results[index / 3 * 3]).map(|(own, alone)| own / alone).collect();
            let ratio = median(&ratios);
            let (limit, holds) = match index % 3 {
                0 => (String::new(), ""),
                _ => ("0.8".into(), verdict.at_least(&format!("{suite}, {name}"), ratio, 0.8)),
            };
            table.row([
                suite.to_string(),
                (*name).into(),
                format!("{:.0}", median(values)),
                format!("{low:.0}-{high:.0}"),
                format!("{ratio:.2}"),
                limit,
                holds.into(),
            ]);
        }
    }
    println!("{}", table.render());
}

/// MB/s of `pass`, run [`PASSES`] times over [`DATA`] bytes, after one pass to warm up.
fn rate(mut pass: impl FnMut()) -> f64 {
    pass();
    let start = Instant::now();
    (0..PASSES).for_each(|_| pass());
    (DATA * PASSES) as f64 / 1e6 / start.elapsed().as_secs_f64()
}

fn raw_key(algorithm: &'static Algorithm) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(algorithm, &vec![7; algorithm.key_len()]).expect("the key has the right length"))
}

fn nonce(index: usize) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&(index as u64).to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn aead_seal(algorithm: &'static Algorithm) -> f64 {
    let (key, data, mut scratch) = (raw_key(algorithm), vec![1; DATA], vec![0; RECORD]);
    rate(|| {
        for (index, record) in data.chunks_exact(RECORD).enumerate() {
            scratch.copy_from_slice(record);
            let tag = key.seal_in_place_separate_tag(nonce(index), Aad::empty(), &mut scratch[..RECORD - 16]).unwrap();
            scratch[RECORD - 16..].copy_from_slice(tag.as_ref());
        }
    })
}

fn aead_open(algorithm: &'static Algorithm) -> f64 {
    let (key, mut data, mut scratch) = (raw_key(algorithm), vec![1; DATA], vec![0; RECORD]);
    for (index, record) in data.chunks_exact_mut(RECORD).enumerate() {
        let tag = key.seal_in_place_separate_tag(nonce(index), Aad::empty(), &mut record[..RECORD - 16]).unwrap();
        record[RECORD - 16..].copy_from_slice(tag.as_ref());
    }
    rate(|| {
        for (index, record) in data.chunks_exact(RECORD).enumerate() {
            scratch.copy_from_slice(record);
            key.open_in_place(nonce(index), Aad::empty(), &mut scratch).unwrap();
        }
    })
}

fn content_key(suite: Suite) -> (ContentKey, Prelude) {
    let prelude = Prelude::new([3; 16], RECORD_SIZE, b"ticket").expect("a valid prelude");
    (ContentKey::new(suite, &UploadKey([7; 32]), prelude.salt()), prelude)
}

fn seal_records(suite: Suite) -> f64 {
    let ((key, _), data, mut scratch) = (content_key(suite), vec![1; DATA], vec![0; RECORD]);
    rate(|| {
        for (index, record) in data.chunks_exact(RECORD).enumerate() {
            scratch.copy_from_slice(record);
            key.seal_slice(index as u64, index + 1 == RECORDS, &mut scratch);
        }
    })
}

fn open_records(suite: Suite) -> f64 {
    let ((key, _), mut data, mut scratch) = (content_key(suite), vec![1; DATA], vec![0; RECORD]);
    for (index, record) in data.chunks_exact_mut(RECORD).enumerate() {
        key.seal_slice(index as u64, index + 1 == RECORDS, record);
    }
    rate(|| {
        for (index, record) in data.chunks_exact(RECORD).enumerate() {
            scratch.copy_from_slice(record);
            key.open(index as u64, index + 1 == RECORDS, &mut scratch).unwrap();
        }
    })
}

/// What a pipe sees: pieces of 256 KiB pushed in, sealed bytes taken out.
fn seal_stream(suite: Suite) -> f64 {
    let (data, mut out) = (vec![1; DATA], Vec::with_capacity(2 << 20));
    rate(|| {
        let (key, prelude) = content_key(suite);
        let mut sealer = Sealer::new(key, &prelude, &mut out);
        for piece in data.chunks(256 * 1024) {
            sealer.push(piece, &mut out);
            out.clear();
        }
        sealer.finish(&mut out);
        out.clear();
    })
}

fn open_stream(suite: Suite) -> f64 {
    let (data, mut sealed, mut out) = (vec![1; DATA], Vec::new(), Vec::with_capacity(2 << 20));
    let (key, prelude) = content_key(suite);
    let mut sealer = Sealer::new(key, &prelude, &mut sealed);
    sealer.push(&data, &mut sealed);
    sealer.finish(&mut sealed);
    rate(|| {
        let mut opener = Opener::new(content_key(suite).0, &prelude);
        for piece in sealed[prelude.len()..].chunks(256 * 1024) {
            opener.push(piece, &mut out).unwrap();
            out.clear();
        }
        opener.finish(&mut out).unwrap();
        out.clear();
    })
}

/// `hoop seal --raw | hoop open --raw` on sparse files of growing size: the peak of either must not grow.
fn memory(verdict: &mut Verdict) {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let hoop = beside_this("hoop");
    let mut table = Table::new(["bytes", "peak of sealing, KiB", "peak of opening, KiB"]);
    let (mut first, mut last) = ((0, 0), (0, 0));
    for (at, bytes) in [1_000_000_u64, 100_000_000, 1_000_000_000, 10_000_000_000].into_iter().enumerate() {
        let path = folder.path().join("plain");
        File::create(&path).and_then(|file| file.set_len(bytes)).expect("a sparse file");
        let mode = |mode| {
            let mut command = Command::new(&hoop);
            command.args([mode, "--raw", "--key", "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"]);
            command
        };
        let mut sealing = mode("seal")
            .stdin(File::open(&path).expect("the sparse file"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("hoop seal");
        let opening = mode("open")
            .stdin(sealing.stdout.take().expect("a pipe"))
            .stdout(Stdio::null())
            .spawn()
            .expect("hoop open");
        let sealed = wait_usage(sealing).expect("hoop seal ends");
        let opened = wait_usage(opening).expect("hoop open ends");
        assert!(sealed.status.success() && opened.status.success(), "sealing and opening {bytes} bytes");
        last = (sealed.peak_kib, opened.peak_kib);
        if at == 0 {
            first = last;
        }
        table.row([bytes.to_string(), last.0.to_string(), last.1.to_string()]);
    }
    println!("{}", table.render());
    // A megabyte of slack: allocators and page-ins differ a little between any two runs.
    verdict.at_most("growth of sealing from 1 MB to 10 GB, MiB", (last.0 as f64 - first.0 as f64) / 1024.0, 1.0);
    verdict.at_most("growth of opening from 1 MB to 10 GB, MiB", (last.1 as f64 - first.1 as f64) / 1024.0, 1.0);
}

/// Another program of the same build.
fn beside_this(name: &str) -> PathBuf {
    std::env::current_exe().expect("this program has a path").with_file_name(name)
}
