"""Frames and proofs of flows, made by docs/flow.md alone (sections 2 to 4), equal those of crates/flow/vectors.json."""

import hashlib
import hmac
import json
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VECTORS = {name: bytes.fromhex(value) for name, value in json.loads((ROOT / "crates/flow/vectors.json").read_text()).items()}


def varint(number):
    """RFC 9000, section 16."""
    for prefix, length in enumerate((1, 2, 4, 8)):
        if number < 1 << (8 * length - 2):
            return (number | prefix << (8 * length - 2)).to_bytes(length, "big")
    raise ValueError(number)


def frame(kind, *payload):
    payload = b"".join(payload)
    return varint(kind) + varint(len(payload)) + payload


def sign(key, word, *parts):
    return hmac.new(key, word + b"".join(parts), hashlib.sha256).digest()


HOST, FLOW, NONCE, BINDING = (VECTORS[name] for name in ("host", "flow", "nonce", "binding"))
DEVICE_KEY, FLOW_KEY = VECTORS["device_key"], VECTORS["flow_key"]


def opened(binding, numbers, service):
    payload = b"\x01" + HOST + FLOW + b"".join(map(varint, numbers)) + NONCE + service
    return frame(0x02, payload, sign(DEVICE_KEY, b"hoop-flow-open-v1", binding, payload))


class Flow(unittest.TestCase):
    def test_keys_and_bindings_are_those_of_the_document(self):
        self.assertEqual(sign(DEVICE_KEY, b"hoop-flow-key-v1", HOST, FLOW, NONCE), FLOW_KEY)
        nonces = VECTORS["hello_nonce"] + VECTORS["challenge_nonce"]
        self.assertEqual(hashlib.sha256(b"hoop-flow-challenge-v1" + nonces).digest(), VECTORS["binding_of_nonces"])

    def test_frames_with_proofs_are_those_of_the_document(self):
        # epoch, since, received, credit, deadline, size + 1, use
        numbers = (1, 1, 0, 65_536, 1_800_000_000, 1_000_001, 0)
        self.assertEqual(opened(BINDING, numbers, b"tcp:films.example:443"), VECTORS["open"])
        bare = opened(VECTORS["binding_of_nonces"], (1, 1, 0, 65_536, 0, 0, 1), b"")
        self.assertEqual(bare, VECTORS["open-bare"])
        payload = b"\x01" + HOST + FLOW + b"".join(map(varint, (7, 5, 16_383, 1_073_741_824, 0)))
        self.assertEqual(frame(0x03, payload, sign(FLOW_KEY, b"hoop-flow-resume-v1", BINDING, payload)), VECTORS["resume"])
        payload = varint(63) + varint(64)
        proof = sign(FLOW_KEY, b"hoop-flow-server-v1", BINDING, (7).to_bytes(8, "big"), payload)
        self.assertEqual(frame(0x04, payload, proof), VECTORS["attached"])

    def test_the_other_frames_are_those_of_the_document(self):
        for name, made in {
            "hello": frame(0x00, VECTORS["hello_nonce"]),
            "challenge": frame(0x01, VECTORS["challenge_nonce"]),
            "refused-unknown": frame(0x05, varint(1)),
            "refused-stale": frame(0x05, varint(2), varint(300)),
            "data": frame(0x06, varint(70_000), b"hello"),
            "ack": frame(0x07, varint(70_005), varint(1 << 40)),
            "fin": frame(0x08, varint(70_005)),
            "reset": frame(0x09, varint(4)),
            "end": frame(0x0A, varint(0)),
            "deadline": frame(0x0B, varint(1_800_000_000)),
            "size-unknown": frame(0x0C, varint(0)),
            "park": frame(0x0D),
            "use": frame(0x0E, varint(1)),
        }.items():
            with self.subTest(name):
                self.assertEqual(made.hex(), VECTORS[name].hex())


if __name__ == "__main__":
    unittest.main()
