// The shared test vectors, read as vectors/README.md explains them: one test for each file in the folder. Bodies are
// opened whole, in odd pieces, and octet by octet.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";
import {
  Refused, concat, fromBase64url, openAnswer, openBody, openTicket, openToken, sealBody, toBase64url,
} from "./hoop.js";

const FOLDER = new URL("../../../vectors/", import.meta.url);
const CHECKS = { body: checkBody, upload: checkUpload, ticket: checkTicket, token: checkToken, answer: checkAnswer };

const names = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));

test("the folder holds vectors of every kind", () => {
  const kinds = new Set(names.map((name) => read(name).kind));
  assert.deepEqual([...kinds].sort(), Object.keys(CHECKS).sort());
});

for (const name of names) {
  const vector = read(name);
  test(`${name}: ${vector.about}`, () => CHECKS[vector.kind](vector));
}

function read(name) {
  return JSON.parse(readFileSync(new URL(name, FOLDER), "utf8"));
}

const sha256 = (octets) => createHash("sha256").update(octets).digest("hex");

function* cut(octets, length) {
  for (let at = 0; at < octets.length; at += length) yield octets.subarray(at, at + length);
}

/** What an opening came to, in the words of a vector. */
async function outcome(opening) {
  try {
    return { class: "success", reason: undefined, failed_record: undefined, value: await opening() };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return { class: error.class, reason: error.reason, failed_record: error.record, value: undefined };
  }
}

function assertOutcome(vector, came, message) {
  for (const member of ["class", "reason", "failed_record"]) assert.equal(came[member], vector[member], message ?? member);
}

async function open(vector, z, piece, lookup) {
  const released = [];
  const came = await outcome(async () => {
    for await (const plaintext of openBody(cut(z, piece), lookup)) released.push(plaintext);
  });
  const plaintext = concat(released);
  assertOutcome(vector, came, `in pieces of ${piece}`);
  assert.equal(sha256(plaintext), vector.released_sha256, `released in pieces of ${piece}`);
  return plaintext;
}

async function checkBody(vector) {
  const { suite, class: expected } = vector;
  const key = fromBase64url(vector.key);
  const z = vector.made ? await make(vector.made, suite, key) : fromBase64url(vector.sealed);
  // A body of megabytes need not come octet by octet.
  for (const piece of z.length < 1 << 20 ? [1, 7, 4_099] : [4_099]) await open(vector, z, piece, () => ({ suite, key }));
  const plaintext = await open(vector, z, Infinity, () => ({ suite, key }));
  assert.ok(!vector.canonical || expected === "success");
  if (vector.canonical) {
    const recordSize = new DataView(z.buffer).getUint32(16);
    const again = { suite, key, salt: z.slice(0, 16), recordSize, keyId: z.slice(21, 21 + z[20]) };
    assert.equal(sha256(await sealBody(plaintext, again)), sha256(z), "sealed again");
  }
}

async function make(rule, suite, key) {
  const plaintext = Uint8Array.from({ length: rule.plaintext_length }, (_, at) => at % 251);
  const [salt, keyId] = [rule.salt, rule.key_id].map(fromBase64url);
  const sealed = await sealBody(plaintext, { suite, key, salt, keyId, recordSize: rule.record_size });
  if (rule.flip !== undefined) sealed[rule.flip] ^= 1;
  const z = sealed.slice(0, rule.cut);
  assert.equal(sha256(z), rule.sealed_sha256, "made by rule");
  return z;
}

async function checkUpload(vector) {
  const { keyring, origin } = vector;
  for (const piece of [Infinity, 7]) {
    await open(vector, fromBase64url(vector.sealed), piece, (ticket) => openTicket(keyring, origin, ticket));
  }
}

async function checkTicket(vector) {
  const came = await outcome(() => openTicket(vector.keyring, vector.origin, fromBase64url(vector.ticket)));
  assertOutcome(vector, came);
  assert.deepEqual(came.value && { ...came.value, key: toBase64url(came.value.key) }, vector.content);
}

async function checkToken(vector) {
  const { keyring, origin, upload_id: id } = vector;
  const came = await outcome(() => openToken(keyring, origin, id, fromBase64url(vector.token)));
  assertOutcome(vector, came);
  assert.equal(came.value, vector.content);
}

async function checkAnswer(vector) {
  const [key, answer] = [vector.key, vector.answer].map(fromBase64url);
  const came = await outcome(() => openAnswer(vector.upload_id, key, answer));
  assertOutcome(vector, came);
  assert.equal(came.value, vector.content);
}
