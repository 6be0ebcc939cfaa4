// Whether a Hoop box may be here, and whether its visitor is asked.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const { AWAY_MS, belief, BOXES_MAX, DELAY_MS, KNOWN_MS, KNOWN_WAIT_MS, learn, NONE_MS, OPEN_WAIT_MS, recall } = await load("belief");
const BOX = "http://hoop.local:4667";
const NOW = 1_800_000_000_000;
const nothing = recall(null);
const after = (...looks) => looks.reduce((memory, [what, at]) => learn(memory, BOX, what, at), nothing);

test("whoever was never asked is asked, and waits for no more than 300 ms", () => {
  assert.deepEqual(belief(nothing, BOX, NOW), { known: false, wait: OPEN_WAIT_MS, ask: true });
  assert.ok(OPEN_WAIT_MS < DELAY_MS && DELAY_MS <= 300);
});

test("after a look in vain nothing is asked for a day, to the millisecond", () => {
  const memory = after(["none", NOW]);
  assert.equal(belief(memory, BOX, NOW).ask, false);
  assert.equal(belief(memory, BOX, NOW + NONE_MS - 1).ask, false);
  assert.equal(belief(memory, BOX, NOW + NONE_MS).ask, true);
  assert.equal(belief(memory, BOX, NOW).wait, OPEN_WAIT_MS);
});

test("one that answered is known for thirty days, and waited for", () => {
  const memory = after(["none", NOW - 1], ["seen", NOW]);
  assert.deepEqual(belief(memory, BOX, NOW + KNOWN_MS - 1), { known: true, wait: KNOWN_WAIT_MS, ask: true });
  assert.deepEqual(belief(memory, BOX, NOW + KNOWN_MS), { known: false, wait: OPEN_WAIT_MS, ask: true });
});

test("one that is known and away is asked about again after an hour", () => {
  const memory = after(["seen", NOW - 1000], ["none", NOW]);
  assert.deepEqual(belief(memory, BOX, NOW), { known: true, wait: OPEN_WAIT_MS, ask: false });
  assert.deepEqual(belief(memory, BOX, NOW + AWAY_MS), { known: true, wait: OPEN_WAIT_MS, ask: true });
  assert.equal(belief(learn(memory, BOX, "seen", NOW + 1), BOX, NOW + 2).wait, KNOWN_WAIT_MS, "as soon as it answers");
});

test("a clock that was set back makes nothing known and nothing denied", () => {
  for (const what of ["seen", "none"]) assert.deepEqual(belief(after([what, NOW + 1]), BOX, NOW), belief(nothing, BOX, NOW));
});

test("whoever says not again is asked nothing, whatever is known", () => {
  for (const memory of [nothing, after(["seen", NOW])]) assert.equal(belief({ ...memory, quiet: true }, BOX, NOW).ask, false);
});

test("what was written down wrongly is as if it were not there", () => {
  for (const text of ["", "{", "null", "7", "[]", '{"boxes":7}', '{"boxes":{"http://a":7}}', '{"quiet":1,"boxes":{"no address":{"seen":1}}}', `{"boxes":{"${BOX}":{"seen":"soon","none":1e999}}}`]) {
    assert.deepEqual(belief(recall(text), BOX, NOW), belief(nothing, BOX, NOW), text);
  }
  const memory = { ...after(["seen", NOW]), quiet: true };
  assert.deepEqual(belief(recall(JSON.stringify(memory)), BOX, NOW), belief(memory, BOX, NOW));
});

test("of many boxes those of the latest looks are remembered", () => {
  let memory = nothing;
  for (let at = 0; at < 3 * BOXES_MAX; at++) memory = learn(memory, `http://box-${at}.local`, "seen", NOW + at);
  const last = 3 * BOXES_MAX - 1;
  assert.deepEqual(Object.keys(memory.boxes).sort(), Array.from({ length: BOXES_MAX }, (_, less) => `http://box-${last - less}.local`).sort());
  assert.deepEqual(recall(JSON.stringify(memory)), { quiet: false, boxes: Object.fromEntries(Object.entries(memory.boxes).map(([name, { seen }]) => [name, { seen, none: undefined }])) });
});
