// `make screenshots`, of one state.

import "./namespace.js";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const SCRIPT = fileURLToPath(new URL("screenshots.js", import.meta.url));
const TEST_MS = 60_000;

test("each state is pictured in both languages, widths and schemes, and no two are alike", { timeout: TEST_MS }, async (t) => {
  const folder = await mkdtemp(path.join(tmpdir(), "hoop-screenshots-"));
  t.after(() => rm(folder, { recursive: true }));
  await promisify(execFile)(process.execPath, [SCRIPT, "card/free"], { env: { ...process.env, PICTURES: folder } });
  const names = (await readdir(path.join(folder, "card"))).sort();
  const pictures = await Promise.all(names.map((name) => readFile(path.join(folder, "card", name))));
  const expected = ["en", "fr"].flatMap((language) => [["desktop", 1280], ["phone", 390]].flatMap(([size, width]) =>
    ["dark", "light"].map((scheme) => [`free-${language}-${size}-${scheme}.png`, width])));
  // A PNG's width stands in its first chunk.
  assert.deepEqual(names.map((name, at) => [name, pictures[at].readUInt32BE(16)]), expected);
  assert.equal(new Set(pictures.map((picture) => picture.toString("base64"))).size, expected.length);
  const index = await readFile(path.join(folder, "index.html"), "utf8");
  for (const name of names) assert.ok(index.includes(`src="card/${name}"`), name);
});
