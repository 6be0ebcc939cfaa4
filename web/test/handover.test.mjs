// The machine that decides what is sent next, against gateways that are honest, flaky, and hostile. Seeded; the seed is in the message.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const { Handover, FAILURES, PAUSE_MAX_MS } = await load("handover");
const { layout, span } = await load("seal");

/** mulberry32. */
function dice(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Records of 20 bytes, so that layouts are small. */
function grid(records, per) {
  return layout(records * 3, 10, 20, per);
}

const ID = "ab".repeat(16);
const handover = (...how) => new Handover(ID, ...how);

/** An honest gateway: it has bytes, and says so. */
class Gateway {
  constructor(layout) {
    this.layout = layout;
    this.has = new Uint8Array(layout.total);
    this.known = false;
  }

  put(first, last, upTo = last + 1) {
    this.known = true;
    this.has.fill(1, 0, this.layout.start);
    const whole = upTo > last ? upTo : first + Math.floor((upTo - first) / this.layout.rs) * this.layout.rs;
    this.has.fill(1, first, Math.max(first, whole));
  }

  missing() {
    const spans = [];
    for (let at = 0; at < this.has.length; at++) {
      if (this.has[at]) continue;
      const first = at;
      while (at + 1 < this.has.length && !this.has[at + 1]) at++;
      spans.push(`${first}-${at}`);
    }
    return spans;
  }

  headers() {
    const missing = this.missing();
    return { id: ID, state: missing.length ? "receiving" : "stored", missing: missing.slice(0, 32).join(", "), total: String(this.layout.total) };
  }

  answer(looked) {
    if (looked && !this.known) return { status: 404, code: "upload-unknown" };
    return { status: looked ? 200 : this.missing().length ? 202 : 201, ...this.headers() };
  }
}

/** Runs the machine against `world.put(step)` and `world.look()` with answers out of order; gives how it ended. Bounded by the machine's own promise. */
function run(layout, machine, random, world) {
  const flying = [];
  let answers = 0, paused = 0;
  for (let steps = 0; steps < 100 * layout.segments + 2000; steps++) {
    const step = machine.step();
    if (step.do === "done" || step.do === "fail") return { ...step, answers, paused };
    if (step.do === "put") {
      const [first, last] = span(layout, step.segment);
      assert.ok(step.first >= first && step.last <= last && step.first <= step.last);
      assert.ok(!flying.some(({ segment }) => segment === step.segment), "a segment is under way once at a time");
      flying.push(step);
      if (random() < 0.5 && flying.length < 4) continue;
    } else if (step.do === "look") {
      assert.equal(flying.length, 0, "it looks when nothing is under way");
      machine.answered(undefined, world.look());
      answers++;
      continue;
    } else if (step.do === "pause") {
      assert.ok(step.ms > 0 && step.ms <= PAUSE_MAX_MS);
      paused += step.ms;
      continue;
    }
    if (step.do === "rest") assert.ok(flying.length, "it rests only while something is under way");
    const [one] = flying.splice(Math.floor(random() * flying.length), 1);
    if (!one) continue;
    machine.answered(one.segment, world.put(one));
    answers++;
  }
  assert.fail("the machine did not end");
}

test("an honest gateway gets each segment once, whatever the order of answers", () => {
  for (let seed = 0; seed < 300; seed++) {
    const random = dice(seed);
    const all = grid(1 + Math.floor(random() * 200), 1 + Math.floor(random() * 4));
    const gateway = new Gateway(all);
    let puts = 0;
    const world = { put: ({ first, last }) => (puts++, gateway.put(first, last), gateway.answer()), look: () => gateway.answer(true) };
    const end = run(all, handover(all, 1 + Math.floor(random() * 4)), random, world);
    assert.equal(end.do, "done", `seed ${seed}: ${JSON.stringify(end)}`);
    assert.equal(puts, all.segments, `seed ${seed}`);
    assert.deepEqual(gateway.missing(), []);
  }
});

test("a flaky gateway gets all of it, or the machine gives up; it is never done while something is missing", () => {
  const ends = { done: 0, fail: 0 };
  for (let seed = 0; seed < 2000; seed++) {
    const random = dice(seed);
    const all = grid(1 + Math.floor(random() * 60), 1 + Math.floor(random() * 6));
    let gateway = new Gateway(all);
    const trouble = random() * 0.5;
    const world = {
      put({ first, last }) {
        const luck = random();
        if (luck > trouble) {
          gateway.put(first, last);
          return gateway.answer();
        }
        // Broken off in the middle; stored with the answer lost; busy; restarted with an empty disk.
        if (luck < trouble / 4) gateway.put(first, last, first + Math.floor(random() * (last - first)));
        else if (luck < trouble / 2) gateway.put(first, last);
        else if (luck < trouble * 0.7) return { status: 503, code: "too-many-requests", retryAfter: random() * 100 };
        else if (luck < trouble * 0.75) gateway = new Gateway(all);
        return { status: 0 };
      },
      look: () => (random() < trouble / 2 ? { status: 0 } : gateway.answer(true)),
    };
    const end = run(all, handover(all, 3), random, world);
    ends[end.do]++;
    if (end.do === "done") assert.deepEqual(gateway.missing(), [], `seed ${seed}`);
    assert.ok(end.answers <= 4 * all.segments + 33, `seed ${seed}: ${end.answers} answers`);
  }
  assert.ok(ends.done > 1500 && ends.fail > 10, JSON.stringify(ends));
});

test("whatever a hostile gateway answers, it ends, and is done only if every segment was sent", () => {
  for (let seed = 0; seed < 3000; seed++) {
    const random = dice(seed);
    const all = grid(1 + Math.floor(random() * 40), 1 + Math.floor(random() * 4));
    const pick = (list) => list[Math.floor(random() * list.length)];
    const sent = new Set();
    const answer = () => ({
      status: pick([200, 201, 202, 202, 202, 0, 204, 301, 404, 409, 429, 500, 503]),
      id: pick([ID, ID, ID, undefined, "", "cd".repeat(16)]),
      state: pick([undefined, null, "stored", "receiving", "accepted", "<b>", "constructor"]),
      missing: pick(["", null, undefined, "0-0", "10-29", `10-${all.total - 1}`, "9999999999999999-1", "1-2, 1-2", "a", "-1-3", "30-49", "0-29, 50-69", ",".repeat(5000)]),
      total: pick([undefined, String(all.total), "7", "NaN"]),
      retryAfter: pick([undefined, 0, 1e300, -5, NaN, Infinity]),
      code: pick([undefined, "spool-full", "network"]),
    });
    const world = { put: ({ segment }) => (sent.add(segment), answer()), look: answer };
    const end = run(all, handover(all, 2), random, world);
    if (end.do === "done") assert.equal(sent.size, all.segments, `seed ${seed}`);
    assert.ok(end.answers <= 4 * all.segments + 33, `seed ${seed}`);
  }
});

const six = grid(6, 1);
const whole = { status: 201, id: ID, state: "stored", missing: "", total: String(six.total) };
const partly = { ...whole, status: 202, state: "receiving" };
const lies = {
  "missing that never shrinks": () => ({ ...partly, missing: `10-${six.total - 1}` }),
  "an endless 202 with nothing missing": () => partly,
  "nonsense ranges": () => ({ ...partly, missing: "11-12" }),
  "everything stored though little was sent": () => whole,
};
for (const [lie, answer] of Object.entries(lies)) {
  test(`a gateway that answers ${lie} is given up`, () => {
    const end = run(six, handover(six, 1), dice(1), { put: answer, look: answer });
    assert.deepEqual([end.do, end.code], ["fail", "gateway-lies"]);
    assert.ok(end.answers <= 6 + 2 * FAILURES + 1, String(end.answers));
  });
}

test("an answer without each of the four fields, or about another upload, says nothing", () => {
  const one = grid(2, 2);
  const told = { status: 201, id: ID, state: "stored", missing: "", total: String(one.total) };
  const ends = (answer) => run(one, handover(one, 1), dice(1), { put: () => answer, look: () => answer });
  assert.equal(ends(told).do, "done");
  for (const status of [200, 202]) assert.equal(ends({ ...told, status }).do, "done", String(status));
  for (const [field, values] of Object.entries({
    id: [undefined, null, "", "cd".repeat(16), `${ID}, ${ID}`], state: [undefined, null, "", "of-tomorrow", "Stored", "stored, stored", "announced"],
    missing: [undefined, null, ", ", "all", "0-18446744073709551614"], total: [undefined, null, "", "7", `0${one.total}`, `${one.total}, ${one.total}`],
  })) {
    for (const value of values) {
      const end = ends({ ...told, [field]: value });
      assert.deepEqual([end.do, end.code], ["fail", "gateway-lies"], `${field}: ${value}`);
    }
  }
  for (const status of [203, 204, 205, 206, 226]) assert.equal(ends({ ...told, status }).do, "fail", String(status));
});

test("what was sent before a reload and is there is not sent again; what a gateway merely claims is", () => {
  const gateway = new Gateway(six);
  for (const segment of [0, 1, 2]) gateway.put(...span(six, segment));
  const puts = [];
  const world = { put: ({ segment, first, last }) => (puts.push(segment), gateway.put(first, last), gateway.answer()), look: () => gateway.answer(true) };
  assert.equal(run(six, handover(six, 1, [0, 1]), dice(1), world).do, "done");
  assert.deepEqual(puts, [2, 3, 4, 5]);
});

test("of a segment that broke off, what is missing is sent", () => {
  const all = grid(4, 4);
  const gateway = new Gateway(all);
  const puts = [];
  const world = {
    put({ first, last }) {
      puts.push([first, last]);
      gateway.put(first, last, puts.length === 1 ? first + 45 : undefined);
      return puts.length === 1 ? { status: 0 } : gateway.answer();
    },
    look: () => gateway.answer(true),
  };
  assert.equal(run(all, handover(all, 1), dice(1), world).do, "done");
  assert.deepEqual(puts, [span(all, 0), [10 + 40, all.total - 1]]);
});

test("an upload that was stopped is not pressed on with, and a full spool is not waited for", () => {
  const answers = [
    [{ status: 410, code: "upload-stopped", state: "stopped", missing: "" }, "upload-stopped"], [{ status: 507, code: "spool-full" }, "spool-full"],
    [{ status: 409, code: "upload-conflict" }, "upload-conflict"], [{ status: 418 }, "not-hoop"],
  ];
  for (const [answer, code] of answers) {
    const end = run(six, handover(six, 2), dice(1), { put: () => answer, look: () => answer });
    assert.deepEqual([end.do, end.code], ["fail", code]);
  }
});

test("a service that is sent another total just now is waited for", () => {
  const gateway = new Gateway(six);
  let lies = 2;
  const world = {
    put: ({ first, last }) => (lies-- > 0 ? { status: 400, code: "range-invalid" } : (gateway.put(first, last), gateway.answer())),
    look: () => gateway.answer(true),
  };
  assert.equal(run(six, handover(six, 1), dice(1), world).do, "done");
});

test("a window that was closed, or has tried long enough, is not waited for", () => {
  for (const code of ["window-closed", "no-gateway"]) {
    const machine = handover(six, 2);
    const { segment } = machine.step();
    machine.answered(segment, { status: 0, code });
    assert.deepEqual(machine.step(), { do: "fail", code });
  }
});

test("nobody there: it gives up after a quarter of a minute of pauses", () => {
  const end = run(six, handover(six, 2), dice(1), { put: () => ({ status: 0 }), look: () => ({ status: 0 }) });
  assert.deepEqual([end.do, end.code], ["fail", "network"]);
  assert.ok(end.paused > 5000 && end.paused < 30_000, String(end.paused));
});

test("where nothing moves, two requests are waited for and no third", () => {
  const still = { status: 0, still: true };
  const end = run(six, handover(six, 1), dice(1), { put: () => still, look: () => still });
  assert.deepEqual([end.do, end.code, end.answers], ["fail", "network", 2]);
});

test("a gateway that takes one record at a time is given up after 4 answers for each segment and 32 more", () => {
  const all = grid(100, 100);
  let at = 10;
  const answer = () => ({ ...partly, total: String(all.total), missing: `${at}-${all.total - 1}` });
  const end = run(all, handover(all, 1), dice(1), { put: () => ((at += 20), answer()), look: answer });
  assert.deepEqual([end.do, end.code, end.answers], ["fail", "gateway-lies", 37]);
});
