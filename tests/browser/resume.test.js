// A page that was reloaded half-way, whose user chooses the same file again, or not the same.

import assert from "node:assert/strict";
import { scenarios } from "./scenarios.js";

/** Five segments; so much has gone out when the page is reloaded. */
const PHOTO = 36_000_000;
const HALF = 20_000_000;
/** What requests have besides their bodies, preflights and looks included; less than a record. */
const HEADS = 60_000;

/** Chooses a photo and sends it off to the gateway. */
async function send(scene, photo) {
  await scene.choose([photo]);
  await scene.submit();
  if (scene.browser === "firefox") return scene.answer("bridge", "proceed");
  // What was begun is gone on with, and nobody is asked.
  const { question } = await scene.state(({ question, phase }) => question === "offer" || phase === "handing");
  if (question) await scene.answer("offer", "proceed");
}

/** Sends a photo and reloads the page half-way. Resolves to the upload's id, and how much of it the gateway has then. */
async function breakOff(scene, photo) {
  const { gateway } = scene.house.links;
  const half = gateway.holdAfter(HALF);
  await send(scene, photo);
  await half;
  const { id } = await scene.state(({ id }) => id);
  if (scene.browser === "firefox") await (await scene.window()).close();
  let asked = false;
  scene.page.once("dialog", (dialog) => {
    asked = true;
    void dialog.accept();
  });
  await scene.page.reload();
  // WebDriver answers this dialog by itself.
  if (scene.browser === "chromium") assert.ok(asked, "who would lose something is warned");
  await gateway.cut();
  await gateway.mend();
  scene.states.length = 0;
  const { stored } = await scene.house.ask(id);
  assert.ok(stored > 0 && stored < PHOTO, `${stored} bytes are at the gateway`);
  return { id, stored };
}

scenarios(({ test, browser }) => {
  const HELD = { permission: "granted", house: { links: ["gateway"] } };

  test("after a reload the same photo goes on from what the gateway has, and arrives once", HELD, async (scene) => {
    const { house } = scene;
    const photo = await house.photo("a.jpg", PHOTO);
    await scene.open();
    const { id, stored } = await breakOff(scene, photo);
    const before = house.links.gateway.taken;
    await send(scene, photo);
    const free = await scene.state("free");
    assert.equal(free.id, id);
    assert.ok(free.resumed);
    const taken = house.links.gateway.taken - before;
    assert.ok(taken <= free.total - stored + HEADS, `${taken} bytes came, and ${free.total - stored} were missing`);
    await house.assertArrived(photo);
  });

  // What is kept is found again in both; who may go on with it is decided in the same way.
  if (browser !== "chromium") return;

  test("another photo of the same name, length and time is another upload, and what was begun of the first never arrives", HELD, async (scene) => {
    const { house } = scene;
    const photo = await house.photo("a.jpg", PHOTO);
    await scene.open();
    const { id } = await breakOff(scene, photo);
    const other = await house.photo(photo.name, PHOTO);
    await send(scene, other);
    const free = await scene.state("free");
    assert.notEqual(free.id, id);
    assert.ok(!free.resumed);
    await house.assertArrived(other);
  });

  test("another user of the same browser does not go on with it", { ...HELD, house: { ...HELD.house, signIn: true } }, async (scene) => {
    const { house } = scene;
    const photo = await house.photo("a.jpg", PHOTO);
    await scene.signIn("alice", "wonderland");
    const { id } = await breakOff(scene, photo);
    await scene.signOut();
    await scene.signIn("bob", "builder");
    await send(scene, photo);
    const free = await scene.state("free");
    assert.notEqual(free.id, id);
    assert.ok(!free.resumed);
    await house.assertArrived(photo);
  });
});
