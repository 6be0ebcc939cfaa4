// Pictures of everything that people see of Hoop, on a phone and a desktop, light and dark, in English and French: into .cache/screenshots (or
// PICTURES), with an index.html to look at. Real pages of real programs; of the card, which has more states than a house can be in, its gallery.
//
//   make screenshots                          all of it
//   make screenshots ONLY="card bridge"       only pictures whose names begin so: folders, or one of them, `card/free`
//
// It fails if a page is wider than its window.

import "./namespace.js";
import { execFile } from "node:child_process";
import { copyFile, mkdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { HOOP } from "../interop/node/program.js";
import { launch } from "./browsers.js";
import { House } from "./house.js";
import { Scene } from "./scenarios.js";

const exec = promisify(execFile);
const here = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const PICTURES = process.env.PICTURES ?? here("../../.cache/screenshots");
const GALLERY = new URL("../../web/gallery.html", import.meta.url);
const EVENING = here("../../demo/evening.jpg");
const GATEWAY = "http://hoop.local:4667";
const LANGUAGES = ["en", "fr"];
const SCHEMES = ["light", "dark"];
const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 800 } };
/** Of the card's gallery: as high as the card is. */
const CARDS = { phone: { width: 390, height: 100 }, desktop: { width: 1280, height: 100 } };
/** The bridge's, as the library opens it, and as a phone does. */
const WINDOWS = { phone: SIZES.phone, window: { width: 420, height: 300 } };

/** Large enough to stop in the middle of, and how fast a link is then, in bytes a second: for as long as pictures take. */
const LARGE = 30_000_000;
const PIECES = 4;
const SLOW = 400_000;

/** A form with a foreign token is refused with 403: here that stands for an application that has no time. */
const BUSY = `[user]
path = "/me"
json = "/id"
sign_in = "/login"
[[route]]
path = "/photos"
rule = [{ then = "retry", status = [403] }]
`;

/** The chapters, and the folders of the pictures that each makes. */
const CHAPTERS = [[card, "card"], [wall, "wall"], [uploads, "gateway", "service"], [bridge, "bridge"], [uppy, "uppy"], [firefox, "firefox"]];
const ONLY = process.argv.slice(2);
const isWanted = (name) => ONLY.length === 0 || ONLY.some((only) => name.startsWith(only) || only.startsWith(`${name}/`));

const taken = [];
const flaws = [];

/** The card in every state. */
async function card(tour) {
  const page = await tour.running.browser.newPage();
  await page.goto(GALLERY.href);
  for (const state of await page.evaluate(() => window.states)) {
    if (!isWanted(`card/${state}`)) continue;
    await page.goto(`${GALLERY}?state=${state}&lang=${tour.language}`);
    await tour.picture(page, `card/${state}`, { sizes: CARDS });
  }
  await page.close();
}

/** The photo wall, and the card in it. */
async function wall(tour) {
  await tour.stay({ signIn: true, links: ["gateway"] }, { permission: "granted" }, async ({ house, scene }) => {
    const { page } = scene;
    await scene.open("/");
    await tour.picture(page, "wall/sign-in");
    await scene.signIn("alice", "forgotten");
    await tour.picture(page, "wall/wrong-password");
    await scene.signIn();
    await tour.picture(page, "wall/empty");

    house.links.gateway.rate = SLOW;
    await begin(scene, await house.photo("clouds.jpg", LARGE));
    await scene.state(({ sent }) => sent > 0);
    await tour.picture(page, "wall/handing");
    await scene.click("hoop-card >>> nav button");
    await scene.state("stopped");
    await tour.picture(page, "wall/stopped");
    house.links.gateway.rate = Infinity;

    await choose(scene, await evening(house), "The lake, at last");
    await scene.submit();
    await scene.until(() => scene.states.at(-1).question === "offer", "the offer");
    await tour.picture(page, "wall/offer");
    await scene.answer("offer", "proceed");
    await scene.state("delivered");
    await tour.picture(page, "wall/delivered");
    await scene.open("/");
    await tour.picture(page, "wall/photos");
  });
}

/** An upload in each state, as the gateway shows it and as the service does. */
async function uploads(tour) {
  await tour.stay({ signIn: true, routes: BUSY, links: ["gateway", "delivery", "wall"] }, { permission: "granted" }, async ({ house, scene }) => {
    const { gateway, delivery, wall } = house.links;
    const tab = await scene.newPage();
    const see = async (name, url) => {
      await tab.goto(url);
      await tour.picture(tab, name);
    };
    const monitor = (id) => `${GATEWAY}/monitor?ID=${id}`;
    const list = `${house.origin}/hoop/uploads`;
    const settings = `${house.origin}/hoop/settings`;
    /** The gateway's page about an upload, once it is in a state, and `code` is in its way. */
    const once = async (id, state, code = null) => {
      await tab.goto(monitor(id));
      await tab.evaluate(becomes, state, code);
      await tour.picture(tab, `gateway/${code ?? state}`);
    };
    const hand = async (name, { size = 100_000, caption, spoil } = {}) => {
      const photo = name.startsWith("evening") ? await evening(house) : await house.photo(name, size);
      return handOver(scene, photo, caption, spoil);
    };

    await see("gateway/idle", GATEWAY);
    await see("gateway/missing", monitor("ab".repeat(16)));
    await see("service/signed-out", list);
    await see("service/settings-signed-out", settings);
    await scene.page.bringToFront();
    await scene.signIn();
    await see("service/empty", list);
    await see("service/settings", settings);
    await tab.bringToFront();
    await tab.click("form.settings button.primary");
    await tab.waitForSelector(".notice.good");
    await tour.picture(tab, "service/settings-saved");

    await once(await hand("evening.jpg", { caption: "The lake, at last" }), "accepted");
    await once(await hand("scan.tiff", { spoil: () => (document.querySelector("input[type=file]").name = "scan") }), "rejected", "rejected");

    const given = wall.holdAfter(100_000);
    const lost = await hand("mushrooms.jpg");
    await given;
    await wall.cut();
    await wall.mend();
    await once(lost, "unknown", "answer-lost");

    const waiting = delivery.holdAfter(0);
    const held = await hand("IMG_20261121_162449.jpg", { caption: "For the album" });
    await waiting;
    await Promise.all([scene.page.waitForNavigation(), scene.click("header form button")]);
    delivery.release();
    await once(held, "held", "sign-in-required");
    await scene.page.bringToFront();
    await scene.signIn();

    const busy = await hand("harvest.jpg", { spoil: () => (document.querySelector("form.hang input[name=csrf]").value = "another") });
    await once(busy, "received", "upstream-busy");

    // Of two segments that are under way a gateway may know nothing yet.
    let half = gateway.holdAfter(LARGE * 0.75);
    await begin(scene, await house.photo("film.mov", LARGE), "The whole evening");
    await half;
    gateway.rate = SLOW;
    gateway.release();
    const { id: film } = scene.states.at(-1);
    await once(film, "receiving");
    await see("gateway/at-work", GATEWAY);
    gateway.rate = Infinity;
    half = delivery.holdAfter(LARGE / 2);
    await scene.state(({ phase, id }) => phase === "free" && id === film);
    await half;
    delivery.rate = SLOW;
    delivery.release();
    await once(film, "delivering");
    await see("service/receiving", list);
    await tab.bringToFront();
    await tab.click(`#u-${film} button[value=pause]`);
    await tab.waitForSelector(`#u-${film}.paused`);
    delivery.rate = Infinity;
    await once(film, "delivering", "upload-paused");

    await delivery.cut();
    const far = await hand("snow.jpg", { caption: "Snow" });
    await once(far, "delivering", "dest-unreachable");
    const stopped = await hand("blurred.jpg");
    await tab.bringToFront();
    await tab.goto(list);
    await tab.click(`#u-${stopped} .stop summary`);
    await tour.picture(tab, "service/stop");
    await tab.click(`#u-${stopped} button[value=stop]`);
    await tab.waitForSelector(`#u-${stopped}.stopped`);
    await tour.picture(tab, "service/uploads");
    await see("gateway/full", GATEWAY);

    // Programs that have gone, in pages that are open.
    await tab.goto(list);
    await house.service.stop();
    await tab.waitForFunction(() => document.querySelector("[data-live]").textContent !== "");
    await tour.picture(tab, "service/lost");
    await tab.goto(monitor(far));
    await house.gateway.stop();
    await tab.waitForSelector(".gone");
    await tour.picture(tab, "gateway/lost");

    // Two weeks later the service is there, and knows another key.
    await expire(house.file("spool/index.db"), "UPDATE upload SET forget_at = 1 WHERE id = ?", film);
    await expire(house.file("service-state/index.sqlite"), "UPDATE uploads SET expires = unixepoch() - 8 * 86400 WHERE id = ?", film);
    await house.startService();
    await see("service/later", list);
    await house.service.stop();
    await rm(house.file("keys"));
    await exec(HOOP, ["keygen", "-o", house.file("keys")]);
    await house.startService();
    await delivery.mend();
    await house.startGateway();
    await once(film, "expired", "upload-expired");
    await once(far, "refused", "ticket-foreign");
    await wall.cut();
    await see("service/no-application", list);
  });
}

/** Moves an upload's end into the past, in the index of a program that does not run. */
async function expire(index, change, id) {
  const python = "import sqlite3, sys; index = sqlite3.connect(sys.argv[1]); index.execute(sys.argv[2], (bytes.fromhex(sys.argv[3]),)); index.commit()";
  await exec("python3", ["-c", python, index, change, id]);
}

/** In the gateway's page about an upload: waits until it is so. */
function becomes(state, code) {
  return new Promise((resolve, reject) => {
    const events = new EventSource(location.href);
    let now;
    setTimeout(() => reject(new Error(`it is ${JSON.stringify(now)}, and not ${state} with ${code}`)), 30_000);
    events.addEventListener("status", ({ data }) => {
      now = JSON.parse(data);
      if (now.state !== state || (now.reason?.code ?? null) !== code) return;
      events.close();
      resolve();
    });
  });
}

/** The gateway's window, as its opener has it do what the library does, and as the library does it. */
async function bridge(tour) {
  const see = (window, name) => tour.picture(window, `bridge/${name}`, { sizes: WINDOWS });
  await tour.stay({ links: ["gateway"] }, { permission: "denied" }, async ({ house, scene }) => {
    const { gateway } = house.links;
    const opened = async () => {
      const window = await scene.window();
      // A picture takes longer than a window that is done stays.
      await window.evaluate(() => (globalThis.close = () => {}));
      return window;
    };
    const shows = (window, phase) => window.waitForSelector(`[data-phase=${phase}]`).catch(async (cause) => {
      throw new Error(`it is not ${phase}: ${await window.evaluate(() => document.body.innerText)}`, { cause });
    });
    const away = async (window) => {
      await window.close();
      gateway.release();
      await scene.page.close();
      scene.page = await scene.newPage();
      scene.states.length = 0;
      scene.pieces.clear();
    };
    const byLibrary = async () => {
      await scene.open();
      await scene.choose([await house.photo("evening.jpg", LARGE)]);
      await scene.submit();
      await scene.answer("bridge", "proceed");
      return opened();
    };

    await scene.page.goto(`${GATEWAY}/bridge`);
    await see(scene.page, "orphan");
    await scene.page.setJavaScriptEnabled(false);
    await scene.page.reload();
    await see(scene.page, "no-script");
    await scene.page.setJavaScriptEnabled(true);

    await scene.open();
    await scene.page.evaluate((url) => void (globalThis.bridge = open(url, "hoop-bridge", "popup,width=420,height=300")), `${GATEWAY}/bridge`);
    let window = await opened();
    await shows(window, "waiting");
    await see(window, "waiting");
    await scene.page.evaluate(say, GATEWAY, "begin");
    await shows(window, "idle");
    await see(window, "idle");
    await scene.page.evaluate(say, GATEWAY, "put");
    await shows(window, "failed");
    await see(window, "failed");
    await scene.page.evaluate(say, GATEWAY, "begin");
    await shows(window, "idle");
    await scene.page.close();
    await shows(window, "left");
    await see(window, "left");
    scene.page = await scene.newPage();
    await window.close();

    let half = gateway.holdAfter(LARGE / 2);
    window = await byLibrary();
    await half;
    await shows(window, "working");
    await see(window, "working");
    await gateway.cut();
    await shows(window, "retrying");
    await see(window, "retrying");
    await gateway.mend();
    await away(window);

    half = gateway.holdAfter(LARGE * 0.8);
    window = await byLibrary();
    await half;
    await scene.until(() => scene.pieces.size === PIECES, "the window has what it is to send");
    await scene.page.close();
    await window.waitForFunction(() => document.querySelector("#hint").textContent === document.body.dataset.alone);
    await see(window, "alone");
    gateway.release();
    await shows(window, "done");
    await see(window, "done");
  });
}

/** What a page says to the gateway's window that it has opened: of an upload that no service has given a ticket for. */
function say(to, type) {
  const whole = { id: "0f".repeat(16), dest: `${location.origin}/hoop/post`, total: 128_400_000, prelude: "AAAA" };
  const piece = { seq: 0, first: 0, last: 65_535, blob: new Blob([new Uint8Array(65_536)]) };
  globalThis.bridge.postMessage({ hoop: 1, type, ...(type === "begin" ? whole : piece) }, to);
}

/** The page with Uppy. */
async function uppy(tour) {
  await tour.stay({ signIn: true }, { permission: "granted" }, async ({ house, scene }) => {
    await scene.signIn();
    await scene.open("/uppy/");
    await scene.page.waitForSelector(".uppy-Dashboard-input");
    await tour.picture(scene.page, "uppy/empty");
    await scene.choose([await evening(house)], ".uppy-Dashboard-input");
    await scene.page.waitForSelector(".uppy-StatusBar-actionBtn--upload");
    await tour.picture(scene.page, "uppy/chosen");
  });
}

/** A few in Firefox, which draws some things in its own way. */
async function firefox(tour) {
  for (const [dark, scheme] of SCHEMES.entries()) {
    const running = await launch("firefox", { language: tour.language, preferences: { "ui.systemUsesDarkTheme": dark } });
    try {
      const theirs = new Tour(running, tour.language);
      await theirs.stay({}, {}, async ({ house, scene }) => {
        for (const [name, url] of [
          ["card", `${GALLERY}?lang=${tour.language}`], ["wall", house.origin], ["gateway", GATEWAY], ["bridge", `${GATEWAY}/bridge`],
          ["uploads", `${house.origin}/hoop/uploads`], ["settings", `${house.origin}/hoop/settings`],
        ]) {
          await scene.page.goto(url);
          await theirs.picture(scene.page, `firefox/${name}`, { schemes: [scheme] });
        }
      });
    } finally {
      await running.close();
    }
  }
}

/** A photo that can be seen. */
async function evening(house) {
  const photo = { name: "evening.jpg", path: house.file("evening.jpg") };
  await copyFile(EVENING, photo.path);
  return photo;
}

/** Chooses a photo in the form; `spoil` is done to the form. */
async function choose(scene, photo, caption, spoil) {
  // A tab behind another draws nothing, and clicks wait for that.
  await scene.page.bringToFront();
  await scene.open("/");
  await scene.choose([photo]);
  if (caption) await scene.page.type("input[name=caption]", caption);
  if (spoil) await scene.page.evaluate(spoil);
}

/** Chooses a photo, sends it, and takes the gateway's offer. */
async function begin(scene, photo, caption, spoil) {
  await choose(scene, photo, caption, spoil);
  await scene.submit();
  await scene.answer("offer", "proceed");
}

/** Hands a photo over; its id. */
async function handOver(scene, photo, caption, spoil) {
  const past = scene.states.length;
  await begin(scene, photo, caption, spoil);
  const { id } = await scene.until(() => scene.states.slice(past).find(({ phase }) => phase === "free"), "the state free");
  return id;
}

/** One language's pictures, in a browser whose user reads it. */
class Tour {
  constructor(running, language) {
    this.running = running;
    this.language = language;
  }

  /** Takes a page's pictures: whole, in each size and scheme. */
  async picture(page, name, { sizes = SIZES, schemes = SCHEMES } = {}) {
    if (!isWanted(name)) return;
    await page.bringToFront();
    for (const [size, viewport] of Object.entries(sizes)) {
      await page.setViewport(viewport);
      for (const scheme of schemes) {
        if (this.running.name === "chromium") await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
        const file = `${name}-${this.language}-${size}-${scheme}.png`;
        const isWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
        const isHigh = size === "window" && (await page.evaluate(() => document.documentElement.scrollHeight > innerHeight));
        if (isWide || isHigh) flaws.push(`${file}: the page does not fit its window`);
        await mkdir(path.dirname(path.join(PICTURES, file)), { recursive: true });
        await page.screenshot({ path: path.join(PICTURES, file), fullPage: true });
        taken.push({ name, file, width: viewport.width });
      }
    }
    console.log(`${name} ${this.language}`);
  }

  /** A house, and somebody in it. */
  async stay(options, who, visit) {
    const house = await House.start(options);
    const scene = new Scene(this.running, house, who);
    try {
      await scene.begin();
      await visit({ house, scene });
    } finally {
      await scene.close();
      await house.close();
    }
  }
}

/** All pictures on a page, each state a row. */
function index() {
  const names = [...new Set(taken.map(({ name }) => name))];
  const rows = names.map((name) => {
    const shown = taken.filter((picture) => picture.name === name).map(({ file, width }) => `<a href="${file}"><img src="${file}" loading="lazy" width="${Math.round(width / 2.5)}" alt="${file}"></a>`);
    return `<h2>${name}</h2>\n<div>${shown.join("\n")}</div>`;
  });
  return `<!doctype html>
<meta charset="utf-8">
<title>Hoop, in pictures</title>
<style>body { font: 15px/1.4 system-ui, sans-serif; background: #888; } div { display: flex; flex-wrap: wrap; gap: 8px; align-items: start; }</style>
${rows.join("\n")}
`;
}

await rm(PICTURES, { recursive: true, force: true });
await mkdir(PICTURES, { recursive: true });
await exec("npm", ["--prefix", here("../../web"), "run", "gallery"]);
await exec("npm", ["--prefix", here("../../web/uppy"), "run", "build"]);
for (const language of LANGUAGES) {
  const running = await launch("chromium", { language });
  try {
    for (const [chapter, ...folders] of CHAPTERS) if (folders.some(isWanted)) await chapter(new Tour(running, language));
  } finally {
    await running.close();
  }
}
await writeFile(path.join(PICTURES, "index.html"), index());
for (const flaw of flaws) console.log(flaw);
console.log(`${taken.length} pictures, ${flaws.length} flaws: ${path.join(PICTURES, "index.html")}`);
process.exitCode = flaws.length > 0 || taken.length === 0 ? 1 : 0;
