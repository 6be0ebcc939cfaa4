//! Who answers at a gateway's address: [`meet`] asks it to sign a nonce (`docs/protocol.md`, *Who a gateway is*), and [`judge`] says what that is worth
//! here. A name can be copied, and multicast DNS lets anybody on the network be found; a key cannot be copied.

use crate::gateway::place::{Place, interfaces, origin_of};
use crate::outcome::GatewayIdentity;
use crate::wire::{Link, LinkError};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hoop_http::{Origin, Rng, empty};
use hoop_seal::signing::GatewayId;
use hoop_seal::word::{Nonce, StoredReceipt, StoredState, who};
use hoop_units::{Backoff, UploadId};
use http::{HeaderMap, HeaderValue, Method, Response, header};
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;
use url::Host;

/// A gateway that restarts is back within a second or two.
const STARTING: Duration = Duration::from_secs(3);
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_millis(500) };

/// Who was met at a gateway's address.
#[derive(Clone, Debug)]
pub(crate) struct Met {
    /// What it is known by.
    pub(crate) place: Place,
    pub(crate) shown: Shown,
}

/// What it showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// That it has the key of this name.
    Proven(GatewayId),
    /// No key: one of an older version, one behind a router, or no gateway at all. It may say a name.
    Nothing(Option<String>),
    /// Something that no gateway shows.
    False(&'static str),
}

impl Shown {
    pub(crate) const fn key(&self) -> Option<GatewayId> {
        match self {
            Self::Proven(id) => Some(*id),
            Self::Nothing(_) | Self::False(_) => None,
        }
    }

    /// Whether it has shown the key of one of these.
    pub(crate) fn is_one_of(&self, known: &[GatewayId]) -> bool {
        self.key().is_some_and(|key| known.contains(&key))
    }

    /// The name, proven or not.
    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Self::Proven(id) => Some(id.to_string()),
            Self::Nothing(name) => name.clone(),
            Self::False(_) => None,
        }
    }
}

/// Asks whoever answers there who it is; again for a moment, if the connection breaks: it may be starting anew.
pub(crate) async fn meet(link: &mut Link, timeout: Duration) -> Met {
    let begun = Instant::now();
    let mut failures = 0;
    let met = loop {
        match ask(link, timeout).await {
            Ok(met) => break met,
            Err(LinkError::Connect(_) | LinkError::Broken { .. }) if begun.elapsed() < STARTING.min(timeout) => {
                tokio::time::sleep(BACKOFF.delay(failures, Rng.jitter())).await;
                failures = failures.saturating_add(1);
            }
            Err(_) => break Met { place: Place::itself(link.origin()), shown: Shown::Nothing(None) },
        }
    };
    if met.shown.key().is_none() {
        // Who knows what lives there: what is sent next gets a connection of its own.
        link.close();
    }
    met
}

/// What a gateway there is known by, without asking it.
pub(crate) async fn place(link: &mut Link) -> Result<Place, LinkError> {
    asked_at(link).await.map(|here| Place::of(&here, &interfaces()))
}

async fn ask(link: &mut Link, timeout: Duration) -> Result<Met, LinkError> {
    let here = asked_at(link).await?;
    let nonce = Nonce(Rng.bytes());
    let mut request = link.request(Method::GET, &format!("/test?nonce={}", nonce.to_text()), empty());
    let host = HeaderValue::from_str(here.authority()).expect("an authority is ASCII");
    request.headers_mut().insert(header::HOST, host);
    let answer = link.ask(request, timeout).await?;
    Ok(Met { place: Place::of(&here, &interfaces()), shown: read(&answer, &here, &nonce) })
}

/// Where it is asked: at the address that it was reached at, since a name may be anybody's; by its name where a certificate vouches for that.
async fn asked_at(link: &mut Link) -> Result<Origin, LinkError> {
    let origin = link.origin().clone();
    let address = link.open().await?.address();
    Ok(match (origin.is_https(), origin.host()) {
        // Without the scope that a link-local one has here: the gateway has another for it.
        (false, Host::Domain(_)) => origin_of(SocketAddr::new(address.ip().to_canonical(), address.port())),
        _ => origin,
    })
}

fn read(answer: &Response<Bytes>, here: &Origin, nonce: &Nonce) -> Shown {
    #[derive(Deserialize)]
    struct Test {
        gateway: Option<String>,
        proof: Option<String>,
    }
    let Ok(Test { gateway, proof }) = serde_json::from_slice(answer.body()) else { return Shown::Nothing(None) };
    let Some(proof) = proof else { return Shown::Nothing(gateway) };
    let key = URL_SAFE_NO_PAD.decode(proof).ok().and_then(|proof| who(&proof, here.authority(), nonce).ok());
    match key {
        Some(key) if gateway.is_none_or(|name| name == key.to_string()) => Shown::Proven(key),
        Some(_) => Shown::False("it calls itself by another gateway's name"),
        None => Shown::False("its proof of who it is does not fit"),
    }
}

/// What who was met is worth: `listed` by the service (empty: it takes any), `known` at this place.
///
/// # Errors
/// If it is not to be used, in words.
pub(crate) fn judge(shown: &Shown, listed: &[String], known: &[GatewayId]) -> Result<GatewayIdentity, String> {
    let is_listed = |name: &String| listed.is_empty() || listed.contains(name);
    match shown {
        Shown::False(why) => Err(format!("that is no gateway to rely on: {why}")),
        _ if shown.name().is_some_and(|name| !is_listed(&name)) => {
            Err("the service takes no uploads from this gateway".to_owned())
        }
        Shown::Proven(_) if !listed.is_empty() => Ok(GatewayIdentity::Listed),
        Shown::Proven(key) if known.contains(key) => Ok(GatewayIdentity::Known),
        Shown::Proven(key) if known.is_empty() => Ok(GatewayIdentity::New { name: key.to_string() }),
        Shown::Proven(key) => {
            let known = known.iter().map(ToString::to_string).collect();
            Ok(GatewayIdentity::Changed { name: key.to_string(), known })
        }
        Shown::Nothing(_) => Ok(GatewayIdentity::Unproven { known: known.iter().map(ToString::to_string).collect() }),
    }
}

/// By whom a gateway's word on what it has stored must be signed, for which service.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    pub(crate) gateway: GatewayId,
    pub(crate) service: Origin,
}

impl Witness {
    /// Checks what an answer says of an upload.
    ///
    /// # Errors
    /// If it is not signed so, in words.
    pub(crate) fn check(&self, headers: &HeaderMap, upload: UploadId, total: u64) -> Result<(), &'static str> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let receipt = text("hoop-receipt").ok_or("it does not sign what it says it has stored")?;
        let opened = URL_SAFE_NO_PAD.decode(receipt).ok();
        let opened = opened.and_then(|bytes| StoredReceipt::open(&bytes, self.service.as_str()).ok());
        let (by, receipt) = opened.ok_or("what it signed does not fit")?;
        let whole = text("hoop-missing") == Some("");
        let fits = by == self.gateway
            && (receipt.upload_id, receipt.total) == (upload, total)
            && text("hoop-missing") == Some(&receipt.missing)
            && (!whole || receipt.state != StoredState::Receiving);
        if fits { Ok(()) } else { Err("what it signed is something else than it says") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_seal::signing::GatewayKey;
    use hoop_units::UnixTime;

    fn key(n: u8) -> GatewayKey {
        GatewayKey::from_seed(&[n; 32])
    }

    #[test]
    fn who_was_met_is_worth_what_it_has_proven() {
        use GatewayIdentity::{Changed, Known, Listed, New, Unproven};
        let (one, two) = (key(1).id(), key(2).id());
        let [name, other] = [one, two].map(|id| id.to_string());
        let proven = Shown::Proven(one);
        let listed = [name.clone()];
        assert_eq!(judge(&proven, &listed, &[two]), Ok(Listed), "the service's list comes first");
        assert!(judge(&Shown::Proven(two), &listed, &[two]).is_err());
        assert_eq!(judge(&proven, &[], &[two, one]), Ok(Known));
        assert_eq!(judge(&proven, &[], &[]), Ok(New { name: name.clone() }));
        assert_eq!(judge(&proven, &[], &[two]), Ok(Changed { name: name.clone(), known: vec![other.clone()] }));
        let copied = Shown::Nothing(Some(name));
        assert_eq!(judge(&copied, &listed, &[]), Ok(Unproven { known: vec![] }), "a name alone proves nothing");
        assert!(judge(&Shown::Nothing(Some(other.clone())), &listed, &[]).is_err());
        assert_eq!(judge(&Shown::Nothing(None), &[], &[two]), Ok(Unproven { known: vec![other] }));
        assert!(judge(&Shown::False("why"), &[], &[]).is_err());
    }

    #[test]
    fn a_proof_for_another_place_nonce_or_name_is_false() {
        let (here, nonce) = ("http://192.0.2.1:4667".parse::<Origin>().unwrap(), Nonce([7; 24]));
        let answer = |authority: &str, nonce: &Nonce, name: &str| {
            let proof = URL_SAFE_NO_PAD.encode(key(1).answer(authority, nonce));
            Response::new(Bytes::from(format!(r#"{{"hoop":"gateway","gateway":"{name}","proof":"{proof}"}}"#)))
        };
        let name = key(1).id().to_string();
        assert_eq!(read(&answer("192.0.2.1:4667", &nonce, &name), &here, &nonce), Shown::Proven(key(1).id()));
        for wrong in [
            answer("192.0.2.2:4667", &nonce, &name),
            answer("192.0.2.1:4667", &Nonce([8; 24]), &name),
            answer("192.0.2.1:4667", &nonce, &key(2).id().to_string()),
        ] {
            assert!(matches!(read(&wrong, &here, &nonce), Shown::False(_)));
        }
        let plain = Response::new(Bytes::from_static(b"hello"));
        assert_eq!(read(&plain, &here, &nonce), Shown::Nothing(None));
    }

    #[test]
    fn what_is_stored_counts_only_as_the_gateway_that_was_met_has_signed_it() {
        let service: Origin = "https://photos.example".parse().unwrap();
        let witness = Witness { gateway: key(1).id(), service };
        let (upload_id, total) = (UploadId([5; 16]), 900);
        let receipt = |missing: &str, state| StoredReceipt {
            upload_id,
            state,
            time: UnixTime(1_795_000_000),
            total,
            missing: missing.to_owned(),
        };
        let check = |key: &GatewayKey, origin: &str, receipt: &StoredReceipt, missing: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("hoop-missing", HeaderValue::from_static(missing));
            let signed = URL_SAFE_NO_PAD.encode(key.sign_stored(origin, receipt));
            headers.insert("hoop-receipt", signed.parse().unwrap());
            witness.check(&headers, upload_id, total).is_ok()
        };
        let (stored, at) = (receipt("", StoredState::Stored), "https://photos.example");
        assert!(check(&key(1), at, &stored, ""));
        assert!(check(&key(1), at, &receipt("0-127", StoredState::Receiving), "0-127"));
        assert!(!check(&key(2), at, &stored, ""), "another gateway");
        assert!(!check(&key(1), "https://other.example", &stored, ""), "another service");
        assert!(!check(&key(1), at, &receipt("0-127", StoredState::Receiving), ""), "less than it says");
        assert!(!check(&key(1), at, &receipt("", StoredState::Receiving), ""), "not all of it");
        assert!(!check(&key(1), at, &StoredReceipt { total: 901, ..stored.clone() }, ""), "another length");
        assert!(!check(&key(1), at, &StoredReceipt { upload_id: UploadId([6; 16]), ..stored }, ""), "another upload");
        assert!(witness.check(&HeaderMap::new(), upload_id, total).is_err(), "nothing signed");
    }
}
