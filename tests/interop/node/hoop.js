// The formats of docs/protocol.md, sections 1 to 3, 8 and 9, with WebCrypto and nothing else: sealed bodies, tickets, tokens,
// answers, and what is signed. Written from the document, so that Rust and JavaScript check each other; for Node and browsers alike. It only opens: what
// seals in JavaScript is the library for pages. It keeps one record in memory, and releases a record's plaintext once the record is
// authentic.

const { subtle } = globalThis.crypto;
const utf8 = new TextEncoder();

const RECORD_OVERHEAD = 17;
const TICKET_LENGTH = 107;
const TOKEN_HEAD_LENGTH = 17;
const SUITES = { aes256gcm: { byte: 1, keyLength: 32 }, aes128gcm: { byte: 2, keyLength: 16 } };

/** What does not open. `class` and `reason` are those of vectors/README.md; `record` is the one that failed. */
export class Refused extends Error {
  constructor(failure, { reason, record } = {}) {
    super([failure, reason, record].filter((part) => part !== undefined).join(" "));
    Object.assign(this, { class: failure, reason, record });
  }
}

export const fromBase64url = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (byte) => byte.charCodeAt(0));
export const toBase64url = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
export const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
export const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export function concat(pieces) {
  if (pieces.length === 1) return pieces[0];
  const all = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

async function hkdf(salt, ikm, info, length) {
  const key = await subtle.importKey("raw", ikm, "HKDF", false, ["deriveBits"]);
  const parameters = { name: "HKDF", hash: "SHA-256", salt, info: utf8.encode(info) };
  return new Uint8Array(await subtle.deriveBits(parameters, key, length * 8));
}

const aesKey = (key) => subtle.importKey("raw", key, "AES-GCM", false, ["decrypt"]);

/** The plaintext, or `null` if it was altered or the key is another. */
async function aesOpen(key, iv, sealed, additionalData = new Uint8Array()) {
  try {
    return new Uint8Array(await subtle.decrypt({ name: "AES-GCM", iv, additionalData }, key, sealed));
  } catch (error) {
    if (error.name === "OperationError") return null;
    throw error;
  }
}

/** The keys of one body (RFC 8188 §2.2, §2.3): `nonce(i)` is that of record i. */
async function contentKeys(suite, key, salt) {
  const { keyLength } = SUITES[suite];
  const ikm = key.subarray(0, keyLength);
  const base = await hkdf(salt, ikm, "Content-Encoding: nonce\0", 12);
  const nonce = (record) => {
    const view = new DataView(base.slice().buffer);
    view.setBigUint64(4, view.getBigUint64(4) ^ BigInt(record));
    return new Uint8Array(view.buffer);
  };
  return { nonce, key: await aesKey(await hkdf(salt, ikm, `Content-Encoding: ${suite}\0`, keyLength)) };
}

/** Opens Z, which comes in pieces of any size, and yields the plaintext of each record.
 *  `lookup(keyId)` gives `{ suite, key }`; in Hoop, `keyId` is the ticket. */
export async function* openBody(source, lookup) {
  const { fill, take } = buffered(source);
  if (!(await fill(21))) throw new Refused("header-failure");
  const fixed = take(21);
  const recordSize = new DataView(fixed.buffer, fixed.byteOffset).getUint32(16);
  if (recordSize <= RECORD_OVERHEAD || !(await fill(fixed[20]))) throw new Refused("header-failure");
  const { suite, key } = await lookup(take(fixed[20]));
  const keys = await contentKeys(suite, key, fixed.slice(0, 16));
  for (let record = 0, last = false; !last; record++) {
    // Only what comes after a record tells that it is not the last.
    last = !(await fill(recordSize + 1));
    const sealed = take(recordSize);
    if (sealed.length === 0) throw new Refused("truncated");
    const inner = sealed.length < RECORD_OVERHEAD ? null : await aesOpen(keys.key, keys.nonce(record), sealed);
    const end = inner?.findLastIndex((byte) => byte !== 0) ?? -1;
    if (end < 0 || inner[end] > 2) throw new Refused("record-failure", { record });
    if (last && inner[end] === 1) throw new Refused("truncated");
    if (!last && inner[end] === 2) throw new Refused("record-failure", { record });
    yield inner.subarray(0, end);
  }
}

/** `fill(n)` waits until n bytes are there, and says whether they are; `take(n)` takes them, or what there is. */
function buffered(source) {
  const iterator = (source[Symbol.asyncIterator] ?? source[Symbol.iterator]).call(source);
  let pieces = [];
  let held = 0;
  async function fill(length) {
    while (held < length) {
      const { done, value } = await iterator.next();
      if (done) return false;
      pieces.push(value);
      held += value.length;
    }
    return true;
  }
  function take(length) {
    const all = concat(pieces);
    pieces = [all.subarray(length)];
    held = pieces[0].length;
    return all.subarray(0, length);
  }
  return { fill, take };
}

/** The service's key that `id` names, derived for `purpose`; from the lines of a key file. */
async function serviceKey(keyring, id, purpose, failure) {
  const line = keyring.map((text) => text.split(" ")).find(([, name]) => name === toHex(id));
  if (!line) throw new Refused(failure, { reason: "unknown-key" });
  return aesKey(await hkdf(utf8.encode("hoop-kws-v1"), fromBase64url(line[2]), purpose, 32));
}

/** Opens a ticket as the service of `origin` does. Whether its time has come is not asked. */
export async function openTicket(keyring, origin, ticket) {
  const refuse = (reason) => new Refused("ticket-failure", { reason });
  if (ticket.length !== TICKET_LENGTH) throw refuse("length");
  if (ticket[0] !== 1) throw refuse("version");
  const label = ticket.slice(0, 25);
  const key = await serviceKey(keyring, label.subarray(1, 5), "tickets", "ticket-failure");
  const data = concat([utf8.encode("hoop-ticket-v1"), label, utf8.encode(origin)]);
  const body = await aesOpen(key, ticket.subarray(25, 37), ticket.subarray(37), data);
  if (body === null) throw refuse("unauthentic");
  const [suite] = Object.entries(SUITES).find(([, { byte }]) => byte === body[52]) ?? [];
  if (suite === undefined || body[53] !== 0) throw refuse("unsupported");
  const view = new DataView(body.buffer);
  return {
    kws_id: toHex(label.subarray(1, 5)),
    upload_id: toHex(label.subarray(5, 21)),
    expires: new DataView(label.buffer).getUint32(21),
    key: body.slice(0, 32),
    not_before: view.getUint32(32),
    max_bytes: Number(view.getBigUint64(36)),
    route: toHex(body.subarray(44, 52)),
    suite,
  };
}

/** Opens a token as the service of `origin` does: the text of its JSON. */
export async function openToken(keyring, origin, uploadId, token) {
  const refuse = (reason) => new Refused("token-failure", { reason });
  if (token.length > 0 && token[0] !== 1) throw refuse("version");
  if (token.length < TOKEN_HEAD_LENGTH) throw refuse("length");
  const key = await serviceKey(keyring, token.subarray(1, 5), "tokens", "token-failure");
  const data = concat([utf8.encode("hoop-token-v1"), fromHex(uploadId), utf8.encode(origin)]);
  const content = await aesOpen(key, token.subarray(5, 17), token.subarray(17), data);
  if (content === null) throw refuse("unauthentic");
  return new TextDecoder().decode(content);
}

/** Opens an application's answer as the device does: the text of its HTTP response. */
export async function openAnswer(uploadId, key, answer) {
  const id = fromHex(uploadId);
  const answerKey = await aesKey(await hkdf(id, key, "hoop-answer-v1", 32));
  const content = answer.length < 12 ? null : await aesOpen(answerKey, answer.subarray(0, 12), answer.subarray(12), id);
  if (content === null) throw new Refused("answer-failure");
  return new TextDecoder().decode(content);
}

/** What stands before the signature, if it is by `key`, a public key of Ed25519; or `null`. */
async function verified(key, word, origin, body, signature) {
  const message = concat([utf8.encode(`${word}\0${origin}\0`), body]);
  const verifying = await subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  return await subtle.verify("Ed25519", verifying, signature, message) ? body : null;
}

/** The bytes before the signature of a permit or a receipt, once that was checked with a key of `signingKeys`. */
async function openSigned(bytes, length, word, origin, signingKeys, failure, version = 1) {
  const refuse = (reason) => new Refused(failure, { reason });
  if (bytes.length !== length) throw refuse("length");
  if (bytes[0] !== version) throw refuse("version");
  const key = signingKeys[toHex(bytes.subarray(1, 5))];
  if (key === undefined) throw refuse("unknown-key");
  const [body, signature] = [bytes.slice(0, length - 64), bytes.subarray(length - 64)];
  if (await verified(fromBase64url(key), word, origin, body, signature) === null) throw refuse("unauthentic");
  return body;
}

/** Opens a permit as a gateway does, with the keys that the service of `origin` publishes. */
export async function openPermit(signingKeys, origin, permit) {
  const body = await openSigned(permit, 113, "hoop-permit-v1", origin, signingKeys, "permit-failure");
  const view = new DataView(body.buffer);
  const gateway = toHex(body.subarray(33));
  return {
    upload_id: toHex(body.subarray(5, 21)),
    max_bytes: Number(view.getBigUint64(21)),
    expires: view.getUint32(29),
    gateway: /^0+$/.test(gateway) ? null : gateway,
  };
}

/** Opens a receipt as anybody does, with the keys that the service of `origin` publishes. */
export async function openReceipt(signingKeys, origin, receipt) {
  const open = (...of) => openSigned(receipt, ...of);
  const body = receipt[0] === 2
    ? await open(162, "hoop-receipt-v2", origin, signingKeys, "receipt-failure", 2)
    : await open(130, "hoop-receipt-v1", origin, signingKeys, "receipt-failure");
  const state = [, "accepted", "rejected"][body[21]];
  if (state === undefined) throw new Refused("receipt-failure", { reason: "unsupported" });
  const view = new DataView(body.buffer);
  return {
    upload_id: toHex(body.subarray(5, 21)),
    state,
    time: view.getUint32(22),
    total: Number(view.getBigUint64(26)),
    digest: toHex(body.subarray(34, 66)),
    ...(receipt[0] === 2 ? { request: toHex(body.subarray(66)) } : {}),
  };
}

/** The digest of an upload's method and path, as a receipt of version 2 has it. */
export async function requestDigest(key, id, method, path) {
  const salt = await hkdf(fromHex(id), key, "hoop-request-v1", 32);
  const text = concat([utf8.encode("hoop-request-v1\0"), salt, utf8.encode(`${method} ${path}`)]);
  return toHex(new Uint8Array(await subtle.digest("SHA-256", text)));
}

/** A gateway's name. */
async function nameOf(key) {
  return toHex(new Uint8Array(await subtle.digest("SHA-256", key)).subarray(0, 16));
}

/** Opens a gateway's answer to a nonce, as a device does that has asked at `authority`. */
export async function openPresence(authority, nonce, presence) {
  const refuse = (reason) => new Refused("presence-failure", { reason });
  if (presence.length !== 96) throw refuse("length");
  const [key, signature] = [presence.slice(0, 32), presence.subarray(32)];
  if (await verified(key, "hoop-gateway-here-v1", authority, nonce, signature) === null) throw refuse("unauthentic");
  return { gateway: await nameOf(key) };
}

/** Opens a gateway's word on what it has stored of an upload to the service of `origin`. */
export async function openStored(origin, stored) {
  const refuse = (reason) => new Refused("stored-failure", { reason });
  if (stored.length < 126 || stored.length > 126 + 1344) throw refuse("length");
  if (stored[0] !== 1) throw refuse("version");
  const [body, signature] = [stored.slice(0, -64), stored.subarray(-64)];
  const key = body.slice(1, 33);
  if (await verified(key, "hoop-stored-v1", origin, body, signature) === null) throw refuse("unauthentic");
  const state = [, "receiving", "stored", "delivering"][body[49]];
  if (state === undefined) throw refuse("unsupported");
  const view = new DataView(body.buffer);
  return {
    gateway: await nameOf(key),
    upload_id: toHex(body.subarray(33, 49)),
    state,
    time: view.getUint32(50),
    total: Number(view.getBigUint64(54)),
    missing: new TextDecoder().decode(body.subarray(62)),
  };
}

/** Opens what a gateway sends with an upload, as the service of `origin` does. */
export async function openProof(origin, uploadId, proof) {
  const refuse = (reason) => new Refused("proof-failure", { reason });
  if (proof.length !== 100) throw refuse("length");
  const [key, time, signature] = [proof.slice(0, 32), proof.slice(32, 36), proof.subarray(36)];
  const body = concat([fromHex(uploadId), time]);
  if (await verified(key, "hoop-gateway-v1", origin, body, signature) === null) throw refuse("unauthentic");
  return { gateway: await nameOf(key), time: new DataView(time.buffer).getUint32(0) };
}
