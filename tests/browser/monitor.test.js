// The gateway's pages, `/monitor?ID=…` and `/`, while an upload comes and goes: live, and whole with script off.

import assert from "node:assert/strict";
import { scenarios } from "./scenarios.js";

const PHOTO = 20_000_000;
/** More than two segments: of two that are under way a gateway may know nothing yet. */
const HALF = 17_500_000;
/** So little of it has been delivered then that what is left does not fit the sockets between. */
const LITTLE = 5_000_000;

/** Waits until the page says so; its tab may be in the background, where no frames are drawn. */
function says(page, selector, text) {
  const has = (selector, text) => document.querySelector(selector)?.textContent.includes(text);
  return page.waitForFunction(has, { polling: "mutation" }, selector, text);
}

const percent = (page) => page.$eval("[role=progressbar]", (ring) => Number(ring.getAttribute("aria-valuenow")));
const stepsDone = (page) => page.$eval(".chain", (chain) => chain.querySelectorAll(".done").length);
const textOf = (page, selector) => page.$eval(selector, (element) => element.textContent);

scenarios(({ browser, test }) => {
  test("the gateway's pages show an upload from its first bytes to its delivery without a reload, and tell as much with script off", {
    permission: "granted", house: { links: ["gateway", "delivery"] },
  }, async (scene) => {
    const { house } = scene;
    const photo = await house.photo("lake.jpg", PHOTO);
    const [half, delivering] = [house.links.gateway.holdAfter(HALF), house.links.delivery.holdAfter(LITTLE)];
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await scene.answer(browser === "firefox" ? "bridge" : "offer", "proceed");
    await half;
    const { id } = scene.states.at(-1);
    const bare = await scene.withoutScript();
    const [upload, overview] = [await scene.newPage(), await scene.newPage()];
    for (const [page, path] of [[upload, `/monitor?ID=${id}`], [overview, "/"], [bare.page, `/monitor?ID=${id}`]]) {
      await page.goto(house.pastLink(path));
    }
    for (const page of [upload, overview]) await page.evaluate(() => (window.stays = true));

    for (const page of [upload, bare.page]) {
      assert.equal(await textOf(page, "h1"), "Coming in");
      assert.ok((await percent(page)) > 0 && (await percent(page)) < 100);
      assert.match(await textOf(page, "main"), /Please stay/);
    }
    assert.match(await textOf(overview, ".rows"), /Coming in/);
    const text = await textOf(overview, "body");
    assert.ok(!text.includes(id) && !text.includes("photos.example"), "anybody on the LAN may see this page");

    house.links.gateway.release();
    await delivering;
    await says(upload, "h1", "On its way");
    await upload.waitForFunction(() => document.querySelector("[role=progressbar]")?.getAttribute("aria-valuenow") > 0, { polling: "mutation" });
    assert.ok((await percent(upload)) < 100);
    await says(overview, ".rows", "On its way");
    assert.equal(await stepsDone(upload), 1, "stored here, and no more");

    // A page without script loads itself anew.
    const anew = bare.page.waitForNavigation();
    house.links.delivery.release();
    await says(upload, "h1", "Done");
    await says(overview, ".rows", "Done");
    await house.assertArrived(photo);
    await anew;
    await bare.page.goto(bare.page.url());
    for (const page of [upload, bare.page]) {
      assert.equal(await textOf(page, "h1"), "Done");
      assert.equal(await stepsDone(page), 3, "stored, received, accepted");
      assert.doesNotMatch(await textOf(page, "html"), /lake/, "a gateway knows no names");
    }
    for (const page of [upload, overview]) assert.ok(await page.evaluate(() => window.stays), "the page was not loaded anew");
    await bare.page.goto(house.pastLink("/"));
    assert.match(await textOf(bare.page, ".rows"), /Done/);
  });
});
