// From the page straight to the gateway, and what comes of each answer to the browser's question. Chromium: Firefox never lets a page there.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { entries, startApplication } from "./application.js";
import { scenarios } from "./scenarios.js";

const isPreflight = (request) => request.startsWith("OPTIONS http://hoop.local:4667/offload/");
const isPart = (request) => request.startsWith("PUT http://hoop.local:4667/offload/");

scenarios(({ browser, test }) => {
  if (browser !== "chromium") return;

  test("with leave a photo goes straight to the gateway, is in its owner's list at once, and arrives though the tab has closed", {
    permission: "granted", house: { signIn: true, links: ["delivery"] },
  }, async (scene) => {
    const { house } = scene;
    const photo = await house.photo("lake.jpg", 60_000_000);
    const delivering = house.links.delivery.holdAfter(0);
    await scene.signIn();
    await scene.choose([photo]);
    await scene.page.type("input[name=caption]", "At the lake");
    await scene.submit();
    await scene.answer("offer", "proceed");
    const free = await scene.state("free");
    assert.equal(await scene.leave(), false, "nobody is warned who may leave");
    await delivering;
    assert.deepEqual(house.arrived, [], "nothing has left the gateway yet");

    const page = await scene.newPage();
    await page.goto(`${house.origin}/hoop/uploads`);
    const row = await page.$eval(`#u-${free.id}`, (element) => element.textContent);
    for (const text of ["lake.jpg", "At the lake", "On its way"]) assert.ok(row.includes(text), `${text} in ${row}`);
    await page.goto(await page.$eval(`#u-${free.id} a[href^="http://hoop.local"]`, (link) => link.href));
    assert.equal(page.url(), free.monitor);
    assert.doesNotMatch(await page.content(), /lake/i, "a gateway knows no names");

    house.links.delivery.release();
    await house.assertArrived(photo);
    assert.deepEqual(scene.phases, ["looking", "asking", "looking", "handing", "free"]);
    assert.deepEqual(free, { ...free, way: "direct", gateway: "hoop.local:4667", sent: free.total });
    const sent = scene.states.filter(({ phase }) => phase === "handing").map(({ sent }) => sent);
    assert.ok(sent.some((bytes) => bytes > 0 && bytes < free.total), "there is progress");
    // Only the first three parts begin before a preflight is answered.
    const [preflights, parts] = [isPreflight, isPart].map((is) => scene.requests.filter(is).length);
    assert.ok(preflights >= 1 && preflights <= 3 && parts > 3, scene.requests.join("\n"));
  });

  test("a page that stays is told when its photo is delivered, and where it is", { permission: "granted" }, async (scene) => {
    const photo = await scene.house.photo("a.jpg");
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await scene.answer("offer", "proceed");
    const { location } = await scene.state("delivered");
    assert.equal(location, `${scene.house.origin}/`);
    await scene.house.assertArrived(photo);
    assert.ok(!scene.requests.includes(`POST ${scene.house.origin}/photos`), "nothing went the ordinary way");
  });

  test("the browser is asked for leave only after a click, and with leave the photo goes straight to the gateway", {}, async (scene) => {
    const photo = await scene.house.photo("a.jpg");
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await scene.state(({ question }) => question === "permission");
    assert.ok(!scene.requests.some((request) => request.includes("hoop.local")), "nobody has been asked yet");
    await scene.answerLocalNetwork("granted");
    await scene.answer("permission", "proceed");
    assert.equal((await scene.state("free")).way, "direct");
    await scene.house.assertArrived(photo);
  });

  test("who declines the gateway sends the photo as any form does, once", { permission: "granted" }, async (scene) => {
    const photo = await scene.house.photo("a.jpg");
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await Promise.all([scene.page.waitForNavigation(), scene.answer("offer", "decline")]);
    await scene.house.assertArrived(photo);
    assert.ok(!scene.requests.some((request) => request.includes("/hoop/tickets")), "no ticket is fetched");
  });

  for (const [claim, options] of [
    ["who dismisses the browser's question is offered the gateway's window, and the photo goes by it", {}],
    ["who has denied leave is offered the gateway's window, and the photo goes by it", { permission: "denied" }],
  ]) {
    test(claim, options, async (scene) => {
      const photo = await scene.house.photo("a.jpg");
      await scene.open();
      await scene.choose([photo]);
      await scene.submit();
      if (!options.permission) await scene.answer("permission", "proceed");
      await scene.answer("bridge", "proceed");
      assert.equal((await scene.state("free")).way, "bridge");
      await scene.house.assertArrived(photo);
      assert.equal(scene.states.some(({ question }) => question === "permission"), !options.permission, "who has said no is not asked again");
    });
  }

  test("who has denied leave and declines the window sends the photo as any form does, once", { permission: "denied" }, async (scene) => {
    const photo = await scene.house.photo("a.jpg");
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await Promise.all([scene.page.waitForNavigation(), scene.answer("bridge", "decline")]);
    await scene.house.assertArrived(photo);
    assert.equal(scene.states.at(-1).phase, "ordinary");
    assert.ok(!scene.requests.some((request) => request.includes("/hoop/tickets")), "no ticket is fetched");
  });
});

const FORM = `<!doctype html><html lang="en"><title>A form</title><script type="module" src="/hoop/hoop.js" data-hoop="form[enctype]"></script>
<form method="post" action="/album?year=2026" enctype="multipart/form-data"><input name="caption" value="grün &amp; blau"><input type="file" name="photo" multiple>
<button name="album" value="garden">Send</button></form>`;

scenarios(({ browser, test }) => {
  test("without a gateway the form is sent once, as the browser sends it, with the value of the button that was pressed", {
    permission: "granted", house: { gateway: false, wall: null },
  }, async (scene) => {
    const application = await startApplication({ "/": FORM });
    try {
      const photo = await scene.house.photo("a.jpg", 300_000);
      await scene.open();
      await scene.choose([photo]);
      await scene.submit();
      const gone = scene.page.waitForNavigation();
      if (browser === "firefox") await scene.answer("bridge", "proceed");
      await gone;
      assert.equal(await scene.page.title(), "Thanks");
      const bytes = await readFile(photo.path);
      assert.equal(application.uploads.length, 1);
      const [upload] = application.uploads;
      assert.equal(upload.url, "/album?year=2026");
      assert.deepEqual(await entries(upload), [["caption", "grün & blau"], ["photo", { name: "a.jpg", bytes }], ["album", "garden"]]);
    } finally {
      await application.stop();
    }
  });
});
