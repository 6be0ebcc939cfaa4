// Sources, compiled: `await load("seal")` for Node, the text for browsers.

import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** `src/{name}.ts` and what it imports, as the text of one module. */
export async function bundle(name, target = "node20") {
  const entry = fileURLToPath(new URL(`../src/${name}.ts`, import.meta.url));
  const { outputFiles } = await build({ entryPoints: [entry], bundle: true, format: "esm", write: false, target, logLevel: "warning" });
  return outputFiles[0].text;
}

/** Imports the same; each call gives fresh modules. */
export async function load(name) {
  const text = `${await bundle(name)}\n// ${Math.random()}`;
  return import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`);
}
