//! Makes the shared test vectors: `cargo run -p hoop-seal --example make-vectors`.
//!
//! Each run makes the same files, in `vectors/`; `vectors/README.md` says what stands in them. The two examples of
//! RFC 8188 lie beside them and are not made here.

mod make;

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let vectors = make::all();
    for (name, text) in &vectors {
        fs::write(folder.join(name), text)?;
    }
    println!("made {} vectors", vectors.len());
    Ok(())
}
