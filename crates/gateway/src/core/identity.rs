//! A gateway's own key: [`open`].
//!
//! It lies in the spool, `gateway.key`, since what is bound to this gateway is worth nothing without what lies there: 32 bytes that are the seed of an
//! Ed25519 key, as text: `hoop-gateway-v1 BASE64URL`, readable by its owner alone. Whoever copies it can pose as this gateway to services that
//! ask for one; nothing can be opened with it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_http::Rng;
use hoop_seal::signing::GatewayKey;
use std::io::{self, Read as _};
use std::path::Path;
use zeroize::Zeroizing;

const NAME: &str = "gateway.key";
const FORM: &str = "hoop-gateway-v1 ";

/// Reads the key, or makes one if there is none.
///
/// # Errors
/// If it can be neither read nor written, or is no key: another in its place would be another gateway.
pub fn open(folder: &Path) -> io::Result<GatewayKey> {
    let mut text = Zeroizing::new(String::new());
    match hoop_files::open(&folder.join(NAME)).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no key")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(folder),
        Err(error) => Err(error),
    }
}

fn parse(text: &str) -> Option<GatewayKey> {
    let seed = Zeroizing::new(URL_SAFE_NO_PAD.decode(text.trim_end().strip_prefix(FORM)?).ok()?);
    Some(GatewayKey::from_seed(seed.as_slice().try_into().ok()?))
}

fn make(folder: &Path) -> io::Result<GatewayKey> {
    let seed = Rng.bytes();
    hoop_files::replace(&folder.join(NAME), format!("{FORM}{}\n", URL_SAFE_NO_PAD.encode(seed)).as_bytes())?;
    Ok(GatewayKey::from_seed(&seed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_gateways_key_survives_a_restart_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let key = open(folder.path()).unwrap();
        assert_eq!(open(folder.path()).unwrap().id(), key.id());
        let mode = fs::metadata(folder.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(folder.path().join(NAME), "hoop-gateway-v1 AAAA\n").unwrap();
        assert!(open(folder.path()).is_err(), "another key would be another gateway");
    }
}
