//! The shared test vectors, made from fixed seeds.

mod bodies;
mod capsules;
pub mod format;
mod raw;
mod signatures;

use format::Vector;
use std::collections::BTreeMap;

/// Every vector: folder and file name, and content. The folder is the first word of the vector's name.
pub fn all() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut add = |name: String, vector: Vector| {
        let text = serde_json::to_string_pretty(&vector).expect("a vector is plain data") + "\n";
        let path = name.replacen('-', "/", 1) + ".json";
        assert!(files.insert(path, text).is_none(), "two vectors are called {name}");
    };
    bodies::make(&mut add);
    capsules::make(&mut add);
    signatures::make(&mut add);
    files
}
