//! The shared test vectors, made from fixed seeds.

mod bodies;
mod capsules;
pub mod format;
mod raw;
mod signatures;

use format::Vector;
use std::collections::BTreeMap;

/// Every vector: file name and content.
pub fn all() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut add = |name: String, vector: Vector| {
        let text = serde_json::to_string_pretty(&vector).expect("a vector is plain data") + "\n";
        assert!(files.insert(format!("{name}.json"), text).is_none(), "two vectors are called {name}");
    };
    bodies::make(&mut add);
    capsules::make(&mut add);
    signatures::make(&mut add);
    files
}
