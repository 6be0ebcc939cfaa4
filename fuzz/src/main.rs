//! The driver: libFuzzer runs the target that `HOOP_FUZZ_TARGET` names. `fuzz/run` builds and starts it.

#![no_main]

use hoop_fuzz::Target;
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("HOOP_FUZZ_TARGET").unwrap_or_default();
    hoop_fuzz::by_name(&name).unwrap_or_else(|| {
        let names = hoop_fuzz::TARGETS.map(|target| target.name).join(", ");
        eprintln!("HOOP_FUZZ_TARGET is `{name}`; the targets are {names}");
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
