// Sealed bodies of Hoop's opened by a library that nobody here wrote, npm's @apeleghq/rfc8188, and its by Hoop: in both
// suites, at lengths around the borders of a record.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import test from "node:test";
import { decrypt, encodings, encrypt } from "@apeleghq/rfc8188";
import { concat } from "./hoop.js";
import { open, seal } from "./program.js";

const SUITES = { aes256gcm: 32, aes128gcm: 16 };
const RECORD_SIZE = 65_536;
const LENGTHS = [0, 1, 65_518, 65_519, 65_520, 2 * 65_519, 2 * 65_519 + 1, 7_000_000];

const exact = (bytes) => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
const stream = (bytes) => ReadableStream.from([bytes]);

async function collect(readable) {
  const pieces = [];
  for await (const piece of readable) pieces.push(new Uint8Array(piece));
  return concat(pieces);
}

function theirOpen(sealed, { suite, key, keyId }) {
  const lookup = (id) => {
    assert.deepEqual(new Uint8Array(id), keyId);
    return exact(key);
  };
  return collect(decrypt(encodings[suite], stream(sealed), lookup, RECORD_SIZE));
}

async function theirSeal(plaintext, { suite, key, keyId, recordSize }) {
  return collect(await encrypt(encodings[suite], stream(plaintext), recordSize, exact(keyId), exact(key)));
}

function parameters(suite, recordSize = RECORD_SIZE) {
  // As long as a ticket.
  return { suite, key: new Uint8Array(randomBytes(SUITES[suite])), keyId: new Uint8Array(randomBytes(107)), recordSize };
}

for (const suite of Object.keys(SUITES)) {
  for (const length of LENGTHS) {
    const plaintext = new Uint8Array(randomBytes(length));

    test(`${length} bytes that Hoop sealed with ${suite} are opened by @apeleghq/rfc8188`, async () => {
      const body = parameters(suite);
      assert.ok(Buffer.from(plaintext).equals(await theirOpen(await seal(plaintext, body), body)));
    });

    test(`${length} bytes that @apeleghq/rfc8188 sealed with ${suite} are opened by Hoop`, async () => {
      const body = parameters(suite);
      assert.ok(Buffer.from(plaintext).equals(await open(await theirSeal(plaintext, body), body)));
    });
  }

  test(`small records of ${suite} are understood both ways`, async () => {
    const plaintext = new Uint8Array(randomBytes(1_000));
    for (const recordSize of [18, 19, 100]) {
      const body = parameters(suite, recordSize);
      assert.deepEqual(await theirOpen(await seal(plaintext, body), body), plaintext);
      assert.deepEqual(await open(await theirSeal(plaintext, body), body), plaintext);
    }
  });

  test(`both refuse the other's ${suite} where a byte was altered or the end is missing`, async () => {
    const plaintext = new Uint8Array(randomBytes(200_000));
    const body = parameters(suite);
    for (const sealed of [await seal(plaintext, body), await theirSeal(plaintext, body)]) {
      const border = 21 + 107 + 2 * RECORD_SIZE;
      const altered = sealed.slice();
      altered[border + 5] ^= 1;
      for (const wrong of [altered, sealed.slice(0, border), sealed.slice(0, border + 100)]) {
        await assert.rejects(theirOpen(wrong, body));
        await assert.rejects(open(wrong, body), /exit status/);
      }
    }
  });
}
