// The plugin with the real Uppy core, and a stand-in for the library; tests/browser has it whole, in real browsers.

import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL("..", import.meta.url));
const LIBRARY = `export class HoopError extends Error { constructor(code, text) { super(text); this.code = code; } }
export const offload = (...parameters) => globalThis.offload(...parameters);`;

const folder = mkdtempSync(join(tmpdir(), "hoop-uppy-"));
await writeFile(join(folder, "hoop.mjs"), LIBRARY);
await writeFile(join(folder, "entry.mjs"), `export { default as Hoop } from ${JSON.stringify(join(here, "index.js"))};
export { default as Uppy } from "@uppy/core";`);
await build({
  entryPoints: [join(folder, "entry.mjs")], outfile: join(folder, "out.mjs"), bundle: true, format: "esm", platform: "node",
  alias: { hoop: join(folder, "hoop.mjs") }, nodePaths: [join(here, "node_modules")], logLevel: "warning",
  banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
});
const { Hoop, Uppy } = await import(pathToFileURL(join(folder, "out.mjs")));

function wall(options, names = ["a.jpg", "b.jpg"]) {
  const uppy = new Uppy({ meta: { caption: "At the lake" } }).use(Hoop, { endpoint: "/photos", ...options });
  for (const name of names) uppy.addFile({ name, type: "image/jpeg", data: new Blob([name], { type: "" }) });
  return uppy;
}

const stored = { way: "direct", phase: "free", id: "ab", monitor: "http://hoop.local:4667/monitor?ID=ab" };
const free = (delivered) => async () => ({ ...stored, delivered });

test("all files go in one request, with their types and the metadata, and are complete when the page may go", async () => {
  const asked = [];
  globalThis.offload = async (input, options) => {
    asked.push(input);
    options.onprogress({ sent: 5, total: 10 });
    return free(() => new Promise(() => {}))();
  };
  const uppy = wall({ hoop: { policy: "always" } });
  const progress = [];
  uppy.on("upload-progress", (_file, at) => progress.push(at.bytesUploaded));
  const result = await uppy.upload();
  assert.deepEqual(result.successful.map((file) => [file.name, file.uploadURL]), [["a.jpg", stored.monitor], ["b.jpg", stored.monitor]]);
  assert.equal(asked.length, 1);
  const [{ url, method, body }] = asked;
  assert.deepEqual([url, method, body.get("caption")], ["/photos", "POST", "At the lake"]);
  const files = body.getAll("files[]");
  assert.deepEqual(files.map((file) => [file.name, file.type]), [["a.jpg", "image/jpeg"], ["b.jpg", "image/jpeg"]]);
  assert.equal(await files[1].text(), "b.jpg");
  assert.deepEqual(progress, [3, 3], "half of each, rounded");
});

test("without bundle there is a request for each file, one after another", async () => {
  let running = 0;
  const names = [];
  globalThis.offload = async ({ body }) => {
    assert.equal(++running, 1);
    names.push(body.get("file").name);
    await new Promise(setImmediate);
    running--;
    return free(() => new Promise(() => {}))();
  };
  const result = await wall({ bundle: false }).upload();
  assert.deepEqual(names, ["a.jpg", "b.jpg"]);
  assert.equal(result.successful.length, 2);
});

test("the ordinary way's answer is Uppy's, and a refusal by the application is an error", async () => {
  const ordinary = (answer) => async () => ({ way: "ordinary", phase: "ordinary", delivered: async () => answer });
  globalThis.offload = ordinary(Response.json({ url: "/photos/1" }, { status: 201 }));
  const fine = await wall().upload();
  assert.deepEqual(fine.successful[0].response.body, { url: "/photos/1" });
  globalThis.offload = ordinary(new Response("too big", { status: 413 }));
  const refused = await wall().upload();
  assert.deepEqual([refused.successful.length, refused.failed.length], [0, 2]);
});

test("what becomes of it later is told by events of our own", async () => {
  globalThis.offload = free(async () => Response.json({ photos: 2 }));
  const uppy = wall();
  const delivered = new Promise((resolve) => uppy.on("hoop-delivered", (files, answer) => resolve([files.length, answer])));
  await uppy.upload();
  const [count, answer] = await delivered;
  assert.deepEqual([count, await answer.json()], [2, { photos: 2 }]);
  globalThis.offload = free(async () => Promise.reject(new Error("held")));
  const again = wall();
  const failed = new Promise((resolve) => again.on("hoop-failed", (_files, error) => resolve(error.message)));
  await again.upload();
  assert.equal(await failed, "held");
});

test("cancelling aborts, and a failure can be tried again", async () => {
  const uppy = wall();
  const signal = await new Promise((resolve) => {
    globalThis.offload = (_input, { signal }) => new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
      resolve(signal);
    });
    uppy.upload();
  });
  uppy.cancelAll();
  assert.ok(signal.aborted);
  globalThis.offload = async () => Promise.reject(new Error("the gateway has gone"));
  const other = wall();
  assert.equal((await other.upload()).failed.length, 2);
  globalThis.offload = free(() => new Promise(() => {}));
  assert.equal((await other.retryAll()).successful.length, 2);
});

test("an endpoint is demanded", () => {
  assert.throws(() => new Uppy().use(Hoop, {}), /needs `endpoint`/);
});
