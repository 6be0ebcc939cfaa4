//! `vectors.json`: frames with what they are made of, for whoever writes another end. `tests/interop/python/test_flow.py` makes them by the document alone. With `HOOP_WRITE=1` the
//! file is written.

use hoop_flow::frame::{Attached, Frame, Open, Refusal, Resume, Use, put_data_head};
use hoop_flow::{Binding, DeviceId, DeviceKey, FlowId, FlowName};
use hoop_units::UnixTime;
use std::fmt::Write as _;
use std::path::Path;

const fn counted<const N: usize>(from: u8) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        bytes[at] = from + at as u8;
        at += 1;
    }
    bytes
}

const KEY: DeviceKey = DeviceKey(counted(0x40));
const NAME: FlowName = FlowName { device: DeviceId(counted(0x10)), flow: FlowId(0x0102_0304_0506_0708) };
const NONCE: [u8; 32] = counted(0x60);
const BINDING: Binding = Binding(counted(0x80));
const NONCES: ([u8; 32], [u8; 32]) = (counted(0xa0), counted(0xc0));

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.put(&mut out);
    out
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let flow_key = KEY.flow_key(NAME, &NONCE);
    let open = Open {
        name: NAME,
        epoch: 1,
        since: 1,
        received: 0,
        credit: 65_536,
        deadline: Some(UnixTime(1_800_000_000)),
        size: Some(1_000_000),
        lane_use: Use::Normal,
        nonce: NONCE,
        service: "tcp:films.example:443",
        proof: [0; 32],
    };
    let bare = Open { deadline: None, size: None, lane_use: Use::Backup, service: "", ..open };
    let resume = Resume {
        name: NAME,
        epoch: 7,
        since: 5,
        received: 16_383,
        credit: 1_073_741_824,
        lane_use: Use::Normal,
        proof: [0; 32],
    };
    let attached = Attached { received: 63, credit: 64, proof: [0; 32] };
    let nonces = Binding::of_nonces(&NONCES.0, &NONCES.1);
    let mut data = Vec::new();
    put_data_head(&mut data, 70_000, 5);
    data.extend_from_slice(b"hello");
    vec![
        ("hello", bytes(&Frame::Hello { nonce: NONCES.0 })),
        ("challenge", bytes(&Frame::Challenge { nonce: NONCES.1 })),
        ("open", bytes(&Frame::Open(open.proven(&KEY, BINDING)))),
        ("open-bare", bytes(&Frame::Open(bare.proven(&KEY, nonces)))),
        ("resume", bytes(&Frame::Resume(resume.proven(&flow_key, BINDING)))),
        ("attached", bytes(&Frame::Attached(attached.proven(&flow_key, BINDING, 7)))),
        ("refused-unknown", bytes(&Frame::Refused(Refusal::Unknown))),
        ("refused-stale", bytes(&Frame::Refused(Refusal::Stale { highest: 300 }))),
        ("data", data),
        ("ack", bytes(&Frame::Ack { received: 70_005, credit: 1 << 40 })),
        ("fin", bytes(&Frame::Fin { end: 70_005 })),
        ("reset", bytes(&Frame::Reset { code: 4 })),
        ("end", bytes(&Frame::End { code: 0 })),
        ("deadline", bytes(&Frame::Deadline(Some(UnixTime(1_800_000_000))))),
        ("size-unknown", bytes(&Frame::Size(None))),
        ("park", bytes(&Frame::Park)),
        ("use", bytes(&Frame::Use(Use::Backup))),
    ]
}

#[test]
fn the_frames_of_the_vectors_are_made_as_ever() {
    let frames = frames();
    for (name, bytes) in &frames {
        assert!(*name == "data" || Frame::take(&mut &bytes[..]).unwrap().is_some(), "{name}");
    }
    let flow_key = KEY.flow_key(NAME, &NONCE);
    let mut pairs = vec![
        ("device_key", hex(&KEY.0)),
        ("host", hex(&NAME.device.0)),
        ("flow", hex(&NAME.flow.0.to_be_bytes())),
        ("nonce", hex(&NONCE)),
        ("flow_key", hex(&flow_key.0)),
        ("binding", hex(&BINDING.0)),
        ("hello_nonce", hex(&NONCES.0)),
        ("challenge_nonce", hex(&NONCES.1)),
        ("binding_of_nonces", hex(&Binding::of_nonces(&NONCES.0, &NONCES.1).0)),
    ];
    pairs.extend(frames.iter().map(|(name, bytes)| (*name, hex(bytes))));
    let lines: Vec<String> = pairs.iter().map(|(name, hex)| format!("  \"{name}\": \"{hex}\"")).collect();
    let text = format!("{{\n{}\n}}\n", lines.join(",\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors.json");
    if std::env::var_os("HOOP_WRITE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}
