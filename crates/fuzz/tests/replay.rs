//! Runs every target over its corpus, without libFuzzer: what was found once stays found.

use hoop_fuzz::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Inputs of all corpora together, in bytes: they are in everybody's checkout.
const CORPUS_MAX: u64 = 2 << 20;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_target_keeps_its_promises_over_its_corpus() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let files = files(&corpus().join(target.name));
        assert!(!files.is_empty(), "{} has no corpus", target.name);
        for file in files {
            let input = fs::read(&file).unwrap();
            if catch_unwind(|| (target.run)(&input)).is_err() {
                broken.push(file);
            }
        }
    }
    assert_eq!(broken, Vec::<PathBuf>::new());
}

#[test]
fn every_target_keeps_its_promises_when_nothing_comes() {
    TARGETS.iter().for_each(|target| (target.run)(b""));
}

#[test]
fn every_corpus_has_its_target_and_together_they_are_small() {
    let folders = files(&corpus());
    let names: BTreeSet<_> = folders.iter().map(|folder| folder.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, TARGETS.iter().map(|target| target.name).collect());
    let sizes = folders.iter().flat_map(|folder| files(folder)).map(|file| fs::metadata(file).unwrap().len());
    assert!(sizes.sum::<u64>() <= CORPUS_MAX);
}
