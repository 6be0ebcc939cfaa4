"""Sealed bodies of Hoop's opened by a library that nobody here wrote, Python's http-ece, and its by Hoop: in the suite
of RFC 8188, at lengths around the borders of a record."""

import base64
import os
import secrets
import subprocess
import unittest
from pathlib import Path

import http_ece

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/hoop"
RECORD_SIZE = 65_536
LENGTHS = [1, 65_518, 65_519, 65_520, 2 * 65_519, 2 * 65_519 + 1, 3_000_000]

# http-ece reads a key id as UTF-8, so it cannot be a ticket.
KEY_ID = "a key"


def run(verb, key, bytes, *options):
    text = base64.urlsafe_b64encode(key).rstrip(b"=").decode()
    command = [PROGRAM, verb, "--raw", "--suite", "aes128gcm", f"--key={text}", *options]
    ran = subprocess.run(command, input=bytes, capture_output=True)
    if ran.returncode:
        raise ValueError(f"exit status {ran.returncode}: {ran.stderr.decode()}")
    return ran.stdout


def seal(key, plaintext, record_size=RECORD_SIZE):
    return run("seal", key, plaintext, "--key-id", KEY_ID.encode().hex(), "--record-size", str(record_size))


def open_sealed(key, sealed):
    return run("open", key, sealed)


def their_seal(key, plaintext, record_size=RECORD_SIZE):
    return http_ece.encrypt(plaintext, key=key, keyid=KEY_ID, rs=record_size)


def their_open(key, sealed):
    return http_ece.decrypt(sealed, key=key)


class HttpEce(unittest.TestCase):
    def setUp(self):
        self.key = secrets.token_bytes(16)

    def test_what_hoop_sealed_is_opened_by_http_ece(self):
        for length in [0, *LENGTHS]:
            with self.subTest(length=length):
                plaintext = secrets.token_bytes(length)
                self.assertTrue(their_open(self.key, seal(self.key, plaintext)) == plaintext)

    def test_what_http_ece_sealed_is_opened_by_hoop(self):
        for length in LENGTHS:
            with self.subTest(length=length):
                plaintext = secrets.token_bytes(length)
                self.assertTrue(open_sealed(self.key, their_seal(self.key, plaintext)) == plaintext)

    def test_the_empty_body_of_http_ece_lacks_its_one_record_and_is_refused(self):
        sealed = their_seal(self.key, b"")
        self.assertEqual(len(sealed), 21 + len(KEY_ID))
        with self.assertRaisesRegex(ValueError, "ends before its last record"):
            open_sealed(self.key, sealed)

    def test_small_records_are_understood_both_ways(self):
        plaintext = secrets.token_bytes(1_000)
        for record_size in (18, 19, 100):
            with self.subTest(record_size=record_size):
                self.assertEqual(their_open(self.key, seal(self.key, plaintext, record_size)), plaintext)
                self.assertEqual(open_sealed(self.key, their_seal(self.key, plaintext, record_size)), plaintext)

    def test_both_refuse_the_others_body_where_a_byte_was_altered_or_the_end_is_missing(self):
        plaintext = secrets.token_bytes(200_000)
        border = 21 + len(KEY_ID) + 2 * RECORD_SIZE
        for sealed in (seal(self.key, plaintext), their_seal(self.key, plaintext)):
            altered = bytearray(sealed)
            altered[border + 5] ^= 1
            for wrong in (bytes(altered), sealed[:border], sealed[: border + 100]):
                with self.assertRaises(http_ece.ECEException):
                    their_open(self.key, wrong)
                with self.assertRaises(ValueError):
                    open_sealed(self.key, wrong)


if __name__ == "__main__":
    unittest.main()
