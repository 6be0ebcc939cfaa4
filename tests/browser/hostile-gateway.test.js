// Whoever answers as hoop.local is a stranger. One that lies, babbles, drips or sends script costs the user a moment: the photos arrive
// once by another way, no script of his runs in the page, and he is not asked for ever. What lies there are about ranges is tested in
// web/test/handover.test.mjs; here is what only a browser shows.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { gatewayKey } from "../../web/test/gateway.mjs";
import { scenarios } from "./scenarios.js";

/** More than any hostile answer makes the page ask: the most is six attempts, in each of which a browser follows twenty redirects. */
const ASKED_MAX = 150;
const SMALL = 10_000;
/** Three segments of the library's. */
const LARGE = 20_000_000;
/** Whatever runs this in a page, or takes it for markup there, asks the page's own site for it. */
const HACK = "/hacked";
const SCRIPT = `<!doctype html><title>Hacked</title><script>new Image().src = "${HACK}"</script><img src="${HACK}">`;
const HACK_URL = `javascript:void(new Image().src='${HACK}')`;
const TEST = JSON.stringify({ hoop: "gateway", version: "0.1.0", free_bytes: 2 ** 40 });
const CORS = {
  "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "*", "Access-Control-Max-Age": "600",
  "Access-Control-Allow-Headers": "Content-Type, Content-Range, Hoop-Prelude, Hoop-Permit, Hoop-Version",
  "Access-Control-Expose-Headers": "Hoop-Upload-Id, Hoop-State, Hoop-Total, Hoop-Missing, Hoop-Receipt, Location, Retry-After",
};

/** Something at hoop.local:4667 in the place of a gateway. `answers` maps a path or a method to what answers. */
async function startStranger(answers) {
  const asked = [];
  const server = http.createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    for (const [name, value] of Object.entries(CORS)) response.setHeader(name, value);
    const { pathname } = new URL(request.url, "http://hoop.local");
    if (request.method === "OPTIONS" && !answers.OPTIONS) return response.writeHead(204).end();
    const answer = answers[pathname] ?? answers[request.method];
    if (answer) return answer(request, response);
    if (pathname === "/test") return response.writeHead(200, { "Content-Type": "application/json" }).end(TEST);
    return response.writeHead(404).end();
  });
  await new Promise((resolve, reject) => server.on("error", reject).listen(4667, "127.0.0.1", resolve));
  const stop = () => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  });
  return { asked, stop };
}

/** An answer once all of the request has come. */
const said = (status, headers = {}, body = "") => (request, response) => {
  const answer = () => response.writeHead(status, headers).end(body);
  if (request.readableEnded) answer();
  else request.resume().on("end", answer);
};
/** How long the uploads are, by their ids, as their parts say. */
const totals = new Map();
/** A key of the stranger's own, which nobody knows; and another one. */
const [OWN_KEY, OTHER_KEY] = [gatewayKey(9), gatewayKey(10)];
const ANOTHER = "cd".repeat(16);
/** A gateway's word on the very upload that is asked about, with all that a device demands of one; `more` takes the place of that. `by` signs it: `of` other things. */
const claim = (status, state, more = {}, by = OWN_KEY, of = {}) => (request, response) => {
  const id = new URL(request.url, "http://hoop.local").pathname.split("/").at(-1);
  const total = request.headers["content-range"]?.split("/")[1] ?? totals.get(id);
  totals.set(id, total);
  const signed = by && total && { "Hoop-Receipt": by.receipt({ id, total, state: /^(receiving|stored)$/.test(state) ? state : "delivering", ...of }) };
  const fields = { "Hoop-Upload-Id": id, "Hoop-Total": total, "Hoop-State": state, "Hoop-Missing": "", ...signed, ...more };
  said(status, fields, JSON.stringify({ id: fields["Hoop-Upload-Id"] }))(request, response);
};
const html = (body, status = 200) => said(status, { "Content-Type": "text/html" }, body);
const problem = (code, status = 403) => said(status, { "Content-Type": "application/problem+json" }, JSON.stringify({ code, title: SCRIPT, detail: SCRIPT }));
const both = (answer) => ({ PUT: answer, HEAD: answer });
const noise = (request) => request.socket.end(Buffer.from("ffd8ffe000104a4600000000", "hex"));

/** One byte after another. */
function drip(request, response) {
  request.resume();
  response.writeHead(200, { "Content-Type": "application/json" });
  const clock = setInterval(() => response.write(" "), 50);
  response.on("close", () => clearInterval(clock));
}

function endless(_request, response) {
  const more = () => { while (!response.destroyed && response.write("x".repeat(65_536))); };
  response.writeHead(200).on("drain", more);
  more();
}

/** At the probe nothing has begun, so it goes as if there were no Hoop. */
const AT_THE_PROBE = {
  "noise": [{ "/test": noise }, "no-gateway"],
  "a page with script": [{ "/test": html(SCRIPT) }, "not-hoop"],
  "JSON that is null": [{ "/test": said(200, {}, "null") }, "not-hoop"],
  "an answer without end": [{ "/test": endless }, "not-hoop"],
  "one byte after another": [{ "/test": drip }, "no-gateway"],
  "a redirect to the service": [{ "/test": said(302, { Location: "https://photos.example/hoop/settings" }) }, "no-gateway"],
  "no leave for pages": [{ OPTIONS: said(403) }, "no-gateway"],
  "no room": [{ "/test": said(503, { "Retry-After": "31536000" }) }, "spool-full"],
};

/** Once bytes are with a stranger, the service gets the same sealed upload, so that what he may deliver is no second one. */
const AT_THE_UPLOAD = {
  "noise": [both(noise)],
  "a page with script": [both(html(SCRIPT))],
  "a refusal with script for a code": [both(problem(SCRIPT))],
  "a refusal with a code of the library's own": [both(problem("file-changed"))],
  "word that the user has stopped it": [both(problem("aborted"))],
  "a conflict with what it knows": [both(problem("upload-conflict", 409))],
  "a permit that is not its": [both(problem("permit-invalid"))],
  "partial content": [both(claim(206, "stored"))],
  "a part of it, over and over": [both(claim(202, "receiving"))],
  "a bare 201": [both(said(201))],
  "a 201 that names no upload": [both(said(201, { "Hoop-State": "stored", "Hoop-Missing": "" }))],
  "a 201 about another upload": [both(claim(201, "stored", { "Hoop-Upload-Id": ANOTHER }))],
  "a receipt of another upload": [both(claim(201, "stored", {}, OWN_KEY, { id: ANOTHER }))],
  "a receipt of less": [both(claim(201, "stored", {}, OWN_KEY, { missing: "0-127", state: "receiving" }))],
  "a receipt for another service": [both(claim(201, "stored", {}, OWN_KEY, { origin: "https://evil.example" }))],
  "a receipt that nobody signed": [both(claim(201, "stored", { "Hoop-Receipt": Buffer.alloc(126, 1).toString("base64url") }))],
  "a 201 about another length": [both(claim(201, "stored", { "Hoop-Total": "7" }))],
  "one byte after another": [both(drip)],
  "a redirect in a circle": [both((request, response) => said(307, { Location: request.url })(request, response))],
  "\"stored\" for the first segment, unread": [
    both((request, response) => {
      const id = new URL(request.url, "http://hoop.local").pathname.split("/").at(-1);
      const fields = { "Hoop-Upload-Id": id, "Hoop-Total": request.headers["content-range"]?.split("/")[1] ?? "0" };
      response.writeHead(201, { ...fields, "Hoop-State": "stored", "Hoop-Missing": "" }).end(JSON.stringify({ id }));
    }), 2 * LARGE,
  ],
};

/** Says to whoever has opened it what a bridge may say, and much that it may not; ANSWER is what a `put` or `look` gets. */
const FORGER = `<!doctype html><title>Bridge</title><script>
  const say = (message) => opener.postMessage(message, "*");
  let stored = { hoop: 1, type: "answer", seq: 1, status: 201, state: "stored", missing: "" };
  for (const message of [null, 5, "hello", [], {}, { hoop: "1", type: "hello" }, stored, { hoop: 1, type: "ready" }]) say(message);
  const frame = document.createElement("iframe");
  frame.srcdoc = "<script>top.opener.postMessage(" + JSON.stringify(stored) + ", '*')<\\/script>";
  document.documentElement.append(frame);
  addEventListener("message", ({ data: { type, id, total, seq } }) => {
    if (type === "begin") {
      stored = { ...stored, id, total: String(total) };
      say({ hoop: 1, type: "ready", id });
    }
    if (!seq) return;
    for (const sent of [-Infinity, -1, NaN, 1e308, "many", { toString: null }, [], null]) say({ hoop: 1, type: "progress", seq, sent });
    for (let count = 0; count < 500; count++) say({ ...stored, seq: 1000 + count });
    ANSWER;
  });
  setInterval(() => say({ hoop: 1, type: "hello", version: {} }), 100);
</script>`;
const AT_THE_BRIDGE = {
  "answers that are none": [
    `say({ hoop: 1, type: "answer", seq, status: {}, state: ["stored"], missing: {}, code: "<b>", retry_after: 1e9, monitor: "${HACK_URL}" })`,
  ],
  "parts that are no numbers": ['say({ hoop: 1, type: "answer", seq, status: { toString: null }, retry_after: { toString: null } })'],
  "a refusal with script for a code": [
    `say({ hoop: 1, type: "answer", seq, status: 403, code: ${JSON.stringify(SCRIPT).replaceAll("</", "<\\/")} })`,
  ],
  "\"stored\" for the first segment": [`say({ ...stored, seq, monitor: "${HACK_URL}" })`, LARGE],
  "nothing, but that it is there": ["0"],
};
/** Those that bring script. The library reads the others the same way in both browsers. */
const WITH_SCRIPT = ["answers that are none", "a refusal with script for a code"];

/** A true gateway that the stranger has deliver what he makes of an upload. */
const BEHIND = 24667;
/** docs/protocol.md §1. */
const RECORD = 65_536;

/** What the true gateway made of it. */
const spoilt = [];
/** Says "stored", and has something else delivered: `spoil` gets the bytes and the total, and returns both. */
const delivering = (spoil) => async (request, response) => {
  const [first, , length] = request.headers["content-range"].match(/\d+/g).map(Number);
  const [body, total] = spoil(Buffer.concat(await request.toArray()), length);
  const headers = { "Host": "hoop.local", "Hoop-Version": "1", "Hoop-Prelude": request.headers["hoop-prelude"], "Content-Length": body.length };
  const range = { "Content-Range": `bytes ${first}-${first + body.length - 1}/${total}` };
  const forward = http.request({ host: "127.0.0.1", port: BEHIND, method: "PUT", path: request.url, headers: { ...headers, ...range } });
  const [answer] = await once(forward.end(body), "response");
  const told = Buffer.concat(await answer.toArray());
  spoilt.push(answer.statusCode < 300 ? "taken" : `refused: ${told}`);
  claim(201, "stored")(request, response);
};
const altered = (bytes, total) => {
  for (let at = 100; at < bytes.length; at += RECORD) bytes[at] ^= 1;
  return [bytes, total];
};
const stretched = (bytes, total) => [bytes.subarray(0, 2 * RECORD), total + RECORD];
const forgotten = said(404);
const stored = claim(201, "stored");
const word = (state) => claim(200, state);

/** Once all of it is with a stranger: what he does with it, and what he says when he is asked later. */
const AFTER_THE_UPLOAD = {
  "thrown away, and forgotten": [stored, forgotten],
  "thrown away, and said to be with the service": [stored, word("received")],
  "thrown away, and said to be on its way for ever": [stored, word("delivering")],
  "delivered with a bit of each record flipped, and forgotten": [delivering(altered), forgotten],
  "delivered under a longer total, and said to be on its way for ever": [delivering(stretched), word("delivering")],
};

/** Chooses a photo and sends it. */
async function send(scene, bytes, number) {
  scene.states.length = 0;
  const photo = await scene.house.photo(`${number}.jpg`, bytes);
  await scene.open();
  await scene.choose([photo]);
  await scene.submit();
  return photo;
}

/** The page gives up on the stranger, by itself or asking, and the service gets everything from the page. */
async function toService(scene, what) {
  const isOver = () => scene.states.at(-1).question === "retry" || scene.states.some(({ phase }) => phase === "received");
  await scene.until(isOver, `an end of patience with ${what}`);
  if (scene.states.at(-1).question) await scene.answer("retry", "decline");
  assert.equal((await scene.state("delivered")).way, "service", what);
  assert.ok(!scene.states.some(({ phase }) => phase === "free"), `${what}: nobody was told to leave`);
  const isWithin = ({ sent, total }) => Number.isFinite(sent) && sent >= 0 && sent <= total;
  assert.ok(scene.states.every(isWithin), `${what}: progress stays within the upload`);
  await assertNoLinkElsewhere(scene, what);
}

async function assertNoLinkElsewhere(scene, what) {
  const origins = await scene.page.$$eval("hoop-card >>> a", (links) => links.map(({ href }) => new URL(href).origin));
  assert.ok(await scene.page.$("hoop-card"), `${what}: the card is there`);
  assert.ok(origins.every((origin) => origin === scene.house.origin), `${what}: links lead to ${origins}`);
}

function assertHarmless(scene, { asked }, what) {
  assert.ok(asked.length > 0 && asked.length <= ASKED_MAX, `${what}: the stranger was asked ${asked.length} times`);
  assert.ok(!scene.requests.includes(`GET ${scene.house.origin}${HACK}`), `${what}: script of the stranger has run in the page`);
}

scenarios(({ test, browser }) => {
  const strange = { permission: "granted", hurry: true, house: { gateway: false } };

  test("whatever the window says, the photo arrives once by way of the service, and nothing of it runs in the page", {
    ...strange, permission: "denied",
  }, async (scene) => {
    const photos = [];
    for (const [what, [answer, bytes = SMALL]] of Object.entries(AT_THE_BRIDGE)) {
      if (browser === "chromium" && !WITH_SCRIPT.includes(what)) continue;
      const stranger = await startStranger({ "/bridge": html(FORGER.replace("ANSWER", answer)) });
      try {
        photos.push(await send(scene, bytes, photos.length));
        await scene.answer("bridge", "proceed");
        await scene.state("handing");
        if (answer === "0") await scene.page.evaluate(hastenClock);
        await toService(scene, what);
        await scene.house.assertArrived(...photos);
        assertHarmless(scene, stranger, what);
      } finally {
        await stranger.stop();
      }
    }
  });

  if (browser !== "chromium") return;

  test("whatever answers the probe and is no gateway, the form is sent as ever, and nothing of it runs in the page", strange, async (scene) => {
    const photos = [];
    for (const [what, [answers, why]] of Object.entries(AT_THE_PROBE)) {
      const stranger = await startStranger(answers);
      try {
        photos.push(await send(scene, SMALL, photos.length));
        assert.equal((await scene.state("ordinary")).error, why, what);
        await scene.house.assertArrived(...photos);
        assertHarmless(scene, stranger, what);
      } finally {
        await stranger.stop();
      }
    }
  });

  test("whatever takes the upload and lies, the photo arrives once by way of the service, and none of it runs in the page", strange, async (scene) => {
    const photos = [];
    for (const [what, [answers, bytes = SMALL]] of Object.entries(AT_THE_UPLOAD)) {
      const stranger = await startStranger(answers);
      try {
        photos.push(await send(scene, bytes, photos.length));
        await scene.answer("offer", "proceed");
        await toService(scene, what);
        await scene.house.assertArrived(...photos);
        assertHarmless(scene, stranger, what);
      } finally {
        await stranger.stop();
      }
    }
  });

  test("who claims to have it all is believed that much; that it is delivered the service says, and no link leads to him", strange, async (scene) => {
    const stranger = await startStranger({ PUT: claim(201, "accepted", { Location: HACK_URL }), HEAD: word("delivering") });
    try {
      await send(scene, SMALL, 0);
      await scene.answer("offer", "proceed");
      const free = await scene.state("free");
      assert.equal(free.monitor, undefined);
      await assertNoLinkElsewhere(scene, "a claim");
      assert.ok(!scene.states.some(({ phase }) => phase === "delivered" || phase === "received"));
      assert.deepEqual(scene.house.arrived, []);
      assertHarmless(scene, stranger, "a claim");
    } finally {
      await stranger.stop();
    }
  });

  test("what a stranger says is stored, and throws away or spoils, arrives once from a page that stays", strange, async (scene) => {
    await scene.house.startGateway({ port: BEHIND });
    // The library asks whether it has arrived, and is answered at once; ten minutes are two seconds.
    await scene.page.evaluateOnNewDocument(impatient);
    const photos = [];
    for (const [what, [put, head]] of Object.entries(AFTER_THE_UPLOAD)) {
      const stranger = await startStranger({ PUT: put, HEAD: head });
      try {
        photos.push(await send(scene, 200_000, photos.length));
        await scene.answer("offer", "proceed");
        assert.equal((await scene.state("free")).way, "direct", what);
        assert.equal((await scene.state("delivered")).way, "service", what);
        assert.deepEqual(scene.phases.slice(scene.phases.indexOf("free"), -2), ["free", "handing"], `${what}: the page says that it is needed again`);
        await scene.house.assertArrived(...photos);
        assert.ok(!scene.requests.includes(`POST ${scene.house.origin}/photos`), `${what}: nothing went the ordinary way`);
      } finally {
        await stranger.stop();
      }
    }
    assert.deepEqual(spoilt, ["taken", "taken"], "what was spoilt was on its way, too");
  });
});

/** Those to whom nobody is to leave a photo: what they say, and why the page does not rely on them. */
const STRANGERS = {
  "signs nothing": [null, "unproven"],
  "signs with another key than the one that is known": [OTHER_KEY, "changed"],
};

scenarios(({ test, browser }) => {
  test("a window that says stored and signs nothing is not left with the photo", { permission: "denied", hurry: true, house: { gateway: false } }, async (scene) => {
    const stranger = await startStranger({ "/bridge": html(FORGER.replace("ANSWER", "say({ ...stored, seq })")) });
    await scene.page.evaluateOnNewDocument(insistent);
    try {
      const photo = await send(scene, SMALL, 0);
      await scene.answer("bridge", "proceed");
      await scene.state(({ stranger }) => stranger === "unproven");
      // Two minutes of patience are two seconds, and the service is not asked to wait.
      await scene.page.evaluate(hastenClock, 100);
      await toService(scene, "a window that signs nothing");
      await scene.house.assertArrived(photo);
    } finally {
      await stranger.stop();
    }
  });

  if (browser !== "chromium") return;

  test("who is not the gateway that is known here is not left with a photo, and the page brings it", {
    permission: "granted", hurry: true, house: { gateway: false },
  }, async (scene) => {
    await scene.page.evaluateOnNewDocument(impatient);
    const photos = [];
    const known = await startStranger(both(claim(201, "stored")));
    photos.push(await send(scene, SMALL, 0));
    await scene.answer("offer", "proceed");
    await scene.state("free");
    // It was known as the first that was met there; that it threw the photo away shows later.
    await scene.state("delivered");
    await known.stop();
    for (const [what, [key, why]] of Object.entries(STRANGERS)) {
      const stranger = await startStranger({ PUT: claim(201, "stored", {}, key), HEAD: claim(200, "stored", {}, key) });
      try {
        photos.push(await send(scene, SMALL, photos.length));
        await scene.answer("offer", "proceed");
        await scene.state(({ stranger }) => stranger === why);
        await toService(scene, what);
        await scene.house.assertArrived(...photos);
        assertHarmless(scene, stranger, what);
      } finally {
        await stranger.stop();
      }
    }
  });

  test("who copies the name of a gateway that the service lists is not left with a photo", { permission: "granted", hurry: true, house: { gateway: false } }, async (scene) => {
    const { house } = scene;
    const { name } = gatewayKey(11);
    await house.service.stop();
    await house.startService(["--permits", "required", "--gateway", name]);
    await scene.page.evaluateOnNewDocument(impatient);
    const photos = [];
    const test = said(200, { "Content-Type": "application/json" }, JSON.stringify({ ...JSON.parse(TEST), gateway: name }));
    for (const [key, what] of [[null, "a copied name"], [OWN_KEY, "a copied name, and a key of its own"]]) {
      const stranger = await startStranger({ "/test": test, ...both(claim(201, "stored", {}, key)) });
      try {
        photos.push(await send(scene, SMALL, photos.length));
        await scene.answer("offer", "proceed");
        await toService(scene, what);
        assert.equal(scene.states.some(({ stranger }) => stranger), !key, what);
        await house.assertArrived(...photos);
        assertHarmless(scene, stranger, what);
      } finally {
        await stranger.stop();
      }
    }
  });
});

/** In this page the clock goes three hundred times as fast, the service is not asked to wait, and is asked again soon. */
function impatient() {
  const now = performance.now.bind(performance);
  performance.now = () => 300 * now();
  const wait = window.setTimeout;
  // The library's other waits of that length are of 15 and 30 s.
  const isBetweenQuestions = (ms) => ms > 2500 && ms % 15_000 > 0;
  // What is left of the wait for a box is reckoned by the clock that goes fast: over before it has begun.
  const isLeft = (ms) => ms < 0;
  window.setTimeout = (act, ms, ...rest) => wait(act, isBetweenQuestions(ms) || ms === 60_000 ? 100 : isLeft(ms) ? 2500 : ms, ...rest);
  const ask = window.fetch;
  window.fetch = (address, { headers: { Prefer, ...headers } = {}, ...how } = {}) => ask(address, { ...how, headers });
}

/** In this page the service is not asked to wait. */
function insistent() {
  const ask = window.fetch;
  window.fetch = (address, { headers: { Prefer, ...headers } = {}, ...how } = {}) => ask(address, { ...how, headers });
}

/** From now on a page's clock goes so many times as fast. */
function hastenClock(times = 10) {
  const now = performance.now.bind(performance);
  const from = now();
  performance.now = () => from + times * (now() - from);
}
