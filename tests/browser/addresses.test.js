// That the tests prove something: the page counts as public and the gateway as local, and the border between them is guarded.

import "./namespace.js";
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { BROWSERS, answerLocalNetwork, launch } from "./browsers.js";
import { startOpenGateway, startPages } from "./pages.js";

const ORIGIN = "https://photos.example";
const GATEWAY = "http://hoop.local:4667/test";
const LIMITS = { timeout: 120_000 };

let pages;
let gateway;
before(async () => {
  pages = await startPages({ "/": "<!doctype html><title>A page</title>" });
  gateway = await startOpenGateway();
});
after(() => Promise.all([pages?.stop(), gateway?.stop()]));

/** What a page's plain fetch from the gateway comes to, and what the gateway saw of it. */
async function fetched(running, { answer, options = {} } = {}) {
  const context = await running.browser.createBrowserContext();
  try {
    if (answer) await answerLocalNetwork(running, context, ORIGIN, answer);
    const page = await context.newPage();
    await page.goto(ORIGIN);
    gateway.asked.length = 0;
    const came = await page.evaluate(async (url, init) => {
      if (!isSecureContext) return "the page is no secure context";
      return fetch(url, init).then((response) => response.text(), (error) => error.name);
    }, GATEWAY, options);
    return { came, asked: [...gateway.asked] };
  } finally {
    await context.close();
  }
}

const REACHED = { came: "here", asked: ["GET /test"] };
const STOPPED = { came: "TypeError", asked: [] };

if (BROWSERS.includes("chromium")) {
  describe("chromium", LIMITS, () => {
    let running;
    before(async () => (running = await launch("chromium")));
    after(() => running?.close());

    test("without the user's leave a page does not reach the gateway", async () => {
      assert.deepEqual(await fetched(running), STOPPED);
    });
    test("denied leave is no leave", async () => {
      assert.deepEqual(await fetched(running, { answer: "denied" }), STOPPED);
    });
    test("with the user's leave it does", async () => {
      assert.deepEqual(await fetched(running, { answer: "granted" }), REACHED);
      assert.deepEqual(await fetched(running, { answer: "granted", options: { targetAddressSpace: "local" } }), REACHED);
    });
    test("the page is not local and the gateway is not loopback", async () => {
      assert.deepEqual(await fetched(running, { answer: "granted", options: { targetAddressSpace: "loopback" } }), STOPPED);
    });
  });

  test("chromium without the overrides: every page reaches the gateway, so nothing would be proven", LIMITS, async (t) => {
    const running = await launch("chromium", { addressSpaces: null });
    t.after(() => running.close());
    assert.deepEqual(await fetched(running), REACHED);
  });
}

if (BROWSERS.includes("firefox")) {
  test("firefox: a page of a secure origin never reaches a gateway without TLS", LIMITS, async (t) => {
    const running = await launch("firefox");
    t.after(() => running.close());
    assert.deepEqual(await fetched(running), STOPPED);
  });
}
