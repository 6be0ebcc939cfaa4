// What is kept over a reload, and for whom; and that no record is ever sealed from two plaintexts.

import "fake-indexeddb/auto";
import assert from "node:assert/strict";
import { File } from "node:buffer";
import { test } from "node:test";
import { load } from "./sources.mjs";

const global = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
global("location", new URL("https://photos.example/"));
global("document", Object.create({ baseURI: "https://photos.example/", characterSet: "UTF-8" }));
global("navigator", { languages: ["en"], userAgent: "Browser/1" });

const { KEPT_MAX, drop, find, keep, keepPrint, prints } = await load("keep");
const NOW = 1_800_000_000_000;
const kept = (number, change = {}) => ({
  id: number.toString(16).padStart(32, "0"), owner: "anna", key: "k", salt: new Uint8Array(16), head: "", parts: [],
  ticket: { upload_id: number.toString(16).padStart(32, "0"), expires: NOW / 1000 + number }, ...change,
});

test("an upload is found by its owner and key alone, and not after it was dropped or has expired", async () => {
  assert.ok(await keep(kept(9)));
  assert.equal((await find("anna", "k", NOW)).id, kept(9).id);
  assert.equal(await find("bert", "k", NOW), undefined);
  assert.equal(await find("", "k", NOW), undefined);
  assert.equal(await find("anna", "other", NOW), undefined);
  assert.equal(await find("anna", "k", NOW + 10_000), undefined);
  assert.equal(await find("anna", "k", NOW), undefined, "it was dropped when it had expired");
  await keep(kept(8));
  await keepPrint(kept(8).id, 0, "p");
  await keepPrint(kept(7).id, 3, "q");
  await drop(kept(8).id);
  assert.equal(await find("anna", "k", NOW), undefined);
  assert.equal((await prints(kept(8).id)).size, 0);
  assert.deepEqual([...(await prints(kept(7).id))], [[3, "q"]], "another's prints stay");
});

test("until the service has said what time it is none has expired, whatever the device's clock says", async () => {
  await keep(kept(6, { key: "old", ticket: { upload_id: kept(6).id, expires: 1000 } }));
  assert.equal((await find("anna", "old")).id, kept(6).id);
  assert.equal((await find(undefined, "old")).id, kept(6).id);
  assert.equal(await find("anna", "old", 2_000_000), undefined);
});

test(`at most ${KEPT_MAX} uploads are kept, and the oldest goes`, async () => {
  for (let number = 100; number < 103 + KEPT_MAX; number++) await keep(kept(number, { key: String(number) }));
  for (const number of [100, 101, 102]) assert.equal(await find("anna", String(number), NOW), undefined);
  assert.ok(await find("anna", "103", NOW));
});

const service = (id = 1) => ({
  post: "https://photos.example/hoop/post", upload_id: id.toString(16).padStart(32, "0"), ticket: Buffer.alloc(107, 7).toString("base64url"), token: "dG9rZW4",
  key: Buffer.alloc(32, id).toString("base64url"), suite: "aes256gcm", record_size: 65536, expires: Math.ceil(Date.now() / 1000) + 100, max_bytes: 2 ** 40,
});

/** A way that keeps what it is handed, and breaks off when told to. */
function store(parcel) {
  const got = new Map();
  const about = { id: parcel.id, total: String(parcel.total) };
  const way = {
    name: "direct", parallel: 2, breakAfter: Infinity, got,
    async put(first, last, blob) {
      if (got.size >= way.breakAfter) return { status: 500 };
      got.set(first, new Uint8Array(await blob.arrayBuffer()));
      const end = [...got].reduce((at, [from, bytes]) => (from === at ? at + bytes.length : at), 128);
      const missing = end === parcel.total ? "" : `${end}-${parcel.total - 1}`;
      return { ...about, status: missing ? 202 : 201, state: missing ? "receiving" : "stored", missing };
    },
    async look() {
      const end = [...got].reduce((at, [from, bytes]) => (from === at ? at + bytes.length : at), 128);
      return got.size ? { ...about, status: 200, state: "receiving", missing: `${end}-${parcel.total - 1}` } : { status: 404 };
    },
    close() {},
  };
  return way;
}

const SIZE = 20_000_000;
const photo = (fill, modified = 5) => new File([Buffer.alloc(SIZE, fill)], "a.jpg", { type: "image/jpeg", lastModified: modified });
const form = (file) => {
  const body = new FormData();
  body.append("f", file);
  return { url: "/", body };
};

async function interrupted(id, owner) {
  globalThis.fetch = async () => new Response(null, { status: 204 });
  // Pauses are for people.
  const later = globalThis.setTimeout;
  globalThis.setTimeout = (act, _, ...rest) => later(act, 0, ...rest);
  const upload = await load("upload"), { message } = await load("message");
  const begun = await upload.begin(await message(form(photo(1))), service(id), owner);
  const way = store(begun.parcel);
  way.breakAfter = 1;
  assert.equal(await begun.handOver(way, () => {}, new AbortController().signal), "network");
  globalThis.setTimeout = later;
  return { upload, message, way, begun };
}

test("after a reload it goes on with the same bytes, from what is there", async () => {
  const { upload, message, way, begun } = await interrupted(21, "carla");
  const again = await message(form(photo(1)));
  const found = await find("carla", again.key);
  const resumed = await upload.resume(again, found);
  assert.deepEqual(resumed.parcel, begun.parcel);
  way.breakAfter = Infinity;
  const before = [...way.got.keys()];
  const puts = [];
  const { put } = way;
  way.put = (first, ...rest) => (puts.push(first), put(first, ...rest));
  await resumed.handOver(way, () => {}, new AbortController().signal);
  assert.ok(!puts.includes(before[0]), "what is there is not sent again");
  const whole = await upload.begin(again, service(21), undefined);
  assert.equal([...way.got.values()].reduce((sum, bytes) => sum + bytes.length, 128), whole.parcel.total);
  await resumed.forget();
  assert.equal(await find("carla", again.key), undefined);
});

test("another content of the same name, size and time is never sealed under the same key", async () => {
  const { upload, message, way } = await interrupted(22, "dora");
  const other = await message(form(photo(2)));
  const found = await find("dora", other.key);
  assert.ok(found, "it looks like the same file");
  way.put = () => assert.fail("nothing may be sent");
  await assert.rejects(upload.resume(other, found), { code: "file-changed" });
});

test("a segment's print is on disk before the segment is sent", async () => {
  globalThis.fetch = async () => new Response(null, { status: 204 });
  const upload = await load("upload"), { message } = await load("message");
  const begun = await upload.begin(await message(form(photo(1))), service(23), "emil");
  const way = store(begun.parcel);
  const { put } = way;
  way.put = async (first, ...rest) => {
    const known = await prints(begun.parcel.id);
    assert.ok(known.has(Math.floor((first - 128) / (128 * 65536))), `byte ${first}`);
    return put(first, ...rest);
  };
  await begun.handOver(way, () => {}, new AbortController().signal);
});

test("without IndexedDB an upload goes all the same", async () => {
  const open = indexedDB.open;
  indexedDB.open = () => { throw new DOMException("no", "SecurityError"); };
  try {
    const upload = await load("upload"), { message } = await load("message"), bare = await load("keep");
    assert.equal(await bare.find("x", "y"), undefined);
    const begun = await upload.begin(await message(form(photo(1))), service(24), "frida");
    await begun.handOver(store(begun.parcel), () => {}, new AbortController().signal);
    await begun.forget();
  } finally {
    indexedDB.open = open;
  }
});

test("a file that changes while it is sent ends the upload in file-changed", async () => {
  const upload = await load("upload"), { message } = await load("message");
  const begun = await upload.begin(await message(form(photo(1))), service(25), undefined);
  const read = Blob.prototype.arrayBuffer;
  Blob.prototype.arrayBuffer = async function () { throw new DOMException("changed", "NotReadableError"); };
  try {
    await assert.rejects(begun.handOver(store(begun.parcel), () => {}, new AbortController().signal), { code: "file-changed" });
  } finally {
    Blob.prototype.arrayBuffer = read;
  }
});
