//! Signs permits for gateways to store uploads ([`Permits::of_ticket`]), and, where gateways are listed, checks who
//! sends one ([`Permits::check_sender`]) (`docs/protocol.md` §9).
//!
//! Bounds: [`GATEWAYS_MAX`] names.

use crate::policy::{Policy, admit};
use hoop_http::{Code, Problem};
use hoop_seal::signing::{self, GatewayId, GatewayProof, Permit};
use hoop_units::{UnixTime, UploadId};
use http::HeaderMap;
use serde_json::{Value, json};
use std::time::Duration;

/// Gateways that a service may list: each answer with tickets names them, in 9 KiB at most.
pub const GATEWAYS_MAX: usize = 256;

/// When an unlisted gateway may ask again. Its operator has to talk to the service's first.
const FORBIDDEN_WAIT: Duration = Duration::from_secs(3600);

/// Which gateways may hold and bring uploads for this service. The default: any, and permits are offered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Permits {
    /// Whether gateways are asked to take nothing for this service without its permit.
    pub required: bool,
    /// The only gateways that may bring uploads; empty: any. At most [`GATEWAYS_MAX`].
    pub gateways: Vec<GatewayId>,
}

impl Permits {
    /// What `/.well-known/hoop` says.
    pub const fn name(&self) -> &'static str {
        if self.required { "required" } else { "offered" }
    }

    /// What a ticket's answer says of the gateways: their names, or null for any.
    pub fn listed(&self) -> Value {
        match self.gateways.is_empty() {
            true => Value::Null,
            false => self.gateways.iter().map(ToString::to_string).collect(),
        }
    }

    /// The permit that goes with a ticket. `named` is the gateway that the device means to use. Where gateways are
    /// listed, the permit is for one of them. If several are listed and none is named, there is none.
    pub fn of_ticket(
        &self,
        policy: &Policy,
        upload_id: UploadId,
        max_bytes: u64,
        expires: UnixTime,
        named: Option<GatewayId>,
    ) -> Option<String> {
        let gateway = match (&self.gateways[..], named) {
            ([], named) => named,
            ([only], None) => Some(*only),
            (_, None) => return None,
            (listed, Some(named)) => Some(*listed.iter().find(|gateway| **gateway == named)?),
        };
        let permit = Permit { upload_id, max_bytes, expires, gateway };
        Some(signing::to_text(&policy.keys.sign_permit(&policy.origin, &permit)))
    }

    /// Refuses a message from a sender that may not send it. A listed gateway proves who it is, and a device has its
    /// token.
    ///
    /// # Errors
    /// `gateway-forbidden`.
    pub fn check_sender(
        &self,
        policy: &Policy,
        headers: &HeaderMap,
        id: UploadId,
        now: UnixTime,
    ) -> Result<(), Problem> {
        if self.gateways.is_empty() {
            return Ok(());
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).and_then(signing::from_text);
        if text("hoop-token").is_some_and(|token| admit::open_token(policy, id, &token).is_ok()) {
            return Ok(());
        }
        let forbidden = |detail: String| Err(Problem::new(Code::GatewayForbidden, detail).field("Hoop-Gateway"));
        let Some(proof) = text("hoop-gateway") else {
            return forbidden(
                "send `Hoop-Gateway` as a gateway that it lists, or `Hoop-Token` as the device".to_owned(),
            );
        };
        let proof = match GatewayProof::open(&proof, &policy.origin, id) {
            Ok(proof) => proof,
            Err(error) => return forbidden(error.to_string()),
        };
        if proof.is_stale(now) {
            return forbidden(format!("it was made at {}, and it is {now}: is a clock wrong?", proof.time));
        }
        match self.gateways.contains(&proof.gateway) {
            true => Ok(()),
            false => forbidden(format!("{} is not listed", proof.gateway))
                .map_err(|problem| problem.retry_after(FORBIDDEN_WAIT)),
        }
    }
}

/// The public halves of the service's keys, for `/.well-known/hoop`.
pub fn signing_keys(policy: &Policy) -> Value {
    let keys = policy.keys.signing_keys().map(|(id, key)| (id.to_string(), json!(key.to_string())));
    Value::Object(keys.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rules_file::Routes;
    use hoop_seal::signing::GatewayKey;
    use hoop_seal::{Keyring, KwsId, ServiceKey};

    const ID: UploadId = UploadId([7; 16]);

    fn policy() -> Policy {
        let keys = Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]));
        Policy { keys, origin: "https://photos.example".into(), max_bytes: 1 << 20, routes: Routes::default() }
    }

    fn gateway(n: u8) -> GatewayId {
        GatewayKey::from_seed(&[n; 32]).id()
    }

    /// Whom the permit is for; the outer none: there is none.
    fn permitted(listed: &[u8], named: Option<u8>) -> Option<Option<GatewayId>> {
        let permits = Permits { gateways: listed.iter().map(|n| gateway(*n)).collect(), ..Permits::default() };
        let text = permits.of_ticket(&policy(), ID, 9, UnixTime(5), named.map(gateway))?;
        let key = policy().keys.primary().public();
        let permit = Permit::open(&signing::from_text(&text).unwrap(), &policy().origin, |_| Some(key)).unwrap();
        assert_eq!((permit.upload_id, permit.max_bytes, permit.expires), (ID, 9, UnixTime(5)));
        Some(permit.gateway)
    }

    #[test]
    fn a_permit_names_only_a_listed_gateway() {
        assert_eq!(permitted(&[], None), Some(None));
        assert_eq!(permitted(&[], Some(1)), Some(Some(gateway(1))));
        assert_eq!(permitted(&[1], None), Some(Some(gateway(1))), "there is no other");
        assert_eq!(permitted(&[1, 2], Some(2)), Some(Some(gateway(2))));
        assert_eq!(permitted(&[1, 2], Some(3)), None);
        assert_eq!(permitted(&[1, 2], None), None, "which one is not known");
    }

    #[test]
    fn only_a_listed_gateway_or_the_device_itself_brings_an_upload() {
        let (policy, now) = (policy(), UnixTime(10_000));
        let permits = Permits { gateways: vec![gateway(1)], ..Permits::default() };
        let sent = |field: &'static str, bytes: &[u8]| {
            let headers = [(field.parse::<http::HeaderName>().unwrap(), signing::to_text(bytes).parse().unwrap())];
            permits.check_sender(&policy, &headers.into_iter().collect(), ID, now).map_err(|problem| problem.code)
        };
        let forbidden = Err(Code::GatewayForbidden);
        let proof = |n: u8, origin: &str, id, time| GatewayKey::from_seed(&[n; 32]).prove(origin, id, UnixTime(time));
        let origin = policy.origin.as_str();
        assert_eq!(sent("hoop-gateway", &proof(1, origin, ID, 10_000)), Ok(()));
        assert_eq!(sent("hoop-gateway", &proof(2, origin, ID, 10_000)), forbidden, "not listed");
        assert_eq!(sent("hoop-gateway", &proof(1, origin, ID, 9_699)), forbidden, "stale");
        assert_eq!(sent("hoop-gateway", &proof(1, origin, UploadId([8; 16]), 10_000)), forbidden, "another upload's");
        assert_eq!(sent("hoop-gateway", &proof(1, "https://other.example", ID, 10_000)), forbidden);
        assert_eq!(sent("x-other", b""), forbidden);
        let token = |id| policy.keys.seal_token(origin, id, b"{\"expires\":20000}", [3; 12]);
        assert_eq!(sent("hoop-token", &token(ID)), Ok(()));
        assert_eq!(sent("hoop-token", &token(UploadId([8; 16]))), forbidden);
        let any = Permits::default();
        assert!(any.check_sender(&policy, &HeaderMap::new(), ID, now).is_ok());
    }
}
