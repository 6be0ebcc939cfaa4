// When a page that stays relies on its gateway no longer.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const { Doubt, MENDS, PATIENCE_MS } = await load("doubt");
const NOTHING = { state: "announced" };
const some = (received) => ({ state: "receiving", received });
const CARRIES = { status: 200, state: "delivering" };
const FORGOT = { status: 404, code: "upload-unknown" };

test("a gateway that carries it is waited for while the service gets any of it, and then for so long", () => {
  const doubt = new Doubt(0);
  let now = 0;
  for (let received = 0; received < 5; received++) assert.equal(doubt.weigh(CARRIES, some(received), (now += PATIENCE_MS - 1)), false, `with ${received}`);
  assert.equal(doubt.weigh(CARRIES, some(4), now + PATIENCE_MS - 1), false);
  assert.equal(doubt.weigh(CARRIES, some(4), now + PATIENCE_MS), true);
  assert.equal(doubt.weigh(undefined, some(4), now + PATIENCE_MS + 1), false, "what was sent has its time, too");
});

test("what a gateway knows nothing of, or says is delivered or over, is not its to deliver any more", () => {
  for (const state of ["received", "accepted", "rejected", "held", "unknown", "expired", "refused", "stopped", "<b>"]) {
    assert.equal(new Doubt(0).weigh({ status: 200, state }, NOTHING, 1), true, state);
  }
  assert.equal(new Doubt(0).weigh(FORGOT, some(1), 1), true);
  for (const said of [undefined, CARRIES, { status: 200, state: "stored" }, { status: 0 }, { status: 503, code: "spool-failed" }]) {
    assert.equal(new Doubt(0).weigh(said, NOTHING, 1), false, JSON.stringify(said));
  }
});

test("nothing is sent past a gateway while the service is silent, or has it all, or its owner has paused or stopped it", () => {
  const late = 10 * PATIENCE_MS;
  for (const told of [undefined, { state: "received", received: 9 }, { state: "stopped" }, { state: "expired" }, { ...some(1), reason: { code: "upload-paused" } }]) {
    const doubt = new Doubt(0);
    assert.equal(doubt.weigh(FORGOT, told, late), false, JSON.stringify(told));
    if (told?.reason || !told) assert.equal(doubt.weigh(CARRIES, some(1), late + PATIENCE_MS - 1), false, "and its time begins anew");
  }
});

test("a service that takes nothing is not pressed for ever", () => {
  const doubt = new Doubt(0);
  const sent = Array.from({ length: 20 }, (_, n) => doubt.weigh(FORGOT, NOTHING, n)).filter(Boolean);
  assert.equal(sent.length, MENDS);
});
