//! By what a server tells devices that it has forgotten their connections: [`ResetKey`].

use parking_lot::Mutex;
use quinn::EndpointConfig;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, HashedConnectionIdGenerator, InvalidCid};
use ring::hmac;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Resets that a server sends within a second, on average. A connection's packet that comes to a server without that connection is answered by one, which is smaller: whoever makes such packets up takes a few
/// percent of a core.
const RATE: u64 = 2_500;

/// And so many at once: all devices of a relay may send right after its restart.
const BURST: u64 = 16_384;

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
        let (names, budget) = (self.names, Arc::new(Mutex::new(Budget { left: BURST, since: Instant::now() })));
        // Packets for names that no server with this key has made are not answered.
        endpoint.cid_generator(move || {
            let (names, budget) = (HashedConnectionIdGenerator::from_key(names), budget.clone());
            Box::new(Names { names, budget })
        });
        // quinn's own bound would let one of all packets be answered that are read together, and 64 are where many come.
        endpoint.min_reset_interval(Duration::ZERO);
        endpoint
    }
}

/// Makes names of connections, and knows those that it has made, as long as there is a reset left for them: quinn asks only where it would send one.
struct Names {
    names: HashedConnectionIdGenerator,
    budget: Arc<Mutex<Budget>>,
}

impl ConnectionIdGenerator for Names {
    fn generate_cid(&mut self) -> ConnectionId {
        self.names.generate_cid()
    }

    fn validate(&self, name: &ConnectionId) -> Result<(), InvalidCid> {
        self.names.validate(name)?;
        let mut budget = self.budget.lock();
        if budget.take(Instant::now()) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        self.names.cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        self.names.cid_lifetime()
    }
}

/// How many resets are left.
#[derive(Debug)]
struct Budget {
    left: u64,
    /// Up to when what was saved has been counted.
    since: Instant,
}

impl Budget {
    fn take(&mut self, now: Instant) -> bool {
        let saved = now.saturating_duration_since(self.since).as_micros() as u64 * RATE / 1_000_000;
        if saved > 0 {
            self.left = (self.left + saved).min(BURST);
            self.since += Duration::from_micros(saved * 1_000_000 / RATE);
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;

    /// quinn reads many at once, and would answer the first.
    #[tokio::test]
    async fn a_restarted_server_answers_each_of_the_packets_that_it_reads_together() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let private = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let tls = crate::server_tls(vec![made.cert.der().clone()], private).unwrap();
        let resets = ResetKey::derive(b"secret", b"place");
        let mut names = HashedConnectionIdGenerator::from_key(resets.names);
        let options = crate::QuicOptions { resets: Some(resets), ..crate::QuicOptions::server() };
        let address = ([127, 0, 0, 1], 0).into();
        let server = crate::QuicListener::bind(address, &tls, &options, crate::QuicLimits::default()).unwrap();
        let device = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        device.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        for _ in 0..20 {
            // A packet of a connection (RFC 9000 §17.3.1) that the server had once.
            let packet = [&[0x40][..], &names.generate_cid(), &[7; 60]].concat();
            device.send_to(&packet, server.local_address().unwrap()).unwrap();
        }
        let answered =
            tokio::task::spawn_blocking(move || (0..21).map_while(|_| device.recv(&mut [0; 99]).ok()).count());
        assert_eq!(answered.await.unwrap(), 20);
    }

    #[test]
    fn packets_that_come_together_are_all_answered_and_a_flood_is_not() {
        let begun = Instant::now();
        let mut budget = Budget { left: BURST, since: begun };
        assert_eq!((0..10_000).filter(|_| budget.take(begun)).count(), 10_000, "all devices of a relay");
        let flood = |millis| begun + Duration::from_millis(millis);
        let answered = (0..10_000).flat_map(|millis| [flood(millis); 100]).filter(|now| budget.take(*now)).count();
        assert!((30_000..32_000).contains(&answered), "{answered} of a million within ten seconds");
    }
}
