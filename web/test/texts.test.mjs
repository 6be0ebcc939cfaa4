// What the card says.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const { language, mayHelp, size, texts, time, words } = await load("texts");
const phases = ["looking", "asking", "handing", "free", "received", "delivered", "held", "failed", "stopped", "ordinary"];
const codes = ["file-changed", "spool-full", "too-large", "network", "rejected", "answer-lost", "sign-in-required", "gateway-lies", "no-gateway", "not-stopped", "whatever"];

test("the nearest language that is spoken here is taken, else English", () => {
  assert.equal(language(["de", "fr-CA", "en"]), "fr");
  assert.equal(language(["FR"]), "fr");
  assert.equal(language([null, undefined, "", "constructor"]), "en");
});

test("each phase, question and failure has its own words in both languages, and none is the other's", () => {
  const states = [
    ...phases.filter((phase) => phase !== "asking" && phase !== "failed").map((phase) => ({ phase })),
    ...["offer", "permission", "bridge", "retry"].map((kind) => ({ phase: "asking", question: { kind, known: true } })),
    ...["permission", "bridge"].map((kind) => ({ phase: "asking", question: { kind, known: false } })),
    ...codes.map((code) => ({ phase: "failed", error: { code } })),
    ...["form-token-refused", "not-permitted", "upstream-failed"].map((code) => ({ phase: "held", error: { code } })),
    { phase: "handing", way: "service" },
    ...["unproven", "changed"].map((stranger) => ({ phase: "handing", stranger })),
    { phase: "looking", busy: true },
  ];
  const all = ["en", "fr"].flatMap((lang) => states.map((state) => words(texts(lang), state, "photos.example").join(" ")));
  assert.equal(new Set(all).size, all.length);
  for (const text of all) assert.doesNotMatch(text, /undefined|gateway|passerelle/);
});

test("once more is not offered where it cannot help or could arrive twice", () => {
  const none = codes.filter((code) => !mayHelp({ code }));
  assert.deepEqual(none, ["file-changed", "too-large", "rejected", "answer-lost", "sign-in-required", "not-stopped"]);
});

test("sizes and times are in people's units, and coarse", () => {
  assert.deepEqual([900, 47_200_000, 2_400_000, 3e9].map((bytes) => size("en", bytes)), ["0.9 kB", "47 MB", "2.4 MB", "3 GB"]);
  assert.equal(size("fr", 2_400_000).replace(/\s/, " "), "2,4 Mo");
  assert.deepEqual([0, 7.2, 12, 91, 7200].map((seconds) => time("en", seconds)), ["1 second", "8 seconds", "15 seconds", "2 minutes", "2 hours"]);
});
