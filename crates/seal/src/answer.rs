//! The application's answer, sealed for the device's eyes: whoever carries it sees that there is one, and no more.
//!
//! ```text
//! | nonce (12) | AES-256-GCM ciphertext | tag (16) |      key: HKDF-SHA-256(salt = upload_id, K, "hoop-answer-v1")
//! ```

use crate::record::{UploadKey, expand};
use alloc::vec::Vec;
use hoop_units::UploadId;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

/// The answer was altered, or belongs to another upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the answer was altered, or belongs to another upload")]
pub struct AnswerError;

/// Seals `answer` under the upload's key. `nonce` must be random and fresh.
pub fn seal(key: &UploadKey, upload_id: UploadId, answer: &[u8], nonce: [u8; NONCE_LEN]) -> Vec<u8> {
    let mut sealed = answer.to_vec();
    answer_key(key, upload_id)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(upload_id.0), &mut sealed)
        .expect("an answer is far below the cipher's limit");
    [&nonce[..], &sealed].concat()
}

/// Opens what [`seal`] made.
///
/// # Errors
/// If it was altered, or belongs to another upload.
pub fn open(key: &UploadKey, upload_id: UploadId, sealed: &[u8]) -> Result<Vec<u8>, AnswerError> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(AnswerError)?;
    let mut answer = sealed.to_vec();
    let len = answer_key(key, upload_id)
        .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(upload_id.0), &mut answer)
        .map_err(|_| AnswerError)?
        .len();
    answer.truncate(len);
    Ok(answer)
}

fn answer_key(key: &UploadKey, upload_id: UploadId) -> LessSafeKey {
    let prk = Salt::new(HKDF_SHA256, upload_id.as_bytes()).extract(&key.0);
    let mut derived = [0; 32];
    expand(&prk, b"hoop-answer-v1", &mut derived);
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &derived).expect("the key has the right length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_opens_for_its_own_upload_only() {
        let (key, id) = (UploadKey([1; 32]), UploadId([2; 16]));
        let sealed = seal(&key, id, b"HTTP/1.1 201 Created\r\n\r\n{}", [3; 12]);
        assert_eq!(open(&key, id, &sealed).unwrap(), b"HTTP/1.1 201 Created\r\n\r\n{}");
        assert_eq!(open(&key, UploadId([9; 16]), &sealed), Err(AnswerError));
        assert_eq!(open(&UploadKey([9; 32]), id, &sealed), Err(AnswerError));
        for len in 0..sealed.len() {
            assert_eq!(open(&key, id, &sealed[..len]), Err(AnswerError));
        }
    }
}
