// The bridge's pure half: what it takes from whom, in which order it works, how long it tries, when it closes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const source = fileURLToPath(new URL("../src/bridge-core.ts", import.meta.url));
const { outputFiles } = await build({ entryPoints: [source], bundle: true, format: "esm", write: false });
const module = `data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`;
const { ALONE_MS, Bridge, DONE_MS, IDLE_MS, RUNNING, judge } = await import(module);

const SITE = "https://photos.example";
const BEGIN = { hoop: 1, type: "begin", id: "ab".repeat(16), dest: `${SITE}/hoop/post`, total: 1000, prelude: "AAAA_-9" };
const put = (seq, first, last) => ({ hoop: 1, type: "put", seq, first, last, blob: new Blob([new Uint8Array(last - first + 1)]) });
const look = (seq) => ({ hoop: 1, type: "look", seq });
const END = { hoop: 1, type: "end" };
const ABOUT = { id: BEGIN.id, total: String(BEGIN.total) };
const STORED = { ...ABOUT, status: 201, state: "stored", missing: "" };
const NOTHING = { status: 0 };

/** A bridge with a clock of its own, and all that it wanted done so far. */
class Bench {
  now = 0;
  bridge = new Bridge(0);
  posted = [];
  jobs = [];
  closed = false;
  aborted = false;

  collect() {
    for (const effect of this.bridge.take()) {
      if (effect.do === "post") this.posted.push([effect.to, effect.message]);
      if (effect.do === "send") this.jobs.push(effect.job);
      if (effect.do === "close") this.closed = true;
      if (effect.do === "abort") this.aborted = true;
    }
    return this;
  }

  hear(message, origin = SITE) {
    this.bridge.message(message, origin, this.now);
    return this.collect();
  }

  /** The oldest request ends so. */
  ends(outcome, job = this.jobs.shift()) {
    this.bridge.outcome(job, outcome, this.now);
    return this.collect();
  }

  /** Time passes, second by second. */
  pass(ms, alone = false) {
    for (const end = this.now + ms; this.now < end; ) {
      this.now = Math.min(end, this.now + 1000);
      this.bridge.tick(this.now, alone);
    }
    return this.collect();
  }

  types() {
    return this.posted.map(([, { type }]) => type);
  }

  answers() {
    return this.posted.filter(([, { type }]) => type === "answer").map(([, { seq, status, code }]) => (code ? [seq, status, code] : [seq, status]));
  }
}

const begun = () => new Bench().hear(BEGIN);

test("the origin of the first begin is held on to, and the only one that is answered", () => {
  const bench = new Bench().hear({ ...BEGIN, dest: "https://evil.example/hoop/post" }, SITE).hear(BEGIN).hear(put(1, 0, 99));
  bench.hear(put(2, 100, 199), "https://evil.example").hear({ ...BEGIN, dest: "https://evil.example/p" }, "https://evil.example");
  bench.ends(STORED);
  assert.deepEqual(bench.types(), ["refused", "ready", "progress", "answer"]);
  assert.ok(bench.posted.every(([to]) => to === SITE));
  assert.equal(bench.jobs.length, 0);
  assert.equal(bench.bridge.view().origin, SITE);
});

test("a begin that is not for the page's own site, or malformed, is refused and says why", () => {
  for (const [change, code, origin = SITE] of [
    [{ dest: "https://evil.example/hoop/post" }, "origin-forbidden"],
    [{ dest: "https://photos.example:444/hoop/post" }, "origin-forbidden"],
    [{ dest: "https://photos.example@evil.example/" }, "origin-forbidden"],
    [{ dest: "http://photos.example/hoop/post" }, "origin-forbidden"],
    [{ dest: "http://photos.example/hoop/post" }, "dest-invalid", "http://photos.example"],
    [{ dest: "http://127.0.0.1.evil.example/p" }, "dest-invalid", "http://127.0.0.1.evil.example"],
    [{ dest: "/hoop/post" }, "dest-invalid"],
    [{ dest: `${SITE}/${"a".repeat(1024)}` }, "request-invalid"],
    [{ dest: 7 }, "request-invalid"],
    [{ id: "AB".repeat(16) }, "request-invalid"],
    [{ id: "../monitor" }, "request-invalid"],
    [{ id: undefined }, "request-invalid"],
    [{ total: 0 }, "request-invalid"],
    [{ total: -1 }, "request-invalid"],
    [{ total: 1.5 }, "request-invalid"],
    [{ total: 2 ** 60 }, "request-invalid"],
    [{ total: "1000" }, "request-invalid"],
    [{ prelude: "a\r\nb" }, "request-invalid"],
    [{ prelude: "" }, "request-invalid"],
    [{ prelude: "a".repeat(1025) }, "request-invalid"],
    [{ permit: "a\r\nb" }, "request-invalid"],
    [{ permit: 7 }, "request-invalid"],
    [{ permit: "a".repeat(1025) }, "request-invalid"],
  ]) {
    const bench = new Bench().hear({ ...BEGIN, ...change }, origin);
    assert.deepEqual(bench.posted.map(([to, { type, code }]) => [to, type, code]), [[origin, "refused", code]], JSON.stringify(change));
    assert.equal(bench.bridge.begun, false);
  }
  for (const origin of ["http://127.0.0.1:8000", "http://localhost:3000", "http://app.localhost", "http://[::1]:1", SITE]) {
    assert.equal(judge({ ...BEGIN, dest: `${origin}/hoop/post` }, origin), null, origin);
  }
});

test("a page that names gateways is told whether this is one of them, and never another name", () => {
  const [own, other] = ["1a".repeat(16), "2b".repeat(16)];
  const said = (name, gateways) => {
    const bench = new Bench();
    bench.bridge.name = name;
    return bench.hear({ ...BEGIN, gateways }).posted[0][1];
  };
  assert.equal(said(own, [other, own]).gateway, own);
  assert.equal(said(own, [other]).gateway, null);
  for (const silent of [said(own, undefined), said(undefined, [own])]) assert.deepEqual([silent.type, "gateway" in silent], ["ready", false]);
  for (const gateways of ["x", own, {}, Array(257).fill(own)]) assert.equal(said(own, gateways).code, "request-invalid", JSON.stringify(gateways).slice(0, 50));
});

test("what is no message of ours, or comes before begin or from a sandbox, is ignored", () => {
  const bench = new Bench();
  for (const noise of [null, undefined, 7, "begin", [], {}, { type: "begin" }, { ...BEGIN, hoop: 2 }, { hoop: 1, type: "evil" }, put(1, 0, 9), look(2), END]) {
    bench.hear(noise);
  }
  bench.hear(BEGIN, "null");
  assert.deepEqual(bench.posted, []);
  begun().hear({ hoop: 1 }).hear({ hoop: 1, type: "put" }).hear({ hoop: 1, type: "look", seq: "x" });
});

test("puts run two at a time and are answered in order, a look after all before it", () => {
  const bench = begun().hear(put(1, 0, 99)).hear(put(2, 100, 199)).hear(put(3, 200, 299)).hear(look(4)).hear(put(5, 300, 399));
  assert.deepEqual(bench.jobs.map(({ seq }) => seq), [1, 2]);
  assert.equal(RUNNING, 2);
  const [first, second] = bench.jobs.splice(0);
  bench.ends({ ...ABOUT, status: 202, missing: "200-999" }, second);
  assert.deepEqual(bench.answers(), [], "2 waits for 1");
  bench.ends({ ...ABOUT, status: 202, missing: "200-999" }, first);
  assert.deepEqual(bench.answers(), [[1, 202], [2, 202]]);
  assert.deepEqual(bench.jobs.map(({ seq }) => seq), [3]);
  bench.ends({ ...ABOUT, status: 202, missing: "300-999" });
  assert.deepEqual(bench.jobs.map(({ seq }) => seq), [4, 5]);
  assert.equal(bench.jobs[0].part, undefined);
  bench.ends({ ...ABOUT, status: 200, missing: "300-999" }).ends({ ...ABOUT, status: 202, missing: "400-999" });
  assert.deepEqual(bench.answers().map(([seq]) => seq), [1, 2, 3, 4, 5]);
  assert.equal(bench.bridge.busy, false);
});

test("the ninth that waits is refused and the others go on", () => {
  const bench = begun();
  for (let seq = 1; seq <= 9; seq++) bench.hear(put(seq, 0, 99));
  assert.deepEqual(bench.answers(), [[9, 429, "too-many-requests"]]);
  bench.ends({ ...ABOUT, status: 202, missing: "100-999" }).hear(put(10, 0, 99));
  assert.deepEqual(bench.answers().at(-1), [1, 202]);
});

test("a put whose range and blob do not go together is answered and never sent", () => {
  const bench = begun();
  for (const wrong of [
    { ...put(1, 0, 99), last: 98 },
    put(1, 950, 1000),
    { ...put(1, 0, 99), first: -1 },
    { ...put(1, 0, 99), first: 5.5 },
    { ...put(1, 0, 99), blob: new Uint8Array(100) },
    { ...put(1, 0, 99), blob: { size: 100 } },
  ]) {
    bench.hear(wrong);
    assert.deepEqual(bench.answers().at(-1), [1, 400, "range-invalid"]);
  }
  assert.deepEqual(bench.jobs, []);
});

test("progress names the put and goes back to nothing when it is tried again", () => {
  const bench = begun().hear(put(7, 0, 99));
  const [job] = bench.jobs;
  bench.bridge.sent(job, 60);
  assert.equal(bench.collect().bridge.view().done, 60);
  bench.ends(NOTHING);
  bench.bridge.sent(job, 99);
  const progress = bench.collect().posted.filter(([, { type }]) => type === "progress").map(([, { seq, sent }]) => [seq, sent]);
  assert.deepEqual(progress, [[7, 0], [7, 60], [7, 0]], "at once, that it is here; and nothing of a request that has ended");
  assert.deepEqual([bench.bridge.view().phase, bench.bridge.view().done], ["retrying", 0]);
});

test("a gateway that does not answer is tried again, and in the end the page is told", () => {
  const bench = begun().hear(put(1, 0, 99));
  let attempts = 0;
  for (let seconds = 0; seconds < 600 && bench.answers().length === 0; seconds++) {
    while (bench.jobs.length > 0) {
      attempts += 1;
      bench.ends(NOTHING);
    }
    bench.pass(1000);
  }
  assert.deepEqual(bench.answers(), [[1, 0]]);
  assert.ok(attempts >= 4 && bench.now <= 31_000, `${attempts} in ${bench.now} ms`);
});

test("with the page gone it is tried for longer, also a gateway that is full", () => {
  const bench = begun().hear(put(1, 0, 99)).pass(1000, true).ends({ status: 507, code: "spool-full", retry_after: 60 });
  assert.deepEqual(bench.pass(59_000, true).jobs, [], "not before it said");
  assert.equal(bench.pass(1_000, true).jobs.length, 1);
  bench.ends(NOTHING).pass(15_000, true).ends(STORED);
  assert.deepEqual(bench.answers(), [[1, 201]]);
  const with_page = begun().hear(put(1, 0, 99)).ends({ status: 507, code: "spool-full", retry_after: 60 });
  assert.deepEqual(with_page.answers(), [[1, 507, "spool-full"]]);
  const refused = begun().hear(put(1, 0, 99)).pass(1000, true).ends({ status: 410, code: "ticket-expired", detail: "too late" });
  assert.deepEqual(refused.answers(), [[1, 410, "ticket-expired"]], "what is final stays so");
});

test("it closes when the gateway has everything, and not at once", () => {
  const bench = begun().hear(put(1, 0, 999)).ends(STORED);
  assert.equal(bench.bridge.view().phase, "done");
  assert.equal(bench.pass(DONE_MS - 1).closed, false);
  assert.equal(bench.pass(1).closed, true);
  const more = begun().hear(put(1, 0, 999)).ends(STORED).hear({ ...BEGIN, id: "cd".repeat(16) }).pass(DONE_MS + 1000);
  assert.equal(more.closed, false, "another upload of the same page");
});

test("end closes it when the queue is empty, whatever the state is", () => {
  assert.equal(begun().hear(END).closed, true);
  const bench = begun().hear(put(1, 0, 99)).hear(END);
  assert.equal(bench.closed, false);
  assert.equal(bench.ends({ ...ABOUT, status: 202, missing: "100-999" }).closed, true);
});

test("without opener it finishes its work first and closes after a minute without any", () => {
  const bench = begun().hear(put(1, 0, 99)).pass(300_000, true);
  assert.equal(bench.closed, false);
  assert.equal(bench.ends({ ...ABOUT, status: 202, missing: "100-999" }).bridge.view().phase, "left");
  assert.equal(bench.pass(ALONE_MS - 1000, true).closed, false);
  assert.equal(bench.pass(1000, true).closed, true);
  assert.equal(new Bench().pass(ALONE_MS, true).closed, true, "never begun");
  const failed = begun().hear(put(1, 0, 99)).pass(1000, true).ends({ status: 410, detail: "too late" }).pass(IDLE_MS, true);
  assert.deepEqual([failed.closed, failed.bridge.view().detail], [false, "too late"], "what went wrong stays to be read");
});

test("an opener that says nothing keeps it open for ten minutes", () => {
  assert.equal(begun().pass(IDLE_MS - 1000).closed, false);
  assert.equal(begun().pass(IDLE_MS).closed, true);
});

test("stop answers what waits, breaks off what runs, and closes", () => {
  const bench = begun().hear(put(1, 0, 99)).hear(put(2, 100, 199)).hear(put(3, 200, 299));
  bench.bridge.stop();
  bench.collect();
  assert.deepEqual(bench.answers(), [[1, 0, "aborted"], [2, 0, "aborted"], [3, 0, "aborted"]]);
  assert.deepEqual([bench.aborted, bench.closed, bench.bridge.busy], [true, true, false]);
  bench.ends(NOTHING).hear(put(4, 0, 9));
  assert.equal(bench.answers().length, 3);
});

test("an answer that lies about what is missing changes figures and nothing else", () => {
  const bench = begun().hear(put(1, 0, 99)).ends({ ...ABOUT, status: 202, missing: "all <b>of it</b>" });
  const { done, total, phase } = bench.bridge.view();
  assert.deepEqual([done <= total, phase], [true, "idle"]);
  const huge = begun().hear(put(1, 0, 99)).ends({ ...ABOUT, status: 202, missing: "0-99999999999" });
  assert.ok(huge.bridge.view().done >= 0, `${huge.bridge.view().done}`);
});
