// What must come of each shared test vector, read as vectors/README.md explains them; for Node and browsers alike. Bodies are
// opened whole, in odd pieces, and byte by byte.

import {
  Refused, concat, fromBase64url, openAnswer, openBody, openPermit, openPresence, openProof, openReceipt, openStored, openTicket, openToken, requestDigest,
  toBase64url, toHex,
} from "./hoop.js";

const CHECKS = {
  body: checkBody, upload: checkUpload, ticket: checkTicket, token: checkToken, answer: checkAnswer,
  permit: checkPermit, receipt: checkReceipt, proof: checkProof, presence: checkPresence, stored: checkStored,
};

/** So few that bodies have several segments, and many that most segments have several records. */
const RECORDS_IN_SEGMENT = 3;

export const KINDS = Object.keys(CHECKS).sort();

/** Resolves if what the vector says comes true, and rejects with what came instead. `sealer` is that of web/src/seal.ts: what is
 *  canonical, it makes again. */
export async function check(vector, sealer) {
  await CHECKS[vector.kind](vector, sealer);
}

/** Both are JSON values. */
function same(came, wanted, what) {
  const [left, right] = [came, wanted].map((value) => JSON.stringify(value, sorted) ?? "nothing");
  if (left !== right) throw new Error(`${what}: ${left} came, ${right} was wanted`);
}

function sorted(_key, value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

const sha256 = async (bytes) => toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));

function* cut(bytes, length) {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
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

function sameOutcome(vector, came, message = "") {
  for (const member of ["class", "reason", "failed_record"]) same(came[member], vector[member], `${member} ${message}`);
}

async function open(vector, z, piece, lookup) {
  const released = [];
  const came = await outcome(async () => {
    for await (const plaintext of openBody(cut(z, piece), lookup)) released.push(plaintext);
  });
  const plaintext = concat(released);
  sameOutcome(vector, came, `in pieces of ${piece}`);
  same(await sha256(plaintext), vector.released_sha256, `released in pieces of ${piece}`);
  return plaintext;
}

async function checkBody(vector, sealer) {
  const { suite, class: expected } = vector;
  const key = fromBase64url(vector.key);
  const z = vector.made ? await make(vector.made, suite, key, sealer) : fromBase64url(vector.sealed);
  // A body of megabytes need not come byte by byte.
  for (const piece of z.length < 1 << 20 ? [1, 7, 4_099] : [4_099]) await open(vector, z, piece, () => ({ suite, key }));
  const plaintext = await open(vector, z, Infinity, () => ({ suite, key }));
  if (vector.canonical) {
    same(expected, "success", "what is canonical opens");
    const recordSize = new DataView(z.buffer).getUint32(16);
    const again = { suite, key, salt: z.slice(0, 16), recordSize, keyId: z.slice(21, 21 + z[20]) };
    same(await sha256(await seal(sealer, plaintext, again)), await sha256(z), "sealed again");
  }
}

async function make(rule, suite, key, sealer) {
  const plaintext = Uint8Array.from({ length: rule.plaintext_length }, (_, at) => at % 251);
  const [salt, keyId] = [rule.salt, rule.key_id].map(fromBase64url);
  const sealed = await seal(sealer, plaintext, { suite, key, salt, keyId, recordSize: rule.record_size });
  if (rule.flip !== undefined) sealed[rule.flip] ^= 1;
  const z = sealed.slice(0, rule.cut);
  same(await sha256(z), rule.sealed_sha256, "made by rule");
  return z;
}

/** Z, made segment by segment. */
async function seal(sealer, plaintext, { suite, key, salt, recordSize, keyId }) {
  const made = await sealer(new Blob([plaintext]), key, suite, salt, recordSize, keyId, RECORDS_IN_SEGMENT);
  const pieces = [fromBase64url(made.prelude)];
  for (let segment = 0; segment < made.layout.segments; segment++) {
    const { blob } = await made.seal(segment);
    pieces.push(new Uint8Array(await blob.arrayBuffer()));
  }
  return concat(pieces);
}

async function checkUpload(vector) {
  const { keyring, origin } = vector;
  for (const piece of [Infinity, 7]) {
    await open(vector, fromBase64url(vector.sealed), piece, (ticket) => openTicket(keyring, origin, ticket));
  }
}

async function checkTicket(vector) {
  const came = await outcome(() => openTicket(vector.keyring, vector.origin, fromBase64url(vector.ticket)));
  sameOutcome(vector, came);
  same(came.value && { ...came.value, key: toBase64url(came.value.key) }, vector.content, "content");
}

async function checkToken(vector) {
  const { keyring, origin, upload_id: id } = vector;
  const came = await outcome(() => openToken(keyring, origin, id, fromBase64url(vector.token)));
  sameOutcome(vector, came);
  same(came.value, vector.content, "content");
}

async function checkAnswer(vector) {
  const [key, answer] = [vector.key, vector.answer].map(fromBase64url);
  const came = await outcome(() => openAnswer(vector.upload_id, key, answer));
  sameOutcome(vector, came);
  same(came.value, vector.content, "content");
}

async function checkPermit({ signing_keys: keys, origin, permit, ...vector }) {
  const came = await outcome(() => openPermit(keys, origin, fromBase64url(permit)));
  sameOutcome(vector, came);
  same(came.value, vector.content, "content");
}

async function checkReceipt({ signing_keys: keys, origin, receipt, asked, ...vector }) {
  const came = await outcome(() => openReceipt(keys, origin, fromBase64url(receipt)));
  sameOutcome(vector, came);
  same(came.value, vector.content, "content");
  if (asked === undefined) return;
  const { key, method, path } = asked;
  same(await requestDigest(fromBase64url(key), vector.content.upload_id, method, path), vector.content.request, "request");
}

async function checkProof({ origin, upload_id: id, proof, ...vector }) {
  const came = await outcome(() => openProof(origin, id, fromBase64url(proof)));
  sameOutcome(vector, came);
  same(came.value, vector.content, "content");
}

async function checkPresence({ authority, nonce, presence, ...vector }) {
  const came = await outcome(() => openPresence(authority, fromBase64url(nonce), fromBase64url(presence)));
  sameOutcome(vector, came);
  same(came.value, vector.content, "content");
}

async function checkStored({ origin, stored, ...vector }) {
  const came = await outcome(() => openStored(origin, fromBase64url(stored)));
  sameOutcome(vector, came);
  same(came.value, vector.content, "content");
}
