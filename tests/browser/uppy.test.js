// The page with Uppy, as the photo wall has it: two files at once, straight to the gateway in Chromium and by its window in Firefox.

import assert from "node:assert/strict";
import { scenarios } from "./scenarios.js";
// Builds the page; what it needs is installed with everything else (tools/setup).
import "../../web/uppy/build.mjs";

scenarios(({ browser, test }) => {
  test("Uppy hands two files to the gateway and says that it is complete, and both arrive though the tab has closed", {
    permission: "granted", house: { signIn: true, links: ["delivery"] },
  }, async (scene) => {
    const { house, page } = scene;
    const photos = [await house.photo("lake.jpg", 3_000_000), await house.photo("evening.jpg", 100_001)];
    const delivering = house.links.delivery.holdAfter(0);
    await scene.signIn();
    await scene.open("/uppy/");
    await scene.choose(photos, ".uppy-Dashboard-input");
    await scene.click(".uppy-StatusBar-actionBtn--upload");
    const window = browser === "firefox" ? scene.window() : null;
    await scene.click("hoop-card >>> nav #proceed");
    await window;
    await page.waitForSelector(".uppy-StatusBar.is-complete");
    assert.deepEqual(await page.evaluate(() => globalThis.uppy.getFiles().map(({ name, progress }) => [name, progress.uploadComplete])),
      photos.map(({ name }) => [name, true]));
    await delivering;
    assert.deepEqual(house.arrived, [], "it is at the gateway, and no further");
    assert.equal(await scene.leave(), false, "nobody is warned who may leave");
    house.links.delivery.release();
    await house.assertArrived(...photos);
    assert.ok(!scene.requests.includes(`POST ${house.origin}/photos`), "nothing went the ordinary way");
  });
});
