// The vectors that Rust reads too (vectors/README.md): each body that is written as Hoop writes it is sealed again to the same bytes, answers open.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { load } from "./sources.mjs";

const folder = new URL("../../vectors/", import.meta.url);
const vectors = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".json"))
  .map((name) => ({ name, ...JSON.parse(readFileSync(new URL(name, folder), "utf8")) }));
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64url"));
const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const { sealer, openAnswer, response, layout, span } = await load("seal");

/** Opens Z with Node's own AES: what the plaintext of a stored vector is. */
async function opened(sealed, key, suite) {
  const salt = sealed.slice(0, 16), rs = sealed.readUInt32BE(16), start = 21 + sealed[20];
  const ikm = suite === "aes256gcm" ? key : key.slice(0, 16);
  const { hkdfSync, createDecipheriv } = await import("node:crypto");
  const bits = suite === "aes256gcm" ? 256 : 128;
  const cek = Buffer.from(hkdfSync("sha256", ikm, salt, `Content-Encoding: ${suite}\0`, bits / 8));
  const base = Buffer.from(hkdfSync("sha256", ikm, salt, "Content-Encoding: nonce\0", 12));
  const plain = [];
  for (let at = start, index = 0; at < sealed.length; at += rs, index++) {
    const record = sealed.subarray(at, at + rs);
    const nonce = Buffer.from(base);
    nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ index) >>> 0, 8);
    const open = createDecipheriv(`aes-${bits}-gcm`, cek, nonce).setAuthTag(record.subarray(-16));
    plain.push(Buffer.concat([open.update(record.subarray(0, -16)), open.final()]).subarray(0, -1));
  }
  return { plain: Buffer.concat(plain), salt, rs, ticket: sealed.subarray(21, start) };
}

for (const vector of vectors.filter(({ kind, canonical, class: outcome }) => kind === "body" && canonical && outcome === "success")) {
  const { made, suite, key } = vector;
  const one = made
    ? { plain: Uint8Array.from({ length: made.plaintext_length }, (_, at) => at % 251), salt: bytes(made.salt), rs: made.record_size, ticket: bytes(made.key_id) }
    : await opened(Buffer.from(vector.sealed, "base64url"), bytes(key), suite);
  for (const per of [1, 3, 128]) {
    test(`sealed again, ${per} records a segment, ${vector.name} has the same bytes`, async () => {
      assert.equal(sha256(one.plain), vector.released_sha256);
      const made2 = await sealer(new Blob([one.plain]), bytes(key), suite, new Uint8Array(one.salt), one.rs, one.ticket, per);
      const parts = [Buffer.from(made2.prelude, "base64url")];
      // Backwards: a segment does not depend on those before it.
      for (let segment = made2.layout.segments - 1; segment >= 0; segment--) {
        const { blob } = await made2.seal(segment);
        const [first, last] = span(made2.layout, segment);
        assert.equal(blob.size, last - first + 1);
        parts.splice(1, 0, Buffer.from(await blob.arrayBuffer()));
      }
      const whole = Buffer.concat(parts);
      assert.equal(whole.length, made2.layout.total);
      assert.equal(sha256(whole), vector.sealed ? sha256(bytes(vector.sealed)) : made.sealed_sha256);
    });
  }
}

for (const vector of vectors.filter(({ kind }) => kind === "answer")) {
  test(`${vector.name}: ${vector.class}`, async () => {
    const open = async () => openAnswer(vector.answer, bytes(vector.key), vector.upload_id);
    if (vector.class !== "success") return assert.rejects(open);
    const plain = await open();
    assert.equal(Buffer.from(plain).toString(), vector.content);
    if (!vector.content) return assert.equal(response(plain), undefined);
    const { response: got } = response(plain);
    assert.deepEqual([got.status, got.headers.get("content-type"), await got.text()], [201, "application/json", '{"ok":true}']);
  });
}

test("vectors were read", () => {
  assert.ok(vectors.length > 100);
});

test("an answer that is no HTTP response is none", () => {
  for (const text of ["", "HTTP/1.1", "HTTP/1.1 99 x\r\n\r\n", "HTTP/1.1 600 x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"]) assert.equal(response(Buffer.from(text)), undefined, text);
  const { response: bodiless, state } = response(new Uint8Array(Buffer.from("HTTP/1.1 204 No Content\r\nHoop-State: accepted\r\nLocation: /a\r\n\r\nx")));
  assert.deepEqual([bodiless.status, bodiless.body, state, bodiless.headers.get("location"), bodiless.headers.get("hoop-state")], [204, null, "accepted", "/a", null]);
});

test("the length of Z is as docs/protocol.md §1 says, at each border", () => {
  for (const plain of [0, 1, 65_518, 65_519, 65_520, 131_038, 131_039, 2 ** 33]) {
    for (const per of [1, 128]) {
      const grid = layout(plain, 128, 65_536, per);
      const records = Math.max(1, Math.ceil(plain / 65_519));
      assert.equal(grid.total, 128 + plain + 17 * records);
      assert.equal(grid.segments, Math.ceil(records / per));
      assert.equal(span(grid, 0)[0], 128);
      assert.equal(span(grid, grid.segments - 1)[1], grid.total - 1);
      for (let segment = 1; segment < Math.min(grid.segments, 5); segment++) assert.equal(span(grid, segment)[0], span(grid, segment - 1)[1] + 1);
    }
  }
});

test("a file that has become shorter is not sealed as if it were whole", async () => {
  const made = await sealer(new Blob(["x".repeat(100)]), new Uint8Array(32), "aes256gcm", new Uint8Array(16), 50, new Uint8Array(3), 2);
  const slice = Blob.prototype.slice;
  Blob.prototype.slice = function (from, to) { return slice.call(this, from, to - 1); };
  try {
    await assert.rejects(made.seal(0), RangeError);
  } finally {
    Blob.prototype.slice = slice;
  }
});
