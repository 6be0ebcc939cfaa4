// Bundles the example page into example/dist; `hoop` itself stays outside, since the service has it at /hoop/hoop.js.

import { cpSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
await build({
  entryPoints: [join(here, "example/main.js")], outdir: join(here, "example/dist"), bundle: true, format: "esm", minify: true,
  target: ["chrome120", "firefox121", "safari17"], alias: { "@hoop/uppy": join(here, "index.js") }, external: ["hoop"],
  legalComments: "none", logLevel: "warning",
});
cpSync(join(here, "example/index.html"), join(here, "example/dist/index.html"));
