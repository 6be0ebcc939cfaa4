// The ways that an upload goes, from the form's button to the application: straight to the gateway, by the gateway's window, and the
// ordinary one.

import assert from "node:assert/strict";
import { scenarios } from "./scenarios.js";

/** Chooses two photos and presses the button. */
async function drop(scene) {
  const photos = [await scene.house.photo("a.jpg", 3_000_000), await scene.house.photo("b.jpg", 1)];
  await scene.open("/");
  await scene.choose(photos);
  await scene.submit();
  return photos;
}

async function assertDelivered(scene, way, photos) {
  const free = await scene.state("free");
  assert.equal(free.way, way);
  await scene.house.assertArrived(...photos);
  await scene.state("delivered");
}

scenarios(({ test, browser }) => {
  if (browser === "chromium") {
    test("with leave, photos go straight to the gateway and arrive as they were", { permission: "granted" }, async (scene) => {
      const photos = await drop(scene);
      await scene.answer("offer", "proceed");
      await assertDelivered(scene, "direct", photos);
      assert.ok(!scene.requests.some((request) => request.startsWith("POST") && request.endsWith("/photos")), "nothing went the ordinary way");
    });

    test("without leave the window is offered, and used", { permission: "denied" }, async (scene) => {
      const photos = await drop(scene);
      await scene.answer("bridge", "proceed");
      await assertDelivered(scene, "bridge", photos);
      assert.ok(!scene.states.some(({ question }) => question === "permission"), "who has said no is not asked again");
    });
  } else {
    test("photos go by the gateway's window and arrive as they were", {}, async (scene) => {
      const photos = await drop(scene);
      await scene.answer("bridge", "proceed");
      await assertDelivered(scene, "bridge", photos);
    });
  }

  test("the gateway's window closes by itself", { permission: "denied" }, async (scene) => {
    await drop(scene);
    await scene.answer("bridge", "proceed");
    const window = await scene.window();
    if (!window.isClosed()) await new Promise((resolve) => window.once("close", resolve));
    await scene.state("delivered");
  });

  test("without a gateway photos go the ordinary way", { permission: "granted", house: { gateway: false } }, async (scene) => {
    const photos = await drop(scene);
    if (browser === "firefox") await scene.answer("bridge", "proceed");
    await scene.house.assertArrived(...photos);
    await scene.until(() => scene.requests.includes(`POST ${scene.house.origin}/photos`), "the form's own request");
  });

  test("who declines sends directly", { permission: "granted" }, async (scene) => {
    const photos = await drop(scene);
    await scene.answer(browser === "firefox" ? "bridge" : "offer", "decline");
    await scene.house.assertArrived(...photos);
    assert.ok(!scene.states.some(({ phase }) => phase === "handing"));
  });
});
