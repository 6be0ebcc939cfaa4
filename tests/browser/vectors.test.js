// The shared test vectors in real browsers: the very checks that run in Node (tests/interop/node/vectors.js), on a page of a
// secure origin; and the library's own sealing, which makes what is canonical again.

import "./namespace.js";
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { bundle } from "../../web/test/sources.mjs";
import { BROWSERS, launch } from "./browsers.js";
import { startPages } from "./pages.js";

const INTEROP = new URL("../interop/node/", import.meta.url);
const FOLDER = new URL("../../vectors/", import.meta.url);
const LIMITS = { timeout: 300_000 };

const names = readdirSync(FOLDER, { recursive: true }).filter((name) => /\/.*\.json$/.test(name));

const PAGES = {
  "/": `<!doctype html><title>Vectors</title><script type="module">
    import { check } from "/vectors.js";
    import { sealer } from "/seal.js";
    window.outcome = (vector) => check(vector, sealer).then(() => null, (error) => String(error));
  </script>`,
  "/vectors.js": new URL("vectors.js", INTEROP),
  "/hoop.js": new URL("hoop.js", INTEROP),
  "/seal.js": await bundle("seal", "es2022"),
};

let pages;
before(async () => (pages = await startPages(PAGES)));
after(() => pages?.stop());

for (const browser of BROWSERS) {
  describe(browser, LIMITS, () => {
    let running;
    let page;
    before(async () => {
      running = await launch(browser);
      page = await running.browser.newPage();
      await page.goto("https://photos.example/");
      await page.waitForFunction("window.outcome !== undefined");
    });
    after(() => running?.close());

    const check = (vector) => page.evaluate((given) => window.outcome(given), vector);

    for (const name of names) {
      const vector = JSON.parse(readFileSync(new URL(name, FOLDER), "utf8"));
      test(`${name}: ${vector.about}`, async () => assert.equal(await check(vector), null));
    }

    test("a vector that says another thing fails", async () => {
      const vector = JSON.parse(readFileSync(new URL("ticket/valid.json", FOLDER), "utf8"));
      assert.match(await check({ ...vector, content: {} }), /content/);
    });
  });
}
