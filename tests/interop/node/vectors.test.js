// The shared test vectors: one test for each file in the folders.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";
import { load } from "../../../web/test/sources.mjs";
import { KINDS, check } from "./vectors.js";

const FOLDER = new URL("../../../vectors/", import.meta.url);

const { sealer } = await load("seal");

const names = readdirSync(FOLDER, { recursive: true }).filter((name) => /\/.*\.json$/.test(name));

test("the folders hold vectors of every kind", () => {
  const kinds = new Set(names.map((name) => read(name).kind));
  assert.deepEqual([...kinds].sort(), KINDS);
});

for (const name of names) {
  const vector = read(name);
  test(`${name}: ${vector.about}`, () => check(vector, sealer));
}

test("a vector that says another thing fails", async () => {
  const vector = read("body/aes256gcm-several-records.json");
  await assert.rejects(check({ ...vector, class: "truncated" }, sealer), /class/);
  await assert.rejects(check({ ...vector, released_sha256: "0".repeat(64) }, sealer), /released/);
  await assert.rejects(check({ ...read("ticket/valid.json"), content: {} }, sealer), /content/);
});

function read(name) {
  return JSON.parse(readFileSync(new URL(name, FOLDER), "utf8"));
}
