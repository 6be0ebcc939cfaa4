//! `hoop receipt verify` of what somebody made up.

use crate::common::run;
use hoop_seal::signing::{self, Outcome, Receipt};
use hoop_seal::{Keyring, KwsId, ServiceKey};
use hoop_units::{UnixTime, UploadId};
use std::collections::BTreeMap;

#[test]
fn a_forged_receipt_is_not_proven_by_the_keys_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let ring = |n: u8| Keyring::new(ServiceKey::new(KwsId([1; 4]), [n; 32]));
    let keys = |ring: &Keyring| -> BTreeMap<String, String> {
        ring.signing_keys().map(|(id, key)| (id.to_string(), key.to_string())).collect()
    };
    let (forger, service) = (ring(7), ring(8));
    let (upload_id, outcome, time) = (UploadId([3; 16]), Outcome::Accepted, UnixTime(1_800_000_000));
    let receipt = Receipt { upload_id, outcome, time, total: 9, digest: [5; 32], request: None };
    let receipt = signing::to_text(&forger.sign_receipt("https://photos.example", &receipt));
    let forged = serde_json::json!({"hoop": "receipt", "origin": "https://photos.example", "receipt": receipt, "signing_keys": keys(&forger)});
    std::fs::write(folder.path().join("forged.json"), forged.to_string()).unwrap();
    std::fs::write(folder.path().join("pinned.json"), serde_json::to_string(&keys(&service)).unwrap()).unwrap();
    let verify =
        |more: &[&str]| run(folder.path(), &[&["receipt", "verify", "forged.json", "--offline"], more].concat());
    let believed = verify(&[]).exits(11);
    assert!(believed.out.contains("This proves nothing") && !believed.out.contains("genuine"), "{believed}");
    assert_eq!(verify(&["--json"]).exits(11).json()["proven"], false);
    let pinned = verify(&["--keys", "pinned.json"]).exits(4);
    assert!(pinned.err.contains("proves nothing"), "{pinned}");
    verify(&["--keys", "forged.json"]).exits(0);
    verify(&["--keys", "absent.json"]).exits(3);
}
