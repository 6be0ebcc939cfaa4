// A page of somebody else's does what it can with a gateway in its visitor's house: nothing of it is kept there, nothing can be read, and the site whose name it
// takes in vain gets nothing. What it sends is sealed as it should be, so that only who it is stands in its way; at the end the same bytes are taken from a program.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { HOOP } from "../interop/node/program.js";
import { startPages } from "./pages.js";
import { scenarios } from "./scenarios.js";

const EVIL = "https://evil.example:8443";
const EVIL_PLAIN = "http://evil.example:8080";
const GATEWAY = "http://hoop.local:4667";
const REBOUND = "http://rebound.example:4667";
const DEST = "https://photos.example/hoop/post";
/** Where the gateway is behind its link. */
const BEHIND = 14667;
const GATEWAY_ITSELF = `http://127.0.0.1:${BEHIND}`;
const BRIDGE = /bridge\.js/;

/** A beacon takes 64 KiB. */
const BEACON = 30_000;
/** Ticket and all, before the first record (docs/protocol.md §1). */
const PRELUDE = 128;

const PAGE = `<!doctype html><title>Win a prize</title><button onclick="bridge = open('${GATEWAY}/bridge', '_blank', 'popup')">Win</button>
<script>heard = []; addEventListener("message", ({ data }) => heard.push(data))</script>`;

/** What a device of another visitor's has ready: an upload of a photo, as bytes that any gateway takes. */
async function sealed(house, photo) {
  const path = `${photo.path}.sealed`;
  await promisify(execFile)(HOOP, [
    "seal", "-F", `photo=@${photo.path}`, "--ca", house.file("certificate.pem"), "--resolve", "photos.example:443:127.0.0.1", "--state", house.file("device"),
    "-o", path, `${house.origin}/photos`,
  ]);
  const bytes = await readFile(path);
  return { path, photo, bytes, id: bytes.subarray(26, 42).toString("hex") };
}

/** The gateway's answer to a program. */
const handOver = async (body) => (await fetch(`${GATEWAY_ITSELF}/offload?dest=${encodeURIComponent(DEST)}`, { method: "POST", body })).status;

scenarios(({ test, browser }) => {
  test("a hostile page gets nothing into a gateway and nothing out of it", { house: { links: ["gateway"] } }, async (scene, t) => {
    const { house, page } = scene;
    const link = house.links.gateway;
    const theirs = await sealed(house, await house.photo("theirs.jpg"));
    assert.equal(await handOver(theirs.bytes), 201);
    const { path, bytes, id, photo } = await sealed(house, await house.photo("a.jpg", BEACON));
    const pages = { "/": PAGE, "/sealed": pathToFileURL(path) };
    for (const where of [{ port: 8443 }, { port: 8080, plain: true }]) {
      const server = await startPages(pages, { name: "evil.example", ...where });
      t.after(() => server.stop());
    }
    // The visitor has been talked into it.
    await scene.answerLocalNetwork("granted", EVIL);

    await t.test("by requests", async () => {
      await page.goto(EVIL);
      const refused = [];
      page.on("response", (response) => response.url().startsWith(`${GATEWAY}/offload?`) && response.request().method() === "POST" && refused.push(response.status()));
      const came = await page.evaluate(async (gateway, dest, id, theirs) => {
        const blob = await (await fetch("/sealed")).blob();
        const text = new Blob([blob], { type: "text/plain" });
        const offload = `${gateway}/offload?dest=${encodeURIComponent(dest)}`;
        const ask = async (url, options = {}) => {
          try {
            const response = await fetch(url, options);
            return response.type === "opaque" ? `opaque ${await response.text()}`.trim() : `${response.status} ${await response.text()}`;
          } catch (error) {
            return error.name;
          }
        };
        return {
          "simple": await ask(offload, { method: "POST", mode: "no-cors", body: text }),
          "without a type": await ask(offload, { method: "POST", mode: "no-cors", body: new Blob([blob]) }),
          "a beacon": navigator.sendBeacon(offload, text) && "sent",
          "as a page of Hoop's": await ask(offload, { method: "POST", headers: { "Hoop-Version": "1" }, body: blob }),
          "a range": await ask(`${gateway}/offload/${id}?dest=${encodeURIComponent(dest)}`, { method: "PUT", headers: { "Hoop-Version": "1" }, body: blob }),
          "what it does now": await ask(gateway),
          "what it does now, opaque": await ask(gateway, { mode: "no-cors" }),
          "of somebody's upload": await ask(`${gateway}/monitor?ID=${theirs}`, { headers: { "Hoop-Version": "1", Accept: "application/json" } }),
        };
      }, GATEWAY, DEST, id, theirs.id);
      assert.equal(came["a beacon"], browser === "chromium" && "sent");
      delete came["a beacon"];
      for (const [what, answer] of Object.entries(came)) assert.match(answer, /^(opaque|TypeError)$/, what);
      // Firefox lets nothing out.
      if (browser === "chromium") assert.ok(refused.length > 0 && refused.every((status) => status === 403), `the gateway has answered ${refused}`);
    });

    for (const enctype of ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"]) {
      await t.test(`by a form of ${enctype}`, async () => {
        const page = await scene.newPage();
        await page.goto(EVIL_PLAIN);
        const answer = page.waitForResponse((response) => response.url().startsWith(GATEWAY));
        await page.evaluate((action, enctype) => {
          const form = document.createElement("form");
          Object.assign(form, { action, enctype, method: "post" });
          form.append(Object.assign(document.createElement("textarea"), { name: "Hoop-Version", value: "1" }));
          document.body.append(form);
          setTimeout(() => form.submit());
        }, `${GATEWAY}/offload?dest=${encodeURIComponent(DEST)}`, enctype);
        assert.equal((await answer).status(), 403);
        await page.close();
      });
    }

    await t.test("by the bridge", async () => {
      await page.goto(EVIL);
      await scene.click("button");
      const window = await scene.window();
      await page.waitForFunction("heard.length > 0");
      assert.match(await window.content(), BRIDGE);
      await page.evaluate(async (gateway, dest, id, total, prelude) => {
        const blob = await (await fetch("/sealed")).blob();
        const own = { hoop: 1, type: "begin", id, dest: `${location.origin}/hoop/post`, total, prelude };
        const say = (message) => window.bridge.postMessage(message, gateway);
        for (const message of [null, 7, "begin", [], {}, { hoop: 2, type: "begin" }, { hoop: 1 }, { hoop: 1, type: "begin" }, { hoop: 1, type: "put", seq: 1, first: 0, last: total - 1, blob }]) say(message);
        say({ ...own, dest });
        say({ ...own, dest: [dest] });
        say({ hoop: 1, type: "put", seq: 2, first: 0, last: total - 1, blob });
        // Not its opener, though of the same site.
        const frame = document.createElement("iframe");
        frame.srcdoc = "<!doctype html>";
        document.body.append(frame);
        await new Promise((resolve) => (frame.onload = resolve));
        frame.contentWindow.eval(`(message, target) => parent.bridge.postMessage(message, target)`)({ ...own, id: "0".repeat(32) }, gateway);
        say(own);
        say({ hoop: 1, type: "look", seq: 3 });
      }, GATEWAY, DEST, id, bytes.length, bytes.subarray(0, PRELUDE).toString("base64url"));
      await page.waitForFunction("heard.some(({ type }) => type === 'answer')");
      const heard = (await page.evaluate("heard")).filter(({ type }) => type !== "hello" && type !== "progress");
      assert.deepEqual(heard.map(({ type, code, seq, id }) => [type, code ?? id, seq].filter((part) => part !== undefined)), [
        ["refused", "request-invalid"], ["refused", "origin-forbidden"], ["refused", "request-invalid"], ["ready", id], ["answer", 3],
      ]);
      assert.match(await window.$eval("#site", (element) => element.textContent), /evil\.example/, "the visitor sees for whom the window works");
      await window.close({ runBeforeUnload: false });
    });

    await t.test("by a frame", async () => {
      await page.goto(EVIL);
      await page.evaluate((url) => new Promise((resolve) => {
        const frame = document.createElement("iframe");
        frame.onload = frame.onerror = resolve;
        frame.src = url;
        document.body.append(frame);
      }), `${GATEWAY}/bridge`);
      const [, frame] = page.frames();
      assert.doesNotMatch(await frame.content(), BRIDGE);
    });

    await t.test("by a name that turns to the gateway's address", async () => {
      await link.turn(8080);
      await page.goto(REBOUND);
      await link.turn(BEHIND);
      const came = await page.evaluate(async (dest, id, sealed) => {
        const body = Uint8Array.from(atob(sealed), (byte) => byte.charCodeAt(0));
        const headers = { "Hoop-Version": "1" };
        const asked = [["/test", { headers }], ["/", {}], [`/monitor?ID=${id}`, { headers }], [`/offload?dest=${encodeURIComponent(dest)}`, { method: "POST", headers, body }], ["/bridge", {}]];
        return Promise.all(asked.map(([path, options]) => fetch(path, options).then(async (response) => [response.status, (await response.json()).code])));
      }, DEST, theirs.id, bytes.toString("base64"));
      assert.deepEqual(came, Array(5).fill([421, "host-forbidden"]));
    });

    await house.assertArrived(theirs.photo);
    const { recent } = await (await fetch(GATEWAY_ITSELF, { headers: { Accept: "application/json" } })).json();
    assert.deepEqual(recent.map(({ total }) => total), [theirs.bytes.length], "of the page's nothing was kept");
    assert.equal(await handOver(bytes), 201, "though it was in order");
    await house.assertArrived(theirs.photo, photo);
  });
});
