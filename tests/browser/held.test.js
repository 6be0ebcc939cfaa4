// The user has signed out before the upload is delivered: it is held, and one click finishes it once they have signed in again. All of that is the
// service's, so one browser shows it.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { entries, startApplication } from "./application.js";
import { scenarios } from "./scenarios.js";

/** Hands a photo over, signs out before it is delivered, and waits until it is held. Resolves to the photo and the upload's id. */
async function hold(scene) {
  const { house } = scene;
  const photo = await house.photo("a.jpg", 3_000_000);
  await scene.signIn();
  const delivering = house.links.delivery.holdAfter(0);
  await scene.choose([photo]);
  await scene.submit();
  await scene.answer("offer", "proceed");
  const { id } = await scene.state("free");
  await delivering;
  await scene.signOut();
  house.links.delivery.release();
  const { state } = await scene.page.evaluate(async (id) => {
    const answer = await fetch(`/hoop/uploads/${id}`, { headers: { Accept: "application/json", Prefer: "wait=30" } });
    return answer.json();
  }, id);
  assert.equal(state, "held");
  assert.deepEqual(house.arrived, []);
  return { photo, id };
}

scenarios(({ test }) => {
  const OPTIONS = { permission: "granted", house: { signIn: true, links: ["delivery"] } };

  test("an upload that is held is shown to nobody else, is in the list of who signs in again, and one click finishes it", OPTIONS, async (scene) => {
    const { house, page } = scene;
    const { photo, id } = await hold(scene);
    await scene.open("/hoop/uploads");
    assert.equal(await page.$(`#u-${id}`), null, "nobody is signed in, and nothing is shown");

    await scene.signIn("bob", "builder");
    await scene.open("/hoop/uploads");
    assert.equal(await page.$(`#u-${id}`), null, "it is not his");
    const status = await page.evaluate(async (id) => {
      const answer = await fetch(`/hoop/uploads/${id}`, { method: "POST", headers: { "Hoop-Version": "1" } });
      return answer.status;
    }, id);
    assert.equal(status, 403);
    assert.deepEqual(house.arrived, []);
    await scene.signOut();

    await scene.signIn();
    await scene.open("/hoop/uploads");
    await page.waitForSelector(`#u-${id}.held`);
    await page.locator(`#u-${id} button[value=release]`).click();
    await page.waitForSelector(`#u-${id}.accepted`);
    await house.assertArrived(photo);
  });

  test("with script off one click finishes it, too", OPTIONS, async (scene) => {
    const { house } = scene;
    const { photo, id } = await hold(scene);
    // Whoever signs in anew has a new session in any case, so it may be in another browser.
    const bare = await scene.withoutScript();
    await bare.signIn();
    await bare.open("/hoop/uploads");
    await Promise.all([bare.page.waitForNavigation(), bare.click(`#u-${id} button[value=release]`)]);
    await house.assertArrived(photo);
  });

  const PAGE = { html: `<!doctype html><title>A page</title><script type="module" src="/hoop/hoop.js" data-hoop></script>
    <form method="post" action="/album" enctype="multipart/form-data" data-hoop="always"><input type="file" name="photo"><button>Send</button></form>`,
  headers: { "Set-Cookie": "session=alice; Path=/; Secure" } };
  const OWN = { permission: "granted", house: { wall: null } };

  /** An application that answers so, and a photo that is sent to it; resolves when the card says `phase`. */
  async function send(scene, t, answers, phase) {
    const application = await startApplication({ "/": PAGE }, answers);
    t.after(() => application.stop());
    const photo = await scene.house.photo("a.jpg", 300_000);
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    const { id } = await scene.state(phase);
    return { application, photo, id };
  }

  async function assertSame(application, photo, count) {
    await application.until(count);
    const bytes = await readFile(photo.path);
    for (const upload of application.uploads) assert.deepEqual(await entries(upload), [["photo", { name: "a.jpg", bytes }]]);
    assert.equal(application.uploads.length, count);
  }

  test("a Finish that is refused keeps the bytes, and can be pressed again", OWN, async (scene, t) => {
    const { application, photo, id } = await send(scene, t, [401, 401], "held");
    await scene.page.waitForSelector("hoop-card >>> ::-p-text(no longer signed in)");
    const list = await scene.newPage();
    await list.goto(`${scene.house.origin}/hoop/uploads`);
    const finish = `#u-${id} button[value=release]`;
    await scene.click(finish, list);
    await assertSame(application, photo, 2);
    await list.waitForSelector(`#u-${id}.held`);
    await list.reload();
    await scene.click(finish, list);
    await list.waitForSelector(`#u-${id}.accepted`);
    await assertSame(application, photo, 3);
    await scene.page.bringToFront();
    await scene.state("delivered");
  });

  test("what may be there already goes again once its owner has read the risk", OWN, async (scene, t) => {
    const { application, photo, id } = await send(scene, t, ["lost"], "failed");
    await scene.page.waitForSelector("hoop-card >>> ::-p-text(Check whether your files are there)");
    const list = await scene.newPage();
    await list.goto(`${scene.house.origin}/hoop/uploads`);
    const release = `#u-${id} button[value=release]`;
    assert.equal(await list.$eval(release, (button) => button.checkVisibility()), false, "not before the warning is opened");
    await list.evaluate((selector) => document.querySelector(selector).closest("details").querySelector("summary").click(), release);
    await scene.click(release, list);
    await list.waitForSelector(`#u-${id}.accepted`);
    await assertSame(application, photo, 2);
  });
}, { among: ["chromium"] });
