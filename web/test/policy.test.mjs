// Whether an upload is offered to a gateway.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const { attributes, decide, DEFAULTS } = await load("policy");
const form = (said) => attributes((name) => said[name] ?? null);
const photo = { type: "image/jpeg", size: 3e6 }, film = { type: "video/mp4; codecs=x", size: 9e6 };

test("without a word from anybody the user is asked", () => {
  assert.equal(decide(DEFAULTS, form({}), [photo]), "ask");
});

test("a form's attributes hold until the user has saved settings, and then not at all", () => {
  const said = form({ "data-hoop": "never", "data-hoop-min": "1GB" });
  assert.equal(decide(DEFAULTS, said, [photo]), "never");
  assert.equal(decide({ ...DEFAULTS, saved: true, policy: "always" }, said, [photo]), "always");
});

test("of several files the strictest policy holds: never, ask, always", () => {
  const said = form({ "data-hoop": "always", "data-hoop-types": "image/*: ask, video/mp4: never" });
  assert.equal(decide(DEFAULTS, said, [{ type: "text/plain", size: 1 }]), "always");
  assert.equal(decide(DEFAULTS, said, [{ type: "text/plain", size: 1 }, photo]), "ask");
  assert.equal(decide(DEFAULTS, said, [film, photo]), "never");
});

test("a whole media type wins over its family, and names of Object.prototype are no types", () => {
  const said = form({ "data-hoop-types": "image/*: never, IMAGE/jpeg: always" });
  assert.equal(decide(DEFAULTS, said, [photo]), "always");
  assert.equal(decide(DEFAULTS, said, [{ type: "constructor", size: 1 }]), "ask");
});

test("every type can be named at once, and gives way to any that says more", () => {
  const said = form({ "data-hoop": "never", "data-hoop-types": "*/*: always, video/*: ask" });
  assert.equal(decide(DEFAULTS, said, [photo]), "always");
  assert.equal(decide(DEFAULTS, said, [{ type: "", size: 1 }]), "always", "one that the browser does not know");
  assert.equal(decide(DEFAULTS, said, [film]), "ask");
});

test("the least size counts all files together, and is met by as many bytes as it names", () => {
  const said = form({ "data-hoop": "always", "data-hoop-min": "6 MB" });
  assert.equal(decide(DEFAULTS, said, [photo, photo]), "always");
  assert.equal(decide(DEFAULTS, said, [photo, { ...photo, size: 2_999_999 }]), "never");
});

test("sizes have decimal and binary units, and what is misspelt says nothing", () => {
  const least = (text) => form({ "data-hoop-min": text }).min_bytes;
  assert.deepEqual(["5000", "5kB", "5 KiB", "1.5MB", "2GiB"].map(least), [5000, 5000, 5120, 1.5e6, 2 ** 31]);
  assert.deepEqual(["", "five", "-5MB", "5TB"].map(least), [undefined, undefined, undefined, undefined]);
  assert.equal(form({ "data-hoop": "sometimes" }).policy, undefined);
});
