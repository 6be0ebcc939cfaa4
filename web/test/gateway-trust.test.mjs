// When a page that stays relies on its gateway no longer.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const { Doubt, HOURS_MS, MENDS, PATIENCE_MS } = await load("gateway-trust");
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

test("a gateway that has all of it is waited for until the hour that it tells, as long as it tells it, and no longer", () => {
  const hour = 3_600_000;
  const night = (left) => ({ status: 200, state: "stored", missing: "", retryAfter: left / 1000 });
  const wait = (tells) => {
    const doubt = new Doubt(0);
    for (let now = 0; ; now += 60_000) if (doubt.weigh(tells(now), some(1), now)) return now;
  };
  // Counted from the last minute before the hour.
  assert.equal(wait((now) => night(Math.max(0, 8 * hour - now))), 8 * hour - 60_000 + PATIENCE_MS);
  assert.equal(wait((now) => (now < hour ? night(8 * hour - now) : { status: 0 })), hour - 60_000 + PATIENCE_MS, "one that has gone");
  assert.equal(wait(() => night(hour)), hour + PATIENCE_MS, "one that puts it off for ever");
  assert.equal(wait(() => night(1e12)), HOURS_MS + PATIENCE_MS, "one that tells no hour of any day");
  for (const less of [{ state: "receiving" }, { missing: "500-999" }, { status: 503 }, { retryAfter: undefined }]) {
    assert.equal(wait((now) => ({ ...night(8 * hour - now), ...less })), PATIENCE_MS, JSON.stringify(less));
  }
});

test("each time that the service has got something, the next hour counts", () => {
  const doubt = new Doubt(0);
  const night = { status: 200, state: "delivering", missing: "", retryAfter: 3600 };
  for (let received = 1; received < 5; received++) {
    const at = received * 4_000_000;
    assert.equal(doubt.weigh(CARRIES, some(received), at), false);
    for (const later of [1, 1_800_000, 3_590_000]) assert.equal(doubt.weigh(night, some(received), at + later), false, `${received}, ${later}`);
  }
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
