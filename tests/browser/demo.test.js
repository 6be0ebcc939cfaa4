// `make demo-web`, as somebody uses it who does what it prints. What the page then does is tested in both browsers by the other files.

import "./namespace.js";
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { HOOP } from "../interop/node/program.js";
import { start } from "../interop/node/running.js";
import { launch } from "./browsers.js";

const DEMO = fileURLToPath(new URL("../../demo/web", import.meta.url));
const PHOTO = fileURLToPath(new URL("../../demo/evening.jpg", import.meta.url));
const TEST_MS = 180_000;
/** A step may take as long as the demo's thin line needs for its photo, three times over. */
const STEP_MS = 60_000;

/** The demo, in a folder for temporary files of its own. */
async function startDemo(t) {
  const folder = await mkdtemp(path.join(tmpdir(), "hoop-demo-test-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const demo = await start(DEMO, [], { ready: "Ctrl-C", environment: { HOOP, TMPDIR: folder } });
  t.after(() => demo.stop("SIGTERM"));
  return { demo, folder };
}

/** Puppeteer's text selector does not see that a text in a shadow root has changed. */
function cardSays(page, text) {
  return page.waitForFunction((text) => document.querySelector("hoop-card")?.shadowRoot.textContent.includes(text), { timeout: STEP_MS }, text);
}

/** The commands of the processes that work in this folder or were given a path in it. */
async function workingIn(folder) {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const of = async (pid, leaf) => readFile(`/proc/${pid}/${leaf}`, "latin1").catch(() => "");
  const commands = await Promise.all(pids.map(async (pid) => [await of(pid, "cmdline"), await of(pid, "environ")].join("\0")));
  return commands.filter((command) => command.includes(folder));
}

test("the demo does what it prints, and leaves nothing behind", { timeout: TEST_MS }, async (t) => {
  const { demo, folder } = await startDemo(t);
  assert.ok((await workingIn(folder)).length >= 4, "the demo, the wall, the service and the gateway run");
  const said = demo.lines.join("\n");
  const [, url] = said.match(/Open +(\S+)/);
  const [, user, password] = said.match(/as (\w+), with the password (\w+)/);

  const running = await launch("chromium", { addressSpaces: null });
  t.after(() => running.close());
  const page = await running.browser.newPage();
  await page.goto(url);
  await page.locator("input[name=name]").fill(user);
  await page.locator("input[name=password]").fill(password);
  await page.locator("main button").click();
  await (await page.waitForSelector("input[type=file]")).uploadFile(PHOTO);
  await page.locator("form[enctype] button").click();
  await page.locator("hoop-card >>> ::-p-text(Hand it over)").click();
  await cardSays(page, "You may leave");
  await cardSays(page, "Delivered");
  await page.goto(url);
  const picture = await page.waitForSelector(".wall img");
  const width = await picture.evaluate((image) => image.decode().then(() => image.naturalWidth));
  assert.ok(width > 1000, "the photo hangs on the wall");

  await demo.stop("SIGINT");
  assert.deepEqual(await workingIn(folder), []);
  assert.deepEqual(await readdir(folder), []);
});

test("when one of its programs dies, the demo says which and ends the others", { timeout: TEST_MS }, async (t) => {
  const { demo, folder } = await startDemo(t);
  const gateway = await processOf("gateway", folder);
  process.kill(gateway, "SIGKILL");
  await demo.until(() => demo.lines.some((line) => line.includes("hoop gateway has ended")), "tells of it");
  await demo.ended;
  assert.deepEqual(await workingIn(folder), []);
  assert.deepEqual(await readdir(folder), []);
});

async function processOf(role, folder) {
  for (const pid of await readdir("/proc")) {
    const [, first, ...rest] = (await readFile(`/proc/${pid}/cmdline`, "latin1").catch(() => "")).split("\0");
    if (first === role && rest.some((parameter) => parameter.startsWith(folder))) return Number(pid);
  }
  throw new Error(`no ${role} runs`);
}
