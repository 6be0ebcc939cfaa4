//! What a service and a gateway sign for others to check: permits, receipts, proofs, and the names and keys beside them.

use crate::input::Input;
use hoop_seal::signing::{
    GatewayId, GatewayKey, GatewayProof, Outcome, Permit, PublicKey, Receipt, SignedError, signer,
};
use hoop_seal::{Keyring, KwsId, ServiceKey};
use hoop_units::{UnixTime, UploadId};

const ORIGIN: &str = "https://photos.example";
const OTHER: &str = "https://other.example";

fn ring() -> Keyring {
    Keyring::new(ServiceKey::new(KwsId([1; 4]), [2; 32]))
}

fn key(ring: &Keyring) -> impl Fn(KwsId) -> Option<PublicKey> + '_ {
    |wanted| ring.signing_keys().find(|(id, _)| *id == wanted).map(|(_, key)| key)
}

pub fn signed(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() {
        0 => foreign(input),
        1 => names(input),
        2 => permit(input),
        3 => receipt(input),
        _ => proof(input),
    }
}

/// Bytes that nobody signed: nothing opens, and each refusal says why.
fn foreign(mut input: Input<'_>) {
    let (ring, id) = (ring(), UploadId(input.array()));
    let bytes = input.rest();
    let why = |error: SignedError| assert!(!error.to_string().is_empty());
    Permit::open(bytes, ORIGIN, key(&ring)).map_or_else(why, |permit| {
        assert_eq!(ring.sign_permit(ORIGIN, &permit), bytes, "somebody signs like us");
    });
    Receipt::open(bytes, ORIGIN, key(&ring)).map_or_else(why, |receipt| {
        assert_eq!(ring.sign_receipt(ORIGIN, &receipt), bytes, "somebody signs like us");
    });
    GatewayProof::open(bytes, ORIGIN, id).map_or_else(why, |_| {
        assert!(GatewayProof::open(bytes, OTHER, id).is_err(), "a proof is for one service");
    });
    let _ = signer(bytes);
}

fn names(input: Input<'_>) {
    let Some(text) = input.text() else { return };
    if let Ok(gateway) = text.parse::<GatewayId>() {
        assert!(gateway.to_string() == text && gateway.as_bytes() != &[0; 16]);
    }
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string(), text);
    }
}

/// Flips a bit that the input chooses.
fn flip(bytes: &mut [u8], bit: u64) {
    let bit = bit as usize % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}

fn permit(mut input: Input<'_>) {
    let (ring, bit) = (ring(), input.long());
    let permit = Permit {
        upload_id: UploadId(input.array()),
        max_bytes: input.long(),
        expires: UnixTime(input.word()),
        gateway: input.coin().then(|| GatewayId::of(&PublicKey(input.array()))),
    };
    let mut bytes = ring.sign_permit(ORIGIN, &permit);
    assert_eq!(Permit::open(&bytes, ORIGIN, key(&ring)), Ok(permit));
    assert!(Permit::open(&bytes, OTHER, key(&ring)).is_err());
    assert!(Receipt::open(&bytes, ORIGIN, key(&ring)).is_err(), "a permit is no receipt");
    flip(&mut bytes, bit);
    assert!(Permit::open(&bytes, ORIGIN, key(&ring)).is_err(), "an altered permit opens");
    let anywhere = GatewayId::of(&PublicKey([7; 32]));
    let covers = permit.covers(permit.upload_id, permit.max_bytes, permit.gateway.unwrap_or(anywhere));
    assert_eq!(covers, Ok(()));
}

fn receipt(mut input: Input<'_>) {
    let (ring, bit) = (ring(), input.long());
    let receipt = Receipt {
        upload_id: UploadId(input.array()),
        outcome: if input.coin() { Outcome::Accepted } else { Outcome::Rejected },
        time: UnixTime(input.word()),
        total: input.long(),
        digest: input.array(),
        request: input.coin().then(|| input.array()),
    };
    let mut bytes = ring.sign_receipt(ORIGIN, &receipt);
    assert_eq!(Receipt::open(&bytes, ORIGIN, key(&ring)), Ok(receipt));
    assert!(Receipt::open(&bytes, OTHER, key(&ring)).is_err());
    flip(&mut bytes, bit);
    assert!(Receipt::open(&bytes, ORIGIN, key(&ring)).is_err(), "an altered receipt opens");
}

fn proof(mut input: Input<'_>) {
    let (gateway, bit) = (GatewayKey::from_seed(&input.array()), input.long());
    let (id, now) = (UploadId(input.array()), UnixTime(input.word()));
    let mut bytes = gateway.prove(ORIGIN, id, now);
    let opened = GatewayProof::open(&bytes, ORIGIN, id).expect("our own proof");
    assert!(opened.gateway == gateway.id() && opened.time == now && !opened.is_stale(now));
    assert!(GatewayProof::open(&bytes, OTHER, id).is_err());
    flip(&mut bytes, bit);
    assert!(GatewayProof::open(&bytes, ORIGIN, id).is_err(), "an altered proof opens");
}
