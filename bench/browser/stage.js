// What uploads are measured on: Chromium, whose page at https://photos.example may talk to the local network; `hoop service` behind it; `hoop gateway`
// as http://hoop.local:4667, which cannot deliver, so that nothing but the hand-over is measured; and nginx as http://hoop.local:4668, which
// stores what it is sent.

import "../../tests/browser/namespace.js";
import { mkdir, mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { ADDRESS_SPACES, answerLocalNetwork, launch } from "../../tests/browser/browsers.js";
import { House } from "../../tests/browser/house.js";
import { HOOP } from "../../tests/interop/node/program.js";
import { start } from "../../tests/interop/node/running.js";
import { bundle } from "../../web/test/sources.mjs";

const SINK = "http://hoop.local:4668";
/** Nothing listens there. */
const NOWHERE = "127.0.0.9";
const COMMAND_MS = 600_000;

const PAGE = `<!doctype html><title>Uploads</title><link rel="icon" href="data:,"><input type="file"><script type="module">
  import { offload } from "/offload.js";
  const chosen = () => document.querySelector("input").files[0];
  const rivals = {
    async library(round) {
      const body = new FormData();
      // Another name each time: none is a continuation of the one before.
      body.append("photo", new File([chosen()], "round-" + round));
      const receipt = await offload({ url: "/photos", body }, { policy: "always", card: false, ordinary: false });
      if (receipt.way !== "direct") throw new Error("it went by the way " + receipt.way);
    },
    sink: () => new Promise((done, fail) => {
      const request = new XMLHttpRequest();
      request.open("PUT", "${SINK}/stored");
      request.upload.onprogress = () => {};
      request.onload = () => (request.status < 300 ? done() : fail(new Error("status " + request.status)));
      request.onerror = () => fail(new Error("the sink cannot be reached"));
      request.send(chosen().slice());
    }),
  };
  /** Seconds. */
  window.measure = async (rival, round) => {
    const begin = performance.now();
    await rivals[rival](round);
    return (performance.now() - begin) / 1000;
  };
</script>`;

export class Stage {
  static async set() {
    const stage = new Stage();
    stage.folder = await mkdtemp(path.join(tmpdir(), "hoop-bench-"));
    try {
      await stage.#set();
    } catch (error) {
      await stage.close();
      throw error;
    }
    return stage;
  }

  async #set() {
    const library = await bundle("offload", "es2022");
    this.application = http.createServer((request, response) => {
      const isLibrary = request.url === "/offload.js";
      response.writeHead(200, { "Content-Type": isLibrary ? "text/javascript" : "text/html; charset=utf-8" }).end(isLibrary ? library : PAGE);
    });
    await new Promise((listening) => this.application.listen(8000, "127.0.0.1", listening));
    this.house = await House.start({ wall: null, gateway: false });
    this.gateway = await start(HOOP, [
      "gateway", "--listen", "127.0.0.1:4667", "--spool", path.join(this.folder, "spool"), "--no-mdns", "--allow-dest", "photos.example",
      "--resolve", `photos.example:443:${NOWHERE}`, "--ca", this.house.file("certificate.pem"),
    ], { ready: "listening on" });
    this.sink = await startSink(this.folder);
  }

  /** A browser of its own with the page open and a file of so many bytes chosen. */
  async open(bytes) {
    const running = await launch("chromium", { addressSpaces: `${ADDRESS_SPACES},127.0.0.1:4668=local`, commandMs: COMMAND_MS });
    const context = running.browser.defaultBrowserContext();
    await answerLocalNetwork(running, context, this.house.origin, "granted");
    const page = await running.browser.newPage();
    await page.goto(`${this.house.origin}/`);
    await page.waitForFunction("window.measure !== undefined");
    // DevTools would keep the last 200 MB of what was sent, in memory that no user's browser has.
    await page._client().send("Network.disable");
    const file = path.join(this.folder, "chosen");
    await writeFile(file, "");
    await truncate(file, bytes);
    await (await page.$("input")).uploadFile(file);
    const measure = (rival, round) => page.evaluate((which, at) => window.measure(which, at), rival, round);
    return { running, measure, close: () => running.close() };
  }

  async close() {
    await Promise.all([this.gateway, this.sink].map((program) => program?.stop()));
    await this.house?.close();
    this.application?.close();
    this.application?.closeAllConnections();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 10 });
  }
}

async function startSink(folder) {
  const at = path.join(folder, "nginx");
  await mkdir(path.join(at, "data"), { recursive: true });
  const temporary = ["proxy", "fastcgi", "uwsgi", "scgi"].map((kind) => `${kind}_temp_path ${at}/${kind};`).join(" ");
  const allow = ["Origin", "Headers", "Methods"].map((what) => `add_header Access-Control-Allow-${what} ${what === "Methods" ? "PUT" : "*"} always;`).join(" ");
  await writeFile(path.join(at, "configuration"), `daemon off; master_process off; worker_processes 1; user root; pid ${at}/pid;
    error_log stderr notice; events { worker_connections 64; }
    http { access_log off; client_body_temp_path ${at}/body; client_max_body_size 0; ${temporary}
      server { listen 127.0.0.1:4668; root ${at}/data;
        location / { ${allow} if ($request_method = OPTIONS) { ${allow} return 204; } dav_methods PUT; } } }`);
  return start("/usr/sbin/nginx", ["-p", at, "-e", "stderr", "-c", path.join(at, "configuration")], { ready: "getrlimit" });
}

