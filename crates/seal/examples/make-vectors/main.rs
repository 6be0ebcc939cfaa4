//! Makes the shared test vectors: `cargo run -p hoop-seal --example make-vectors`.
//!
//! Each run makes the same files, in folders of `vectors/`; `vectors/README.md` says what stands in them. The two examples of
//! RFC 8188 lie beside them and are not made here.

mod make;

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let vectors = make::all();
    for (name, text) in &vectors {
        let path = folder.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    println!("made {} vectors", vectors.len());
    Ok(())
}
