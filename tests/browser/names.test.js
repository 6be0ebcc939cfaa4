// Names in a page: a field called `after` hides its form's `after()`, an image called `body` hides `document.body`. Whatever a page's own names are, the
// upload goes and its user sees it.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { entries, startApplication } from "./application.js";
import { scenarios } from "./scenarios.js";

const PAGE = '<!doctype html><html lang="en"><title>A page</title><script type="module" src="/hoop/hoop.js" data-hoop></script>';
/** Names that people give to fields, and that an attacker would try first. All that a form and a document have come on top. */
const LIKELY = `after matches submit action elements method id addEventListener closest querySelector append nodeType parentNode ownerDocument remove dataset className tagName
  children target enctype length name hidden style attributes getAttribute setAttribute removeAttribute hasAttribute toString constructor __proto__ isConnected dispatchEvent
  requestSubmit reset checkValidity insertAdjacentElement prototype hasOwnProperty valueOf then caption title file encoding acceptCharset noValidate rel contains previousElementSibling`.split(/\s+/);

/** In a page: adds a form with the photo's input and a field for each name, or for each member of a form; half go by their id, half by their name. */
function addForm(likely) {
  const members = (from) => (from ? [...Object.getOwnPropertyNames(from), ...members(Object.getPrototypeOf(from))] : []);
  const form = document.createElement("form");
  const names = [...new Set([...likely, ...members(HTMLFormElement.prototype)])];
  Object.assign(form, { method: "post", action: "/album", enctype: "multipart/form-data" });
  form.dataset.hoop = "always";
  form.innerHTML = '<input type="file" name="photo"><button type="submit" id="send">Send</button>';
  document.body.append(form);
  const fields = names.map((name, at) => {
    const field = document.createElement("input");
    field.type = "hidden";
    field.value = String(at);
    field.name = name;
    if (at % 2) field.id = name;
    return field;
  });
  Element.prototype.append.call(form, ...fields);
  return names.map((name, at) => [name, String(at)]);
}

/** In a page: an image, a form or a frame for each member of a document, as far as it can be hidden; those that are. */
function addNames() {
  const create = Document.prototype.createElement.bind(document);
  const { body } = document;
  const members = (from) => (from ? [...Object.getOwnPropertyNames(from), ...members(Object.getPrototypeOf(from))] : []);
  const names = [...new Set(members(Document.prototype))];
  const native = new Map(names.map((name) => [name, document[name]]));
  const elements = names.map((name, at) => {
    const element = create(["img", "form"][at % 2]);
    element.setAttribute("name", name);
    element.setAttribute("hidden", "");
    return element;
  });
  Element.prototype.append.call(body, ...elements);
  return names.filter((name) => document[name] !== native.get(name) && document[name] instanceof Element);
}

const find = (selector) => Document.prototype.querySelector.call(document, selector);
const asked = () => Document.prototype.querySelector.call(document, "hoop-card")?.shadowRoot.querySelector("#proceed");

scenarios(({ test, browser }) => {
  const OWN = { permission: "granted", house: { wall: null } };
  /** Chromium and Firefox each have another list of members; this many of them at least hide something. */
  const [FIELDS_MIN, NAMES_MIN] = [300, 200];

  async function showing(t) {
    const application = await startApplication({ "/": PAGE });
    t.after(() => application.stop());
    return application;
  }

  /** What came is the photo and every field, in order. */
  async function assertCame(application, photo, fields) {
    await application.until(1);
    assert.equal(application.uploads.length, 1);
    const bytes = await readFile(photo.path);
    assert.deepEqual(await entries(application.uploads[0]), [["photo", { name: photo.name, bytes }], ...fields]);
  }

  /** Firefox can only ask for the gateway's window. The document's own members may be hidden, so the driver's selectors do not work. */
  async function proceed(scene) {
    if (browser === "chromium") return;
    await scene.state(({ question }) => question === "bridge");
    const button = await scene.page.waitForFunction(asked);
    await button.asElement().click();
  }

  test("fields called as a form's members hide none, and the card is shown", OWN, async (scene, t) => {
    const application = await showing(t);
    const photo = await scene.house.photo("a.jpg", 300_000);
    await scene.open();
    const fields = await scene.page.evaluate(addForm, LIKELY);
    assert.ok(fields.length >= FIELDS_MIN, `${fields.length} names`);
    await scene.choose([photo]);
    await scene.click("#send");
    await proceed(scene);
    assert.equal((await scene.state("free")).way, browser === "firefox" ? "bridge" : "direct");
    await scene.page.waitForSelector("form + hoop-card >>> section.ok");
    await assertCame(application, photo, fields);
  });

  test("the form with such fields goes the ordinary way, too", { ...OWN, permission: undefined }, async (scene, t) => {
    const application = await showing(t);
    const photo = await scene.house.photo("a.jpg", 300_000);
    await scene.open();
    const fields = await scene.page.evaluate(addForm, LIKELY);
    await scene.choose([photo]);
    await scene.click("#send");
    await Promise.all([scene.page.waitForNavigation(), scene.answer(browser === "firefox" ? "bridge" : "permission", "decline")]);
    await assertCame(application, photo, fields);
  });

  test("images and forms called as the document's members hide none", OWN, async (scene, t) => {
    const application = await showing(t);
    const photo = await scene.house.photo("a.jpg", 300_000);
    await scene.open();
    const fields = await scene.page.evaluate(addForm, LIKELY);
    const hidden = await scene.page.evaluate(addNames);
    assert.ok(hidden.length >= NAMES_MIN && hidden.includes("querySelectorAll") && hidden.includes("body"), `${hidden.length} are hidden: ${hidden}`);
    const input = await scene.page.evaluateHandle(find, "input[type=file]");
    await input.asElement().uploadFile(photo.path);
    const send = await scene.page.evaluateHandle(find, "#send");
    await send.asElement().click();
    await proceed(scene);
    await scene.state("free");
    await scene.page.waitForFunction(() => Document.prototype.querySelector.call(document, "hoop-card").shadowRoot.querySelector("section.ok"));
    await assertCame(application, photo, fields);
  });
});
