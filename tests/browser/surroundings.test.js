// Where a form stands: under headers that are in Hoop's way, on a slow device, in a private window, and with a user who goes back. It is sent in any case, and
// what a developer can change is on the console.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { entries, startApplication } from "./application.js";
import { scenarios } from "./scenarios.js";

const OWN = { house: { wall: null } };
const PAGE = `<!doctype html><html lang="en"><title>A page</title><script type="module" src="/hoop/hoop.js" data-hoop></script>
<form method="post" action="/album" enctype="multipart/form-data" data-hoop="always"><input type="file" name="photo" required><button>Send</button></form>`;
/** Several segments, so that a slow device is seen at work. */
const LARGE = 40_000_000;

/** What stands in the way, what the console says of it, and whether the photo goes past the gateway. */
const HEADERS = {
  "connect-src 'self'": { header: { "Content-Security-Policy": "connect-src 'self'" }, says: /Add http:\/\/hoop\.local:4667 to connect-src/, permission: "granted", only: "chromium" },
  "upgrade-insecure-requests": { header: { "Content-Security-Policy": "upgrade-insecure-requests" }, says: /Leave it out of pages with uploads/, permission: "granted", only: "chromium" },
  "script-src without 'self'": { header: { "Content-Security-Policy": "script-src 'none'" }, says: /script-src/, silent: true },
  "Cross-Origin-Opener-Policy: same-origin": { header: { "Cross-Origin-Opener-Policy": "same-origin" }, says: /Use same-origin-allow-popups/, permission: "denied", bridge: true },
  "Permissions-Policy: local-network=()": { header: { "Permissions-Policy": "local-network=()" }, says: /Use local-network=\(self\)/, bridge: true, arrives: "bridge", only: "chromium" },
  "Permissions-Policy: local-network-access=()": { header: { "Permissions-Policy": "local-network-access=()" }, says: /Use local-network-access=\(self\)/, bridge: true, arrives: "bridge", only: "chromium" },
};

scenarios(({ test, browser }) => {
  async function showing(t, page) {
    const application = await startApplication({ "/": page });
    t.after(() => application.stop());
    return application;
  }

  async function send(scene, photo) {
    await scene.choose([photo]);
    await scene.submit();
    if (browser === "firefox") await scene.answer("bridge", "proceed");
  }

  async function assertArrived(application, ...photos) {
    await application.until(photos.length);
    const came = (await Promise.all(application.uploads.map(entries))).map(([[, { bytes }]]) => bytes);
    assert.deepEqual(came, await Promise.all(photos.map(({ path }) => readFile(path))));
  }

  for (const [what, { header, says, permission, silent, bridge, arrives, only }] of Object.entries(HEADERS)) {
    if (only && only !== browser) continue;
    test(`${what}: the form is sent, and the console says what to change`, { ...OWN, permission }, async (scene, t) => {
      const application = await showing(t, { html: PAGE, headers: header });
      const photo = await scene.house.photo("a.jpg", 300_000);
      await scene.open();
      await scene.choose([photo]);
      await scene.submit();
      if (bridge) await scene.answer("bridge", "proceed");
      // Firefox does not tell the driver what it says itself.
      if (!silent || browser === "chromium") await scene.until(() => scene.console.some((text) => says.test(text)), "a word on the console");
      if (arrives) assert.equal((await scene.state("free")).way, arrives);
      else if (!silent) await scene.state("ordinary");
      await assertArrived(application, photo);
    });
  }

  test("a private window keeps nothing, and sends all the same", { ...OWN, permission: "granted" }, async (scene, t) => {
    const application = await showing(t, PAGE);
    const photo = await scene.house.photo("a.jpg", 300_000);
    await scene.page.evaluateOnNewDocument(() => {
      // As browsers do where a site may keep nothing.
      indexedDB.open = () => { throw new DOMException("The operation is insecure.", "SecurityError"); };
    });
    await scene.open();
    await send(scene, photo);
    await scene.state("delivered");
    await assertArrived(application, photo);
  });

  test("whoever comes back to the page finds the form as it was, and can send it again", { ...OWN, permission: "denied" }, async (scene, t) => {
    const application = await showing(t, PAGE);
    const [first, second] = [await scene.house.photo("a.jpg", 300_000), await scene.house.photo("b.jpg", 300_000)];
    await scene.open();
    await scene.choose([first]);
    await scene.submit();
    await Promise.all([scene.page.waitForNavigation(), scene.answer("bridge", "decline")]);
    await Promise.all([scene.page.waitForSelector("form[enctype]"), scene.page.evaluate(() => void setTimeout(() => history.back()))]);
    if (browser === "chromium") assert.equal(await scene.page.evaluate(() => performance.getEntriesByType("navigation")[0].type), "navigate", "this is the page that was left");
    assert.equal(await scene.page.$("hoop-card"), null);
    await scene.choose([second]);
    await scene.submit();
    await scene.answer("bridge", "proceed");
    await scene.state("free");
    await assertArrived(application, first, second);
  });

  if (browser !== "chromium") return;

  test("on a slow device the page is still there for its user, and the photo arrives", { house: { ...OWN.house, links: ["gateway"] }, permission: "granted" }, async (scene, t) => {
    const application = await showing(t, `<button id="other" onclick="clicked = last">Other</button><script>addEventListener("hoop:state", ({ detail }) => (last = detail), true)</script>${PAGE}`);
    const photo = await scene.house.photo("a.jpg", LARGE);
    await scene.page.emulateCPUThrottling(6);
    const half = scene.house.links.gateway.holdAfter(LARGE / 4);
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await half;
    await scene.click("#other");
    const { phase, sent, total } = await scene.page.evaluate("clicked");
    assert.ok(phase === "handing" && sent < total, `${phase} ${sent} of ${total}`);
    scene.house.links.gateway.release();
    await scene.state("delivered");
    await assertArrived(application, photo);
  });
});
