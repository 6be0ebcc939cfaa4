// Scenarios: tests that run in each browser, with a house and a page of their own. See README.md.

import "./namespace.js";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { BROWSERS, answerLocalNetwork, launch } from "./browsers.js";
import { House } from "./house.js";

const TEST_MS = 120_000;
/** How long one step of a scenario may take; a hang is told from a slow machine by the test's own limit. */
const STEP_MS = 30_000;
/** So long before its limit a scenario is given up: node cancels a test without a word of what it waited for. */
const TELL_MS = 15_000;
const PICTURES = fileURLToPath(new URL("../../.cache/browser/", import.meta.url));

/** Calls `define({ browser, test })` for each browser; `test(claim, options, body)` is one scenario in it, and `body` gets a Scene and the
 *  test's own context. `among`: in these browsers alone, for what depends on servers rather than on a browser's engine. */
export function scenarios(define, { among = BROWSERS } = {}) {
  for (const browser of BROWSERS.filter((name) => among.includes(name))) {
    describe(browser, () => {
      let running;
      before(async () => (running = await launch(browser)), { timeout: TEST_MS });
      after(() => running?.close(), { timeout: TEST_MS });
      define({
        browser,
        test: (claim, options, body) => test(claim, { timeout: options.timeout ?? TEST_MS }, (t) => play(t, running, claim, options, body)),
      });
    });
  }
}

async function play(t, running, claim, options, body) {
  const house = await House.start(options.house);
  t.after(() => house.close());
  const scene = new Scene(running, house, options);
  t.after(() => scene.close(t));
  const limit = AbortSignal.timeout((options.timeout ?? TEST_MS) - TELL_MS);
  const hang = new Promise((_, reject) => limit.addEventListener("abort", () => reject(new Error("the scenario hangs"))));
  try {
    await Promise.race([scene.begin().then(() => body(scene, t)), hang]);
  } catch (error) {
    await scene.tell(t, `${running.name} ${claim}`);
    throw error;
  }
}

/** A page of a browser with nothing in its past, in a house. */
export class Scene {
  /** Every `hoop:state` of the pages of this scene, in order: the event's detail, as far as it is data. */
  states = [];
  /** The pieces that the gateway's window has said it has. */
  pieces = new Set();
  /** What the pages said on their consoles. */
  console = [];
  /** What the pages have asked for: `GET https://photos.example/`. */
  requests = [];
  #running;
  #options;
  #watchers = new Set();
  #closers = [];

  constructor(running, house, options) {
    this.browser = running.name;
    this.house = house;
    this.#running = running;
    this.#options = options;
  }

  async begin() {
    if (this.#options.script === false && this.browser === "firefox") {
      // Its driver cannot turn script off in a page, only in a whole browser.
      this.#running = await launch("firefox", { preferences: { "javascript.enabled": false } });
      this.#closers.push(() => this.#running.close());
    }
    this.context = await this.#running.browser.createBrowserContext();
    if (this.#options.permission) await this.answerLocalNetwork(this.#options.permission);
    this.page = await this.newPage();
  }

  /** A browser that does not let go of a scene in time is told of, and no failure of what the scene has shown: it ends with its scenarios. */
  async close(t = { diagnostic: console.warn }) {
    await this.context?.close().catch((error) => t.diagnostic(`the scene was left open: ${error.message}`));
    for (const close of this.#closers) await close(t);
  }

  /** A scene of its own at the same house, with nothing in its past and script off. It goes with this one. */
  async withoutScript() {
    const scene = new Scene(this.#running, this.house, { ...this.#options, script: false });
    this.#closers.push((test) => scene.close(test));
    await scene.begin();
    return scene;
  }

  /** The user's answer to Chromium's question for leave to reach the local network: `granted` or `denied`. Firefox does not ask. */
  async answerLocalNetwork(setting, origin = this.house.origin) {
    if (this.browser === "chromium") await answerLocalNetwork(this.#running, this.context, origin, setting);
  }

  /** Another tab of the same user. */
  async newPage() {
    const page = await this.context.newPage();
    const { width = 1280, height = 900, script = true, block = [], dark = false, hurry = false, known = true } = this.#options;
    page.setDefaultTimeout(STEP_MS);
    await page.setViewport({ width, height });
    if (!script && this.browser === "chromium") await page.setJavaScriptEnabled(false);
    if (dark) await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
    if (script) await page.evaluateOnNewDocument(reportStates);
    if (script && known) await page.evaluateOnNewDocument(knowBox, this.house.gatewayUrl);
    if (hurry) await page.evaluateOnNewDocument(hurryUp);
    if (block.length > 0) await refuse(page, block);
    if (process.env.WEB_DIST) await serveDist(this.browser, page);
    page.on("request", (request) => this.requests.push(`${request.method()} ${request.url()}`));
    page.on("console", (message) => this.#heard(message.text()));
    return page;
  }

  /** Opens a path of the service in the scene's page. */
  async open(target = "/") {
    await this.page.goto(new URL(target, this.house.origin).href);
  }

  /** Chooses photos in the form, as the user does in the browser's window for that. */
  async choose(photos, selector = "input[type=file]") {
    const input = this.#options.script === false ? await this.page.$(selector) : await this.page.waitForSelector(selector);
    await input.uploadFile(...photos.map((photo) => photo.path));
  }

  /** Clicks what a selector of puppeteer's names; `>>>` looks into shadow roots, `::-p-text(Send)` for a text. */
  async click(selector, page = this.page) {
    if (this.#options.script !== false) return page.locator(selector).setTimeout(STEP_MS).click();
    // Without script there are no frames to wait for.
    const [x, y] = await page.$eval(selector, (element) => {
      element.scrollIntoView();
      const { left, top, width, height } = element.getBoundingClientRect();
      return [left + width / 2, top + height / 2];
    });
    return page.mouse.click(x, y);
  }

  /** Submits the form by its button. */
  async submit() {
    await this.click("form[enctype] button:not([type=button])");
  }

  /** Signs in at a photo wall that asks for it. */
  async signIn(name = "alice", password = "wonderland", page = this.page) {
    await page.goto(new URL("/login", this.house.origin).href);
    await page.type("input[name=name]", name);
    await page.type("input[name=password]", password);
    await Promise.all([page.waitForNavigation(), this.click("form.narrow button", page)]);
  }

  /** Signs out there, from the wall's page. */
  async signOut(page = this.page) {
    await page.goto(`${this.house.origin}/`);
    await Promise.all([page.waitForNavigation(), this.click("header form button", page)]);
  }

  /** Waits until the card asks a question of this kind, and clicks its answer: `proceed`, `decline` or `never`. */
  async answer(kind, answer) {
    await this.until(() => this.states.at(-1)?.question === kind, `the question ${kind}`);
    await this.click(`hoop-card >>> nav #${answer}`);
  }

  /** The phases that the pages have been through. */
  get phases() {
    return this.states.map(({ phase }) => phase).filter((phase, at, all) => phase !== all[at - 1]);
  }

  /** Closes a tab as a user does; says whether the browser asked first, and was told to go ahead. */
  async leave(page = this.page) {
    let asked = false;
    page.on("dialog", (dialog) => {
      asked = true;
      void dialog.accept();
    });
    const closed = new Promise((resolve) => page.once("close", resolve));
    await page.close({ runBeforeUnload: true });
    await closed;
    return asked;
  }

  /** Waits for a state: of a phase, or one for which a function says so; those that have passed count. */
  async state(wanted) {
    const fits = typeof wanted === "function" ? wanted : (state) => state.phase === wanted;
    return this.until(() => this.states.find(fits), `the state ${wanted}`);
  }

  /** Waits for the gateway's window, and returns its page. */
  async window(pathname = "/bridge") {
    const shows = (target) => URL.canParse(target.url()) && new URL(target.url()).pathname === pathname;
    const target = await this.context.waitForTarget(shows, { timeout: STEP_MS });
    return target.page();
  }

  /** Resolves to the first truthy thing that `look` returns: asked now, and whenever a page has said something. */
  until(look, what) {
    return new Promise((resolve, reject) => {
      const settle = (act, value) => {
        clearTimeout(timer);
        this.#watchers.delete(watch);
        act(value);
      };
      const watch = () => {
        const seen = look();
        if (seen) settle(resolve, seen);
      };
      const timer = setTimeout(() => settle(reject, new Error(`${what} did not come within ${STEP_MS} ms`)), STEP_MS);
      this.#watchers.add(watch);
      watch();
    });
  }

  #heard(text) {
    if (text.startsWith(STATE)) this.states.push(JSON.parse(text.slice(STATE.length)));
    else if (text.startsWith(PIECE)) this.pieces.add(text);
    else this.console.push(text);
    for (const watch of [...this.#watchers]) watch();
  }

  /** What helps to understand a failure: into the test's output, and pictures into .cache/browser. */
  async tell(t, name) {
    const { service, gateway, wall } = this.house;
    const said = Object.entries({ service, gateway, wall }).flatMap(([role, program]) => program?.lines.slice(-10).map((line) => `${role}: ${line}`) ?? []);
    const lines = [...this.states.map((state) => `state: ${JSON.stringify(state)}`), ...this.console.map((text) => `console: ${text}`), ...said];
    for (const line of lines) t.diagnostic(line);
    await mkdir(PICTURES, { recursive: true });
    for (const [at, page] of ((await this.context?.pages()) ?? []).entries()) {
      const file = path.join(PICTURES, `${name.replace(/[^\w-]+/g, "-")}-${at}.png`);
      await page.screenshot().then((picture) => writeFile(file, picture), (error) => t.diagnostic(`no picture: ${error.message}`));
    }
  }
}

/** How a page tells the test of its states: a line on the console comes through in both browsers, whatever page follows. */
const STATE = "hoop:state ";
const PIECE = "hoop:piece ";

function reportStates() {
  addEventListener("message", ({ data }) => {
    if (data?.type === "progress") console.debug(`hoop:piece ${data.seq}`);
  });
  addEventListener("hoop:state", ({ detail }) => {
    const { phase, way, gateway, sent, total, id, monitor, resumed, location, stranger } = detail;
    const state = { phase, way, gateway, sent, total, id, monitor, resumed, location, stranger, question: detail.question?.kind, known: detail.question?.known, error: detail.error?.code };
    console.debug(`hoop:state ${JSON.stringify(state)}`);
  }, true);
}

/** Somebody who has used the gateway before: what the library remembers of that, unless it knows better by now. */
function knowBox(gateway) {
  try {
    if (location.protocol === "https:") localStorage["hoop-boxes"] ??= JSON.stringify({ quiet: false, boxes: { [gateway]: { seen: Date.now() } } });
  } catch {}
}

/** The library's waits between attempts, and for what does not move, are a tenth. Others are not: they depend on the machine. */
function hurryUp() {
  const waits = [500, 1000, 2000, 4000, 8000, 15_000, 30_000];
  const wait = window.setTimeout;
  window.setTimeout = (act, ms, ...rest) => wait(act, waits.includes(ms) ? ms / 10 : ms, ...rest);
}

/** The library as it lies in web/dist, in the place of the one that `hoop service` was built with. */
async function serveDist(browser, page) {
  const body = (url) => readFile(new URL(`../../web/dist/${new URL(url).pathname.split("/").at(-1)}`, import.meta.url));
  if (browser === "chromium") {
    const session = await page.createCDPSession();
    session.on("Fetch.requestPaused", async ({ requestId, request }) => {
      const responseHeaders = [{ name: "Content-Type", value: "text/javascript" }];
      await session.send("Fetch.fulfillRequest", { requestId, responseCode: 200, responseHeaders, body: (await body(request.url)).toString("base64") }).catch(() => {});
    });
    return session.send("Fetch.enable", { patterns: [{ urlPattern: "*/hoop/*.js" }] });
  }
  await page.setRequestInterception(true);
  page.on("request", async (request) => {
    const ours = /\/hoop\/[\w-]+\.js$/.test(new URL(request.url()).pathname);
    await (ours ? request.respond({ status: 200, contentType: "text/javascript", body: await body(request.url()) }) : request.continue()).catch(() => {});
  });
}

/** Lets no request to these paths out of the page. */
async function refuse(page, paths) {
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const { pathname } = new URL(request.url());
    void (paths.includes(pathname) ? request.abort() : request.continue()).catch(() => {});
  });
}
