// By the gateway's window, in both browsers: who may close what, and when.

import assert from "node:assert/strict";
import { scenarios } from "./scenarios.js";

/** Three segments, and where the second is under way. */
const PHOTO = 20_000_000;
const PIECES = 3;
const HALF = 11_000_000;
const HELD = { house: { links: ["gateway"] } };

/** Sends a photo and lets the gateway's window open; returns the window's page. */
async function toWindow(scene, photo) {
  await scene.open();
  await scene.choose([photo]);
  await scene.submit();
  if (scene.browser === "chromium") await scene.answer("permission", "proceed");
  await scene.answer("bridge", "proceed");
  return scene.window();
}

const closed = (page) => page.isClosed() || new Promise((resolve) => page.once("close", resolve));

scenarios(({ test }) => {
  test("a click opens the window, the photo goes by it, and the window closes itself", {}, async (scene) => {
    const photo = await scene.house.photo("a.jpg", PHOTO);
    const window = await toWindow(scene, photo);
    const free = await scene.state("free");
    assert.equal(free.way, "bridge");
    assert.equal(new URL(free.monitor).host, "hoop.local:4667");
    assert.equal(await scene.leave(), false, "nobody is warned who may leave");
    await closed(window);
    await scene.house.assertArrived(photo);
  });

  test("a page that is closed once the window has each piece is warned of, and the window finishes alone", HELD, async (scene) => {
    const { house } = scene;
    const photo = await house.photo("a.jpg", PHOTO);
    const half = house.links.gateway.holdAfter(HALF);
    const window = await toWindow(scene, photo);
    await half;
    await scene.until(() => scene.pieces.size === PIECES, "the window has each piece");
    assert.equal(await scene.leave(), true, "nobody has said that it is stored");
    assert.deepEqual(house.arrived, []);
    house.links.gateway.release();
    await closed(window);
    await house.assertArrived(photo);
  });

  for (const [claim, answer, way] of [
    ["whoever closed the window half-way can open it again, and the photo arrives once", "proceed", "bridge"],
    ["whoever closed the window half-way can send the rest to the service, and the photo arrives once", "decline", "service"],
  ]) {
    test(claim, HELD, async (scene) => {
      const { house } = scene;
      const photo = await house.photo("a.jpg", PHOTO);
      const half = house.links.gateway.holdAfter(HALF);
      const window = await toWindow(scene, photo);
      await half;
      await scene.until(() => scene.pieces.size === PIECES, "the window has each piece");
      await window.close();
      house.links.gateway.release();
      await scene.answer("retry", answer);
      const over = await scene.state(({ phase }) => phase === "free" || phase === "received");
      assert.equal(over.way, way);
      await house.assertArrived(photo);
    });
  }

  test("without a gateway behind the window the form is sent as any form is, once", { house: { gateway: false } }, async (scene) => {
    const photo = await scene.house.photo("a.jpg");
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    if (scene.browser === "chromium") await scene.answer("permission", "proceed");
    await Promise.all([scene.page.waitForNavigation(), scene.answer("bridge", "proceed")]);
    await scene.house.assertArrived(photo);
    assert.equal(scene.states.at(-1).phase, "ordinary");
  });
});
