//! The library's name for the dynamic linker: programs ask for the version that they were built with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libd2tp.so.0");
}
