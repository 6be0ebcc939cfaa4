// Sealing (docs/protocol.md §1 and §8): where each record lies, records in flight, and the application's answer opened.

import { base64url, concat, unbase64url, unhex, utf8 } from "./bytes.ts";

/** Bytes that a record has besides plaintext: the delimiter and the tag. */
const OVERHEAD = 17;
const TAG = 16;

export type Suite = "aes256gcm" | "aes128gcm";

/** Where the records of a sealed body lie, cut into segments of whole records. All numbers are bytes of Z, unless they say otherwise. */
export interface Layout {
  /** The prelude's length: where record 0 begins. */
  start: number;
  /** The record size. */
  rs: number;
  /** The length of Z. */
  total: number;
  /** Records in a segment, except that the last may have fewer. */
  per: number;
  /** How many segments there are. */
  segments: number;
}

/** The layout of `plain` bytes of plaintext behind a prelude of `start` bytes. */
export function layout(plain: number, start: number, rs: number, per: number): Layout {
  const records = Math.max(1, Math.ceil(plain / (rs - OVERHEAD)));
  return { start, rs, total: start + plain + OVERHEAD * records, per, segments: Math.ceil(records / per) };
}

/** The first and last byte of a segment. */
export function span({ start, rs, total, per }: Layout, segment: number): [number, number] {
  return [start + segment * per * rs, Math.min(start + (segment + 1) * per * rs, total) - 1];
}

export function prelude(salt: Uint8Array, rs: number, ticket: Uint8Array): Uint8Array<ArrayBuffer> {
  const head = new Uint8Array(21);
  head.set(salt);
  new DataView(head.buffer).setUint32(16, rs);
  head[20] = ticket.length;
  return concat(head, ticket);
}

async function derive(ikm: Uint8Array<ArrayBuffer>, salt: Uint8Array<ArrayBuffer>, info: string, length: number): Promise<Uint8Array<ArrayBuffer>> {
  const key = await crypto.subtle.importKey("raw", ikm, "HKDF", false, ["deriveBits"]);
  return new Uint8Array(await crypto.subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt, info: utf8(info) }, key, length * 8));
}

const aes = (key: Uint8Array<ArrayBuffer>, use: "encrypt" | "decrypt") => crypto.subtle.importKey("raw", key, "AES-GCM", false, [use]);

/** Some records, sealed. */
export interface Sealed {
  blob: Blob;
  /** SHA-256 over the records' tags, base64url. A tag depends on all of its record's plaintext, so two plaintexts have two prints. */
  print: string;
}

export interface Sealer {
  layout: Layout;
  prelude: string;
  /** Seals a segment, many of its records in flight, while the next ones are read. One call at a time. Rejects with what
   *  reading rejects with, or with a RangeError if the source is shorter than it was. */
  seal(segment: number): Promise<Sealed>;
}

/** Records that are read, and sealed, at once: 4 MiB of the usual ones. */
const BATCH = 64;

/** Seals `plain` under K. Bound: two batches' plaintext, a segment's records, and the Blob that they become are in memory at once, and what the
 *  engine has not collected yet. Nothing is detached to free it sooner: that hides it from the collector, and it stays all the longer. */
export async function sealer(
  plain: Blob, key: Uint8Array<ArrayBuffer>, suite: Suite, salt: Uint8Array<ArrayBuffer>, rs: number, ticket: Uint8Array, per: number,
): Promise<Sealer> {
  const before = prelude(salt, rs, ticket);
  const grid = layout(plain.size, before.length, rs, per);
  const [ikm, length] = suite === "aes256gcm" ? [key, 32] : [key.slice(0, 16), 16];
  const content = await aes(await derive(ikm, salt, `Content-Encoding: ${suite}\0`, length), "encrypt");
  const base = await derive(ikm, salt, "Content-Encoding: nonce\0", 12);
  const room = rs - OVERHEAD;
  // A slice that takes one byte more than its records has room for the last one's delimiter.
  const source = new Blob([plain, "\x02"]);

  const count = Math.max(1, Math.ceil(plain.size / room));

  /** Records from `first` on that are read at once. */
  const batch = (first: number) => Math.min(BATCH, per - (first % per), count - first);
  let ahead: { first: number; bytes: Promise<ArrayBuffer> } | undefined;
  function read(first: number): Promise<ArrayBuffer> {
    if (ahead?.first === first) return ahead.bytes;
    return source.slice(first * room, Math.min((first + batch(first)) * room, plain.size) + 1).arrayBuffer();
  }

  async function seal(segment: number): Promise<Sealed> {
    const records: ArrayBuffer[] = [];
    const tags: Uint8Array[] = [];
    const end = Math.min((segment + 1) * per, count);
    for (let first = segment * per; first < end; ) {
      const bytes = new Uint8Array(await read(first));
      const next = first + batch(first);
      ahead = next < count ? { first: next, bytes: read(next) } : undefined;
      // Whoever asks for it learns of a failure; perhaps nobody does.
      ahead?.bytes.catch(() => {});
      const to = Math.min(next * room, plain.size);
      if (bytes.length !== to + 1 - first * room) throw new RangeError("the file is shorter than it was");
      const from = first;
      const sealed = await sealRecords(bytes, to === plain.size, content, (slot) => nonce(from + slot), rs);
      records.push(...sealed.records);
      tags.push(sealed.tags);
      first = next;
    }
    return { blob: new Blob(records), print: base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", concat(...tags)))) };
  }

  function nonce(index: number): Uint8Array<ArrayBuffer> {
    const bytes = base.slice();
    const view = new DataView(bytes.buffer);
    view.setUint32(4, view.getUint32(4) ^ (index / 2 ** 32));
    view.setUint32(8, view.getUint32(8) ^ index);
    return bytes;
  }
  return { layout: grid, prelude: base64url(before), seal };
}

/** Seals whole records, all in flight. `bytes`: their plaintext and one byte more, which keeps its value; `isEnd`: the last of them is the
 *  body's last. Resolves to the records, and their tags one after another. */
export async function sealRecords(
  bytes: Uint8Array<ArrayBuffer>, isEnd: boolean, key: CryptoKey, nonce: (slot: number) => Uint8Array<ArrayBuffer>, rs: number,
): Promise<{ records: ArrayBuffer[]; tags: Uint8Array<ArrayBuffer> }> {
  const length = bytes.length - 1;
  const room = rs - OVERHEAD;
  const sealing: Promise<ArrayBuffer>[] = [];
  for (let at = 0; sealing.length === 0 || at < length; at += room) {
    const end = Math.min(at + room, length);
    // The delimiter stands where the next record begins, for as long as the call takes to copy its input.
    const next = bytes[end]!;
    bytes[end] = isEnd && end === length ? 2 : 1;
    sealing.push(crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce(sealing.length) }, key, bytes.subarray(at, end + 1)));
    bytes[end] = next;
  }
  const records = await Promise.all(sealing);
  return { records, tags: concat(...records.map((record) => new Uint8Array(record, record.byteLength - TAG))) };
}

/** The application's answer, opened with K: bytes of an HTTP response. Rejects if it does not open. */
export async function openAnswer(answer: string, key: Uint8Array<ArrayBuffer>, id: string): Promise<Uint8Array<ArrayBuffer>> {
  const sealed = unbase64url(answer);
  const upload = unhex(id);
  const content = await aes(await derive(key, upload, "hoop-answer-v1", 32), "decrypt");
  const plain = await crypto.subtle.decrypt(
    { name: "AES-GCM", iv: sealed.subarray(0, 12), additionalData: upload }, content, sealed.subarray(12));
  return new Uint8Array(plain);
}

/** Statuses that have no body (Fetch, "null body status"), of final answers. */
export const BODILESS = [204, 205, 304];

/** The answer as a Response, and what the service took it to mean. Undefined if it is no HTTP response. */
export function response(bytes: Uint8Array<ArrayBuffer>): { response: Response; state: string | null } | undefined {
  let end = 0;
  while (end < bytes.length && !(bytes[end] === 13 && bytes[end + 2] === 13)) end++;
  const [line, ...fields] = new TextDecoder("latin1").decode(bytes.subarray(0, end)).split("\r\n");
  const status = Number(/^HTTP\/1\.[01] ([2-5]\d\d)(?: |$)/.exec(line!)?.[1]);
  if (!status) return undefined;
  const headers = new Headers();
  for (const field of fields) {
    const [, name, value] = /^([\w-]+): ?(.*)$/.exec(field) ?? [];
    if (name) headers.append(name, value!);
  }
  const state = headers.get("hoop-state");
  headers.delete("hoop-state");
  const body = BODILESS.includes(status) ? null : bytes.slice(end + 4);
  return { response: new Response(body, { status, headers }), state };
}
