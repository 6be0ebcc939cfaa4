// Whose word "stored" is: what of a gateway's answers counts, and which gateways a page relies on.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import "fake-indexeddb/auto";
import { gatewayKey } from "./gateway.mjs";
import { load } from "./sources.mjs";

const { openStored, witnessed } = await load("witness");
const { forgetKnown } = await load("known");
const folder = new URL("../../vectors/stored/", import.meta.url);
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64url"));

for (const name of readdirSync(folder)) {
  const vector = JSON.parse(readFileSync(new URL(name, folder), "utf8"));
  test(`${name}: ${vector.class}`, async () => {
    const opening = openStored(bytes(vector.stored), vector.origin);
    if (vector.class !== "success") return assert.rejects(opening, { code: "gateway-lies" });
    const { gateway, id, state, time, total, missing } = await opening;
    const states = ["", "receiving", "stored", "delivering"];
    assert.deepEqual({ gateway, upload_id: id, state: states[state], time, total: Number(total), missing }, vector.content);
  });
}

const [BOX, OTHER] = [gatewayKey(1), gatewayKey(2)];
const [ID, TOTAL] = ["ab".repeat(16), 900];
const PARCEL = { id: ID, dest: "https://photos.example/hoop/post", total: TOTAL, prelude: "AAAA" };
const WHOLE = { status: 201, id: ID, state: "stored", missing: "", total: `${TOTAL}` };
const signed = (key = BOX, answer = WHOLE, more = {}) => ({ ...answer, receipt: key.receipt({ ...answer, ...more }) });

let serial = 0;
/** A gateway of its own, which gives these answers one after another. */
function at(answers, { gateways, gateway = `http://10.0.0.${++serial}:4667` } = {}) {
  const next = async () => answers.shift();
  return witnessed({ name: "direct", gateway, parallel: 3, put: next, look: next, close() {} }, { ...PARCEL, gateways });
}
/** What its answers count for, and why it is not relied on. */
async function heard(answers, how) {
  const way = at([...answers], how);
  const codes = [];
  for (const answer of answers) {
    const said = await way.put();
    codes.push(said.code ?? said.status);
    if (!said.code) assert.deepEqual(said, answer);
  }
  return [...codes, await way.stranger()];
}

test("what the first gateway at an address signs is relied on, and later whoever has its key", async () => {
  const here = { gateway: "http://hoop.local:4667" };
  assert.deepEqual(await heard([signed()], here), [201, undefined]);
  assert.deepEqual(await heard([signed()], here), [201, undefined]);
  assert.deepEqual(await heard([signed(OTHER)], here), [201, "changed"]);
  assert.deepEqual(await heard([signed(OTHER)], { gateway: "http://10.1.1.1:4667" }), [201, undefined], "another place");
  assert.deepEqual(await heard([signed()], here), [201, undefined], "the first stays the one");
});

test("once settings are saved, whoever is met first is known anew", async () => {
  const here = { gateway: "http://moved.local:4667" };
  await heard([signed()], here);
  forgetKnown();
  assert.deepEqual(await heard([signed(OTHER)], here), [201, undefined]);
  assert.deepEqual(await heard([signed()], here), [201, "changed"]);
});

test("what is not signed is used and not relied on", async () => {
  assert.deepEqual(await heard([WHOLE]), [201, "unproven"]);
  assert.deepEqual(await heard([WHOLE], { gateways: [BOX.name] }), [201, "unproven"]);
});

test("a gateway that has not signed that it has all of it is not relied on", async () => {
  const partly = { ...WHOLE, status: 202, state: "receiving", missing: "0-899" };
  assert.deepEqual(await heard([signed(BOX, partly)]), [202, "unproven"]);
});

test("where the service lists gateways, one of them is relied on, and another's word is none", async () => {
  assert.deepEqual(await heard([signed()], { gateways: [OTHER.name, BOX.name] }), [201, undefined]);
  assert.deepEqual(await heard([signed(OTHER)], { gateways: [BOX.name] }), ["gateway-forbidden", "unproven"]);
});

test("a receipt of another upload, length, state, missing or service is nobody's word", async () => {
  for (const [what, more] of Object.entries({
    id: { id: "cd".repeat(16) }, total: { total: 901 }, missing: { missing: "0-127" }, state: { state: "receiving" }, origin: { origin: "https://other.example" },
  })) {
    assert.deepEqual(await heard([signed(BOX, WHOLE, more)]), ["gateway-lies", "unproven"], what);
  }
  for (const receipt of ["", "AAAA", "<b>", signed().receipt.slice(0, -4), `${signed().receipt}AAAA`]) {
    const [code, stranger] = await heard([{ ...WHOLE, receipt }]);
    assert.deepEqual([code, stranger], receipt ? ["gateway-lies", "unproven"] : [201, "unproven"], receipt);
  }
});

test("of two gateways behind one name, the one that has all of it counts", async () => {
  const gateway = "http://two.local:4667";
  const partly = { ...WHOLE, status: 202, state: "receiving", missing: "0-127" };
  assert.deepEqual(await heard([signed(OTHER, partly), signed()], { gateway }), [202, 201, undefined]);
  assert.deepEqual(await heard([signed()], { gateway }), [201, undefined]);
  assert.deepEqual(await heard([signed(BOX, partly), signed(OTHER)], { gateway }), [202, 201, "changed"]);
});

test("who has signed goes on signing, and whoever has all of it stays the one, but what is given up is not signed", async () => {
  assert.deepEqual((await heard([signed(), WHOLE])).slice(0, 2), [201, "gateway-lies"]);
  assert.deepEqual((await heard([signed(), signed(OTHER)])).slice(0, 2), [201, "gateway-lies"]);
  const stopped = { ...WHOLE, status: 200, state: "stopped" };
  assert.deepEqual((await heard([signed(), stopped])).slice(0, 2), [201, 200]);
  assert.deepEqual((await heard([signed(), { status: 404 }, { status: 0 }])).slice(1, 3), [404, 0], "a refusal needs no signature");
});

test("a browser without Ed25519, or one that keeps nothing, relies on nobody", async (t) => {
  t.mock.method(crypto.subtle, "importKey", async () => { throw new DOMException("no Ed25519", "NotSupportedError"); });
  assert.deepEqual(await heard([signed()], { gateways: [BOX.name] }), [201, "unproven"]);
  assert.deepEqual(await heard([signed()]), [201, "unproven"]);
  t.mock.restoreAll();
  t.mock.method(indexedDB, "open", () => { throw new DOMException("insecure", "SecurityError"); });
  assert.deepEqual(await heard([signed()]), [201, "unproven"]);
});
