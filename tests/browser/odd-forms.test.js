// Forms as people fill them in: with nothing, with hundreds of files, with files that change under the browser; and forms of somebody who was signed out
// meanwhile. What Hoop cannot carry goes as any form does, and what it carries is what the browser would have sent.

import assert from "node:assert/strict";
import { appendFile, readFile, truncate, utimes } from "node:fs/promises";
import { entries, startApplication, withoutBorder } from "./application.js";
import { scenarios } from "./scenarios.js";

const GRANTED = { permission: "granted" };
const OWN = { ...GRANTED, house: { wall: null } };
/** More segments, of the smaller size, than the library seals ahead for the gateway's window, so that some is read after the gateway has stopped to take any. */
const MANY_SEGMENTS = 66_000_000;
const FEW = 4_000_000;
const LATER = new Date(Date.now() + 60_000);

const PAGE = '<!doctype html><html lang="en"><title>A page</title><script type="module" src="/hoop/hoop.js" data-hoop></script>';
const form = (inner, hoop = 'data-hoop="always"') => `<form method="post" action="/album" enctype="multipart/form-data" ${hoop}>${inner}<button name="album" value="garden">Send</button></form>`;
const SIMPLE = form('<input type="file" name="photo" multiple>');
const ODD = `<input name="caption" required><input type="file" name="one"><input type="file" name="several" multiple><input type="file" name="none">
<input type="hidden" name="a &quot;name&quot;&#10;of two lines" value="grün"><textarea name="lines">one&#10;two</textarea><input type="checkbox" name="off"><input type="checkbox" name="on" checked>`;

scenarios(({ test, browser }) => {
  /** An application that shows these pages, for as long as the test runs. */
  async function showing(t, pages) {
    const application = await startApplication(pages);
    t.after(() => application.stop());
    return application;
  }

  /** Firefox can only ask for the gateway's window. */
  async function proceed(scene) {
    if (browser === "firefox") await scene.answer("bridge", "proceed");
  }

  test("a form that was added later, with several inputs, empty files and a button that counts, is to the application what the browser would have sent", OWN, async (scene, t) => {
    const application = await showing(t, { "/": PAGE });
    const [one, two, empty] = [await scene.house.photo("one.jpg", 70_000), await scene.house.photo("two.jpg", 1), await scene.house.photo("empty.jpg", 0)];
    const fill = async (html) => {
      await scene.open();
      await scene.page.evaluate((html) => document.body.insertAdjacentHTML("beforeend", html), html);
      await scene.choose([one], "input[name=one]");
      await scene.choose([empty, two], "input[name=several]");
    };
    await fill(form(ODD));
    await scene.submit();
    assert.equal(await scene.page.evaluate(() => document.activeElement.name), "caption", "the browser shows what is missing");
    assert.deepEqual(scene.states, [], "a form that is not filled in is not sent");

    await scene.page.type("input[name=caption]", "At the lake");
    await scene.submit();
    await proceed(scene);
    assert.equal((await scene.state("free")).way, browser === "firefox" ? "bridge" : "direct");
    await application.until(1);

    await fill(form(ODD, ""));
    await scene.page.type("input[name=caption]", "At the lake");
    await Promise.all([scene.page.waitForNavigation(), scene.submit()]);
    const [byHoop, byBrowser] = application.uploads;
    assert.equal(withoutBorder(byHoop), withoutBorder(byBrowser));
    assert.equal(application.uploads.length, 2);
  });

  test("five hundred files arrive as one upload, in order, byte by byte", OWN, async (scene, t) => {
    const application = await showing(t, { "/": PAGE + SIMPLE });
    const photos = [];
    for (let count = 0; count < 500; count++) photos.push(await scene.house.photo(`${count}.jpg`, count * 7));
    await scene.open();
    await scene.choose(photos);
    await scene.submit();
    await proceed(scene);
    await scene.state("free");
    await application.until(1);
    const files = await Promise.all(photos.map(async ({ name, path }) => ["photo", { name, bytes: await readFile(path) }]));
    assert.deepEqual(await entries(application.uploads[0]), [...files, ["album", "garden"]]);
    assert.equal(application.uploads.length, 1);
  });

  test("without a file, or with nothing in it, a form goes as any form does", OWN, async (scene, t) => {
    const application = await showing(t, { "/": PAGE + SIMPLE });
    for (const photos of [[], [await scene.house.photo("empty.jpg", 0)]]) {
      await scene.open();
      if (photos.length > 0) await scene.choose(photos);
      await Promise.all([scene.page.waitForNavigation(), scene.submit()]);
      assert.equal(await scene.page.title(), "Thanks");
    }
    assert.equal(application.uploads.length, 2);
    assert.deepEqual(scene.states, [], "Hoop has not stirred");
  });

  test("a file that changed after it was chosen is not sent, the card says so, and chosen again it arrives", OWN, async (scene, t) => {
    const application = await showing(t, { "/": PAGE + SIMPLE });
    const photo = await scene.house.photo("a.jpg", 300_000);
    await scene.open();
    await scene.choose([photo]);
    // From now on the browser knows how the file was.
    await scene.page.evaluate(() => document.querySelector("input[type=file]").files[0].lastModified);
    await appendFile(photo.path, "more");
    // Chromium tells by the second.
    await utimes(photo.path, LATER, LATER);
    await scene.submit();
    await proceed(scene);
    assert.equal((await scene.state("failed")).error, "file-changed");
    await scene.page.waitForSelector("hoop-card >>> ::-p-text(Choose your files again)");

    await scene.choose([photo]);
    await scene.submit();
    await proceed(scene);
    await scene.state("free");
    await application.until(1);
    assert.deepEqual(await entries(application.uploads[0]), [["photo", { name: "a.jpg", bytes: await readFile(photo.path) }], ["album", "garden"]]);
    assert.equal(application.uploads.length, 1);
  });

  test("a file that changes half-way ends its upload, and nothing of it arrives", { ...OWN, house: { wall: null, links: ["gateway"] } }, async (scene, t) => {
    const application = await showing(t, { "/": PAGE + SIMPLE });
    const photo = await scene.house.photo("a.jpg", MANY_SEGMENTS);
    const link = scene.house.links.gateway;
    const half = link.holdAfter(FEW);
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await proceed(scene);
    await half;
    // Firefox tells by the length alone, and reads on in what has only grown.
    await truncate(photo.path, MANY_SEGMENTS / 2);
    link.release();
    assert.equal((await scene.state("failed")).error, "file-changed");
    assert.deepEqual(application.uploads, []);
    const { id } = scene.states.at(-1);
    const told = await scene.page.evaluate(async (path) => (await fetch(path, { headers: { Accept: "application/json" } })).json(), `/hoop/uploads/${id}`);
    assert.equal(told.state, "stopped", "so it never will");
  });

  test("whoever was signed out meanwhile gets the site's own sign-in, and no gateway gets the photo", { ...GRANTED, house: { signIn: true } }, async (scene) => {
    const photo = await scene.house.photo("a.jpg");
    await scene.signIn();
    const elsewhere = await scene.newPage();
    await elsewhere.goto(scene.house.origin);
    await Promise.all([elsewhere.waitForNavigation(), scene.click('form[action="/logout"] button', elsewhere)]);
    await elsewhere.close();
    await scene.choose([photo]);
    await scene.submit();
    await Promise.all([scene.page.waitForNavigation(), scene.answer(browser === "firefox" ? "bridge" : "offer", "proceed")]);
    assert.equal(new URL(scene.page.url()).pathname, "/login");
    assert.equal(scene.states.at(-1).error, "sign-in-required");
    assert.ok(!scene.requests.some((request) => request.startsWith("PUT")), "nothing was sealed");

    await scene.signIn();
    await scene.choose([photo]);
    await scene.submit();
    await scene.answer(browser === "firefox" ? "bridge" : "offer", "proceed");
    await scene.state("free");
    await scene.house.assertArrived(photo);
  });

  test("a service that issues no tickets leaves the form as it was", GRANTED, async (scene) => {
    const photos = [];
    let answer;
    await scene.page.setRequestInterception(true);
    scene.page.on("request", (request) => void (request.url().endsWith("/hoop/tickets") ? request.respond(answer) : request.continue()));
    for (const [at, refusal] of [
      { status: 403, contentType: "application/problem+json", body: '{"code":"origin-forbidden"}' },
      { status: 503, contentType: "text/html", body: "<h1>Later" },
      { status: 200, contentType: "application/json", body: "null" },
    ].entries()) {
      answer = refusal;
      photos.push(await scene.house.photo(`${at}.jpg`));
      await scene.open();
      await scene.choose(photos.slice(-1));
      await scene.submit();
      await Promise.all([scene.page.waitForNavigation(), scene.answer(browser === "firefox" ? "bridge" : "offer", "proceed")]);
      await scene.house.assertArrived(...photos);
    }
    assert.equal(scene.states.filter(({ phase }) => phase === "ordinary").length, photos.length);
  });
});
