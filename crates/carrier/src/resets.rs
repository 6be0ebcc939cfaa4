//! By what a server tells devices that it has forgotten their connections: [`ResetKey`].

use quinn::EndpointConfig;
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A connection's packet that comes to a server without that connection is answered by a reset at most so often: devices that all send within four seconds of a server's
/// restart are told, 10,000 of them, and whoever makes such packets up takes a few percent of a core. A reset is smaller than what it answers.
const EVERY: Duration = Duration::from_micros(400);

/// What a server's stateless resets are made with (RFC 9000 §10.3), for [`QuicListener`](crate::QuicListener). A server that had the same before it was restarted tells each device,
/// at its next packet, that the connection is gone. With another one, devices notice by silence.
///
/// Who knows it can end any connection of the server whose packets he has seen. Two servers must not have the same: one would end what is the other's.
#[derive(Clone)]
pub struct ResetKey {
    tokens: Arc<hmac::Key>,
    names: u64,
}

impl fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResetKey").finish_non_exhaustive()
    }
}

impl ResetKey {
    /// The key of a server with this secret, such as its certificate's private key, of which nothing can be learnt by it. `place` tells servers apart that have the
    /// same secret: the machine and the address, say.
    pub fn derive(secret: &[u8], place: &[u8]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derive = |label: &[u8]| hmac::sign(&secret, &[label, place].concat());
        let [tokens, names] = [derive(b"hoop quic reset tokens\0"), derive(b"hoop quic connection ids\0")];
        let names = names.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        Self { tokens: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, tokens.as_ref())), names: u64::from_be_bytes(*names) }
    }

    /// An endpoint that resets with it.
    pub(crate) fn endpoint(&self) -> EndpointConfig {
        let mut endpoint = EndpointConfig::new(self.tokens.clone());
        let names = self.names;
        // Packets for names that no server with this key has made are not answered.
        endpoint.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(names)));
        endpoint.min_reset_interval(EVERY);
        endpoint
    }
}
