// What its owner sees of an upload at the service while it is on its way, and can do about it; and the settings that the next visit obeys.

import assert from "node:assert/strict";
import { scenarios } from "./scenarios.js";

/** Three segments. */
const PHOTO = 20_000_000;
const HALF = 11_000_000;

scenarios(({ browser, test }) => {
  const question = browser === "firefox" ? "bridge" : "offer";
  const OPTIONS = { permission: "granted", house: { signIn: true, links: ["gateway", "delivery"] } };

  /** Signs in and sends a photo off to the gateway. */
  async function send(scene, photo) {
    await scene.signIn();
    await scene.choose([photo]);
    await scene.submit();
    await scene.answer(question, "proceed");
  }

  /** Half of a photo is at the service, and nothing more comes. Resolves to the photo, and the list of uploads in a tab in front. */
  async function halfDelivered(scene) {
    const { house } = scene;
    const photo = await house.photo("lake.jpg", PHOTO);
    const { gateway, delivery } = house.links;
    const delivering = delivery.holdAfter(0);
    // The list is open before the service hears of the upload.
    const begun = gateway.holdAfter(1_000_000);
    await send(scene, photo);
    await begun;
    const list = await scene.newPage();
    await list.bringToFront();
    await list.goto(`${house.origin}/hoop/uploads`);
    await list.evaluate(() => (window.stays = true));
    const { id } = scene.states.at(-1);
    assert.equal(await list.$(`#u-${id}`), null);
    gateway.release();
    await list.waitForSelector(`#u-${id}.announced`);
    assert.match(await list.$eval(`#u-${id}`, (row) => row.textContent), /lake\.jpg.*On its way/);
    await delivering;
    const half = delivery.holdAfter(HALF);
    delivery.release();
    await half;
    await moves(list, id);
    return { photo, id, list };
  }

  /** Waits until the row of an upload shows how much of it has come, which is not all. */
  async function moves(list, id) {
    const value = (id) => document.querySelector(`#u-${id}.receiving progress`)?.value;
    const shown = await list.waitForFunction(value, { polling: "mutation" }, id);
    assert.ok((await shown.jsonValue()) < PHOTO);
  }

  test("an upload is in its owner's list at once, moves there without a reload, can be paused, and goes on when it is resumed", OPTIONS, async (scene) => {
    const { house } = scene;
    const { photo, id, list } = await halfDelivered(scene);
    // The line is down: a gateway that is refused would come back in a minute only.
    await house.links.delivery.cut();
    await scene.click(`#u-${id} button[value=pause]`, list);
    await list.waitForSelector(`#u-${id}.paused`);
    await scene.click(`#u-${id} button[value=resume]`, list);
    await list.waitForSelector(`#u-${id}.receiving`);
    assert.deepEqual(house.arrived, []);
    await house.links.delivery.mend();
    await list.waitForSelector(`#u-${id}.accepted`);
    await house.assertArrived(photo);
    assert.ok(await list.evaluate(() => window.stays), "the page was not loaded anew");
  });

  test("the form obeys the settings at the next visit: never asks nobody, always asks only what the browser insists on", {
    permission: "granted", house: { signIn: true },
  }, async (scene) => {
    const { house } = scene;
    const { page } = scene;
    const choose = async (policy) => {
      await page.goto(`${house.origin}/hoop/settings`);
      await scene.click(`input[name=policy][value=${policy}]`);
      await Promise.all([page.waitForNavigation(), scene.click("form.settings button")]);
      assert.ok(await page.$(`input[value=${policy}]:checked`));
      scene.states.length = 0;
      await scene.open();
    };
    const photos = [await house.photo("a.jpg"), await house.photo("b.jpg")];
    const questions = () => scene.states.map(({ question }) => question).filter(Boolean);
    await scene.signIn();

    await choose("never");
    await scene.choose([photos[0]]);
    await Promise.all([page.waitForNavigation(), scene.submit()]);
    await house.assertArrived(photos[0]);
    assert.deepEqual([scene.states.at(-1).phase, questions()], ["ordinary", []]);
    const asked = (what) => scene.requests.some((request) => request.includes(what));
    assert.ok(!asked("hoop.local") && !asked("/hoop/tickets"), "no gateway is looked for");

    await choose("always");
    await scene.choose([photos[1]]);
    await scene.submit();
    if (browser === "firefox") await scene.answer("bridge", "proceed");
    await scene.state("free");
    assert.deepEqual([...new Set(questions())], browser === "firefox" ? ["bridge"] : []);
    await house.assertArrived(...photos);
  });

  // What the gateway and the service make of a pause, and a page without script.
  if (browser !== "chromium") return;

  test("what is paused in mid-delivery is refused to the gateway, and can be stopped with script off", OPTIONS, async (scene) => {
    const { house } = scene;
    const { id, list } = await halfDelivered(scene);
    const refused = house.gateway.until(() => house.gateway.lines.some((line) => line.includes(id) && line.includes("upload-paused")), "hears of the pause");
    await scene.click(`#u-${id} button[value=pause]`, list);
    await list.waitForSelector(`#u-${id}.paused`);
    house.links.delivery.release();
    await refused;
    const bare = await scene.withoutScript();
    await bare.signIn();
    await bare.open("/hoop/uploads");
    await bare.click(`#u-${id} .stop summary`);
    await Promise.all([bare.page.waitForNavigation(), bare.click(`#u-${id} button[value=stop]`)]);
    assert.ok(await bare.page.$(`#u-${id}.stopped`));
    await list.waitForSelector(`#u-${id}.stopped`);
    assert.ok(await list.evaluate(() => window.stays), "the page was not loaded anew");
    assert.deepEqual(house.arrived, []);
  });
});
