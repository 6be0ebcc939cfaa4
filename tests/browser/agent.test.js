// Browsers with `hoop agent` as their proxy: pages and downloads go on in another network, and the browser knows nothing of it.

import "./namespace.js";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { BROWSERS, launch } from "./browsers.js";
import { Elsewhere } from "./elsewhere.js";

const IMAGES = 150;
/** How long there is no network, and how long the file is: `HOOP_OUTAGE_SECS` and `HOOP_FILE_MB` make it more. */
const OUTAGE_MS = Number(process.env.HOOP_OUTAGE_SECS ?? 4) * 1_000;
const FILE_BYTES = Number(process.env.HOOP_FILE_MB ?? 20) * 1_000_000;
const PATIENCE_MS = OUTAGE_MS + 120_000;
const LIMITS = { timeout: PATIENCE_MS + 120_000 };

let elsewhere;
before(async () => {
  elsewhere = await Elsewhere.open();
});
after(() => elsewhere?.close());

/** Once the site holds something back there is no network for a while, and the site goes on. Afterwards it is another network, with another address, or the same. */
async function outage({ isAnother }) {
  await elsewhere.held();
  await (isAnother ? elsewhere.goAway() : elsewhere.darken());
  elsewhere.release();
  await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS));
  await (isAnother ? elsewhere.comeBack() : elsewhere.lighten());
}

/** What the site's file is: its bytes count up from 0 to 255, again and again. */
function fileHash() {
  const hash = createHash("sha256");
  const piece = Buffer.alloc(64 * 1024, Buffer.from(Array.from({ length: 256 }, (_, at) => at)));
  for (let left = FILE_BYTES; left > 0; left -= piece.length) hash.update(piece.subarray(0, Math.min(piece.length, left)));
  return hash.digest("hex");
}

/** Where an address of the machine changes, Chromium itself gives up what waits for a connection (ERR_NETWORK_CHANGED), with a proxy as without one. What is under way goes on. */
const KEEPS_WAITING = { chromium: false, firefox: true };

for (const name of BROWSERS) {
  describe(name, () => {
    let running;
    before(async () => {
      running = await launch(name, { proxyPac: elsewhere.proxyPac, commandMs: PATIENCE_MS });
    });
    after(() => running?.close());

    /** A new page, and what went wrong in it. */
    async function open() {
      const page = await running.browser.newPage();
      const failed = [];
      page.on("requestfailed", (request) => failed.push(`${request.url()}: ${request.failure()?.errorText}`));
      page.on("response", async (response) => {
        if (!response.ok()) failed.push(`${response.url()}: ${response.status()} ${await response.text().catch(() => "")}`);
      });
      return { page, failed };
    }

    for (const scheme of ["http", "https"]) {
      test(`a page of ${IMAGES} images over ${scheme} is whole, though half of them come after an outage`, LIMITS, async () => {
        const { page, failed } = await open();
        elsewhere.hold(IMAGES / 2, null);
        const over = outage({ isAnother: KEEPS_WAITING[name] });
        await page.goto(`${scheme}://web.example/`, { waitUntil: "load", timeout: PATIENCE_MS });
        await over;
        const loaded = await page.evaluate(() => [...document.images].filter((image) => image.complete && image.naturalWidth === 1).length);
        assert.deepEqual(failed.filter((one) => !one.includes("favicon")), []);
        assert.equal(loaded, IMAGES);
        await page.close();
      });
    }

    test("a download over https goes on in another network, and is what was sent", LIMITS, async () => {
      const { page } = await open();
      await page.goto(`${elsewhere.secureOrigin}/`, { timeout: PATIENCE_MS });
      elsewhere.hold(null, FILE_BYTES / 2);
      const over = outage({ isAnother: true });
      const came = await page.evaluate(async (path) => {
        const bytes = await (await fetch(path)).arrayBuffer();
        const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
        return { length: bytes.byteLength, hash: [...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("") };
      }, `/file/${FILE_BYTES}`);
      await over;
      assert.deepEqual(came, { length: FILE_BYTES, hash: fileHash() });
      await page.close();
    });
  });
}
