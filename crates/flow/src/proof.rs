//! Keys and proofs: that the one who opens or resumes a flow is who began it, and that the server is the one it was begun with.
//!
//! ```text
//! flow key  = HMAC-SHA256(device key,  "hoop-flow-key-v1"    | host(20) | flow(8) | nonce(32))
//! opening   = HMAC-SHA256(device key,  "hoop-flow-open-v1"   | binding(32) | the OPEN's payload before the proof)
//! resuming  = HMAC-SHA256(flow key,    "hoop-flow-resume-v1" | binding(32) | the RESUME's payload before the proof)
//! attached  = HMAC-SHA256(flow key,    "hoop-flow-server-v1" | binding(32) | epoch(8) | the ATTACHED's payload before the proof)
//! binding   = TLS exporter (RFC 8446 §7.5) of the carrier, label "EXPORTER-hoop-flow-v1", no context, 32 bytes; or, where TLS ends before the
//!             server, SHA-256("hoop-flow-challenge-v1" | the device's nonce(32) | the server's nonce(32))
//! ```
//!
//! The binding is another on every carrier, and both ends have a share in it: a proof that was heard is worthless on the next carrier. The
//! words at the front keep the proofs apart, so that none can be given back to its sender.

use crate::id::FlowName;
use alloc::vec::Vec;
use core::fmt;
use ring::digest;
use ring::hmac::{self, HMAC_SHA256};

/// How long a proof is, in bytes.
pub const PROOF_LEN: usize = 32;

/// The label that carriers export their [`Binding`] under.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-hoop-flow-v1";

/// What is of one carrier alone: 32 bytes of its TLS exporter, or the hash of both ends' nonces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Binding(pub [u8; 32]);

impl Binding {
    /// The binding where TLS ends before the server: of what the device and the server have drawn for this carrier.
    pub fn of_nonces(device: &[u8; 32], server: &[u8; 32]) -> Self {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"hoop-flow-challenge-v1");
        hash.update(device);
        hash.update(server);
        Self(bytes(hash.finish().as_ref()))
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Binding")
    }
}

/// The key that a device shares with a server: drawn when the two were introduced. A device that TLS has shown to be who it is (a
/// certificate) may use 32 zeros.
#[derive(Clone, Copy)]
pub struct DeviceKey(pub [u8; 32]);

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeviceKey")
    }
}

impl DeviceKey {
    /// The key of one flow, of the nonce that its OPEN carries.
    ///
    /// Both have a share in it: who ends TLS before the server and sees the nonce lacks the device's key; who steals the device's key later has
    /// not seen the nonce.
    pub fn flow_key(&self, name: FlowName, nonce: &[u8; 32]) -> FlowKey {
        FlowKey(sign(&self.0, b"hoop-flow-key-v1", &[&name.device.0, &name.flow.0.to_be_bytes(), nonce]))
    }

    pub(crate) fn opening(&self, binding: Binding, payload: &[u8]) -> [u8; PROOF_LEN] {
        sign(&self.0, b"hoop-flow-open-v1", &[&binding.0, payload])
    }

    pub(crate) fn is_opening(&self, binding: Binding, payload: &[u8], proof: &[u8; PROOF_LEN]) -> bool {
        verify(&self.0, b"hoop-flow-open-v1", &[&binding.0, payload], proof)
    }
}

/// The key of one flow.
#[derive(Clone, Copy)]
pub struct FlowKey(pub [u8; 32]);

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowKey")
    }
}

impl FlowKey {
    pub(crate) fn resuming(&self, binding: Binding, payload: &[u8]) -> [u8; PROOF_LEN] {
        sign(&self.0, b"hoop-flow-resume-v1", &[&binding.0, payload])
    }

    pub(crate) fn is_resuming(&self, binding: Binding, payload: &[u8], proof: &[u8; PROOF_LEN]) -> bool {
        verify(&self.0, b"hoop-flow-resume-v1", &[&binding.0, payload], proof)
    }

    pub(crate) fn attached(&self, binding: Binding, epoch: u64, payload: &[u8]) -> [u8; PROOF_LEN] {
        sign(&self.0, b"hoop-flow-server-v1", &[&binding.0, &epoch.to_be_bytes(), payload])
    }

    pub(crate) fn is_attached(&self, binding: Binding, epoch: u64, payload: &[u8], proof: &[u8; PROOF_LEN]) -> bool {
        verify(&self.0, b"hoop-flow-server-v1", &[&binding.0, &epoch.to_be_bytes(), payload], proof)
    }
}

fn message(word: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    [&[word], parts].concat().concat()
}

fn sign(key: &[u8; 32], word: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    bytes(hmac::sign(&hmac::Key::new(HMAC_SHA256, key), &message(word, parts)).as_ref())
}

/// In constant time.
fn verify(key: &[u8; 32], word: &[u8], parts: &[&[u8]], proof: &[u8; 32]) -> bool {
    hmac::verify(&hmac::Key::new(HMAC_SHA256, key), &message(word, parts), proof).is_ok()
}

fn bytes(slice: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(slice);
    bytes
}
