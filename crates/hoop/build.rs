//! Builds the library that `hoop run` loads into a program, and which `hoop` carries within itself.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=preload/preload.c");
    if std::env::var_os("CARGO_FEATURE_FLOW").is_none() {
        return;
    }
    let out = Path::new(&std::env::var_os("OUT_DIR").expect("cargo sets it")).join("preload.so");
    let built = cc::Build::new()
        .cargo_metadata(false)
        .get_compiler()
        .to_command()
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&out)
        .args(["preload/preload.c", "-ldl"])
        .status();
    assert!(built.is_ok_and(|status| status.success()), "preload.c is not built: it takes a C compiler");
}
