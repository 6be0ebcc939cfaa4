// Whoever answers as hoop.local is a stranger. One that lies, babbles, drips or sends script costs the user a moment: the photos arrive
// once by another way, no script of his runs in the page, and he is not asked for ever. What lies there are about ranges is tested in
// web/test/handover.test.mjs; here is what only a browser shows.

import assert from "node:assert/strict";
import http from "node:http";
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
  "Access-Control-Expose-Headers": "Hoop-Upload-Id, Hoop-State, Hoop-Total, Hoop-Missing, Location, Retry-After",
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
  request.resume().on("end", () => response.writeHead(status, headers).end(body));
};
const html = (body, status = 200) => said(status, { "Content-Type": "text/html" }, body);
const problem = (code) => said(403, { "Content-Type": "application/problem+json" }, JSON.stringify({ code, title: SCRIPT, detail: SCRIPT }));
const both = (answer) => ({ PUT: answer, HEAD: answer });
const noise = (request) => request.socket.end(Buffer.from("ffd8ffe000104a4600000000", "hex"));

/** One octet after another. */
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
  "one octet after another": [{ "/test": drip }, "no-gateway"],
  "a redirect to the service": [{ "/test": said(302, { Location: "https://photos.example/hoop/settings" }) }, "no-gateway"],
  "no leave for pages": [{ OPTIONS: said(403) }, "no-gateway"],
  "no room": [{ "/test": said(503, { "Retry-After": "31536000" }) }, "spool-full"],
};

/** Once octets are with a stranger, the service gets the same sealed upload, so that what he may deliver is no second one. */
const AT_THE_UPLOAD = {
  "noise": [both(noise)],
  "a page with script": [both(html(SCRIPT))],
  "a refusal with script for a code": [both(problem(SCRIPT))],
  "a refusal with a code of the library's own": [both(problem("file-changed"))],
  "word that the user has stopped it": [both(problem("aborted"))],
  "one octet after another": [both(drip)],
  "a redirect in a circle": [both((request, response) => said(307, { Location: request.url })(request, response))],
  "\"stored\" for the first segment, unread": [
    both((_request, response) => response.writeHead(201, { "Hoop-State": "stored", "Hoop-Missing": "" }).end()), 2 * LARGE,
  ],
};

/** Says to whoever has opened it what a bridge may say, and much that it may not; ANSWER is what a `put` or `look` gets. */
const FORGER = `<!doctype html><title>Bridge</title><script>
  const say = (message) => opener.postMessage(message, "*");
  const stored = { hoop: 1, type: "answer", seq: 1, status: 201, state: "stored", missing: "" };
  for (const message of [null, 5, "hello", [], {}, { hoop: "1", type: "hello" }, stored, { hoop: 1, type: "ready" }]) say(message);
  const frame = document.createElement("iframe");
  frame.srcdoc = "<script>top.opener.postMessage(" + JSON.stringify(stored) + ", '*')<\\/script>";
  document.documentElement.append(frame);
  addEventListener("message", ({ data: { type, id, seq } }) => {
    if (type === "begin") say({ hoop: 1, type: "ready", id });
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
    const stranger = await startStranger({ PUT: said(201, { "Hoop-State": "accepted", "Hoop-Missing": "", "Location": HACK_URL }) });
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
});

/** From now on a page's clock goes ten times as fast. */
function hastenClock() {
  const now = performance.now.bind(performance);
  const from = now();
  performance.now = () => from + 10 * (now() - from);
}
