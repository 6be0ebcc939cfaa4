// Builds what the daemons serve and what applications import, into dist/, and writes its hash into docs/browser.md. The outcome is committed, so that Rust builds without
// Node; `node build.mjs --check` says whether it is what the sources make.
//
//   hoop.js      the library                        served by hoop service at /hoop/hoop.js
//   hoop-card.js its card, words and diagnosis      loaded by hoop.js when first needed
//   pages.js     my uploads, settings               served by hoop service
//   bridge.js    the gateway's small window         served by hoop gateway
//   monitor.js   the gateway's monitor pages        served by hoop gateway

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const ENTRIES = ["hoop", "hoop-card", "pages", "bridge", "monitor"];
/** The most that the library may weigh, in bytes gzipped; the card is another file, since most who see a form send nothing. */
const LIBRARY_MAX = 15_000;

/** Another entry that is loaded when needed stays a file of its own. */
const apart = {
  name: "apart",
  setup: ({ onResolve }) => onResolve({ filter: /\/hoop-card\.ts$/ }, ({ kind }) =>
    kind === "dynamic-import" ? { path: "./hoop-card.js", external: true } : undefined),
};

async function make(outdir) {
  const entryPoints = ENTRIES.map((name) => join(here, "src", `${name}.ts`));
  await build({
    entryPoints, outdir, bundle: true, format: "esm", target: ["chrome120", "firefox121", "safari17"], minify: true, charset: "utf8", plugins: [apart],
    legalComments: "none", banner: { js: "// Hoop, Apache-2.0 OR MIT. Made from web/src; do not edit." }, logLevel: "warning",
  });
  execFileSync(join(here, "node_modules/.bin/tsc"), ["--emitDeclarationOnly", "--outDir", join(outdir, "types")], { cwd: here, stdio: "inherit" });
  const weigh = (name) => gzipSync(readFileSync(join(outdir, name)), { level: 9 }).length;
  const weight = weigh("hoop.js");
  if (weight > LIBRARY_MAX) throw new Error(`hoop.js weighs ${weight} bytes gzipped; ${LIBRARY_MAX} is the most`);
  return `hoop.js weighs ${weight} bytes gzipped, hoop-card.js ${weigh("hoop-card.js")}`;
}

/** The page for web developers, with the library's integrity hash as it is now. */
const DOCS = join(here, "../docs/browser.md");

function docs(outdir) {
  const hash = createHash("sha384").update(readFileSync(join(outdir, "hoop.js"))).digest("base64");
  return readFileSync(DOCS, "utf8").replace(/integrity="[^"]*"/, `integrity="sha384-${hash}"`);
}

function files(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort();
}

const dist = join(here, "dist");
if (process.argv.includes("--check")) {
  const fresh = mkdtempSync(join(tmpdir(), "hoop-web-"));
  try {
    const weight = await make(fresh);
    const same = files(fresh).join() === files(dist).join()
      && files(fresh).every((name) => readFileSync(join(fresh, name)).equals(readFileSync(join(dist, name))));
    if (!same || docs(fresh) !== readFileSync(DOCS, "utf8")) {
      throw new Error("web/dist, or the hash in docs/browser.md, is not what web/src makes: run `npm run build` in web/");
    }
    console.log(`web/dist is up to date; ${weight}`);
  } finally {
    rmSync(fresh, { recursive: true });
  }
} else {
  rmSync(dist, { recursive: true, force: true });
  console.log(await make(dist));
  writeFileSync(DOCS, docs(dist));
}
