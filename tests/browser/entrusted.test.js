// Browsers that trust the authority of `hoop agent trust`: their requests to an entrusted host are made by the relay.

import "./namespace.js";
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { BROWSERS, launch } from "./browsers.js";
import { Elsewhere } from "./elsewhere.js";

const IMAGES = 150;
/** How long there is no network: `HOOP_OUTAGE_SECS` makes it more. */
const OUTAGE_MS = Number(process.env.HOOP_OUTAGE_SECS ?? 2) * 1_000;
const PATIENCE_MS = OUTAGE_MS + 120_000;
const LIMITS = { timeout: PATIENCE_MS };

let elsewhere;
before(async () => {
  elsewhere = await Elsewhere.open({ isEntrusted: true });
});
after(() => elsewhere?.close());

for (const name of BROWSERS) {
  describe(name, () => {
    let running;
    before(async () => {
      running = await launch(name, { proxyPac: elsewhere.proxyPac, authority: elsewhere.authority, commandMs: PATIENCE_MS });
    });
    after(() => running?.close());

    test(`a page of ${IMAGES} images comes over HTTP/2 by way of the relay, and is whole after an outage`, LIMITS, async () => {
      const page = await running.browser.newPage();
      elsewhere.hold(IMAGES / 2, null);
      const answered = page.goto(`${elsewhere.secureOrigin}/`, { waitUntil: "load", timeout: PATIENCE_MS });
      await elsewhere.held();
      await elsewhere.darken();
      elsewhere.release();
      await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS));
      await elsewhere.lighten();
      const response = await answered;
      assert.equal(response.headers().via, "1.1 hoop");
      const seen = await page.evaluate(() => {
        const protocols = performance.getEntriesByType("resource").map((entry) => entry.nextHopProtocol);
        const loaded = [...document.images].filter((image) => image.complete && image.naturalWidth === 1).length;
        return { loaded, protocols: [...new Set(protocols)] };
      });
      assert.deepEqual(seen, { loaded: IMAGES, protocols: ["h2"] });
      await page.close();
    });

    test("a WebSocket to it goes through the agent", LIMITS, async () => {
      const page = await running.browser.newPage();
      await page.goto(`${elsewhere.secureOrigin}/image/0`, { timeout: PATIENCE_MS });
      const said = await page.evaluate((url) => new Promise((resolve, reject) => {
        const socket = new WebSocket(url);
        socket.onmessage = ({ data }) => resolve(data);
        socket.onclose = ({ code }) => reject(new Error(`it closed with ${code}`));
      }), elsewhere.secureOrigin.replace("https:", "wss:"));
      assert.equal(said, "hello");
      await page.close();
    });
  });
}
