//! Builds the library that `hoop run` loads into a program, and which `hoop` carries within itself.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=preload/preload.c");
    if std::env::var_os("CARGO_FEATURE_FLOW").is_none() {
        return;
    }
    // With musl `hoop` is a static program, and those that it carries have a C library of their own: the library leans on none, and takes what they have.
    let links = if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "musl") { "-nostdlib" } else { "-ldl" };
    let out = Path::new(&std::env::var_os("OUT_DIR").expect("cargo sets it")).join("preload.so");
    let built = cc::Build::new()
        .cargo_metadata(false)
        .get_compiler()
        .to_command()
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&out)
        .args(["preload/preload.c", links])
        .status();
    assert!(built.is_ok_and(|status| status.success()), "preload.c is not built: it takes a C compiler");
}
