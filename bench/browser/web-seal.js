// The library's sealing beside raw WebCrypto, in one page load of each browser.
//
// The library reads a Blob, seals its records and makes Blobs of them, and is judged by the peer that reads the same Blob in the same pieces and gives
// every 65,520 octets to AES-256-GCM, as many in flight, and drops what comes. A second peer encrypts octets that are in memory already.

import "../../tests/browser/namespace.js";
import { BROWSERS, launch } from "../../tests/browser/browsers.js";
import { startPages } from "../../tests/browser/pages.js";
import { bundle } from "../../web/test/sources.mjs";
import { ROUNDS, judge, median, spread, table } from "./bench.js";

const LIMIT = 0.8;

const PAGE = `<!doctype html><title>Sealing</title><script type="module">
  import { sealer } from "/seal.js";
  const RECORD = 65_536, INPUT = RECORD - 16, PER = 128, BYTES = 96e6;
  const octets = new Uint8Array(BYTES);
  for (let at = 0; at < BYTES; at += 65_536) crypto.getRandomValues(octets.subarray(at, Math.min(at + 65_536, BYTES)));
  const blob = new Blob([octets]);
  const random = (length) => crypto.getRandomValues(new Uint8Array(length));
  const key = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt"]);

  async function encrypt(piece) {
    const calls = [];
    for (let at = 0; at < piece.length; at += INPUT) calls.push(crypto.subtle.encrypt({ name: "AES-GCM", iv: random(12) }, key, piece.subarray(at, at + INPUT)));
    await Promise.all(calls);
  }
  const rivals = {
    async library() {
      const { seal, layout } = await sealer(blob, random(32), "aes256gcm", random(16), RECORD, random(107), PER);
      let sealed = 0;
      for (let segment = 0; segment < layout.segments; segment++) sealed += (await seal(segment)).blob.size;
      if (sealed + layout.start < layout.total) throw new Error("not all was sealed");
    },
    async read() {
      const piece = (at) => blob.slice(at, at + PER * INPUT).arrayBuffer();
      let next = piece(0);
      for (let at = 0; at < BYTES; at += PER * INPUT) {
        const now = await next;
        next = piece(at + PER * INPUT);
        await encrypt(new Uint8Array(now));
      }
    },
    async memory() {
      for (let at = 0; at < BYTES; at += PER * INPUT) await encrypt(octets.subarray(at, at + PER * INPUT));
    },
  };
  /** Millions of octets a second. */
  window.measure = async (rival) => {
    const begin = performance.now();
    await rivals[rival]();
    return BYTES / 1000 / (performance.now() - begin);
  };
</script>`;

const NAMES = { library: "library: reads, seals, makes Blobs", read: "WebCrypto, reading the same", memory: "WebCrypto, from memory" };

async function measure(name) {
  const running = await launch(name);
  try {
    const page = await running.browser.newPage();
    await page.goto("https://photos.example/");
    await page.waitForFunction("window.measure !== undefined");
    const figures = { library: [], read: [], memory: [] };
    for (let round = -1; round < ROUNDS; round++) {
      for (const rival in figures) {
        const rate = await page.evaluate((which) => window.measure(which), rival);
        // The first round warms up.
        if (round >= 0) figures[rival].push(rate);
      }
    }
    const of = (peer) => median(figures.library.map((rate, round) => rate / figures[peer][round]));
    return Object.entries(figures).map(([rival, rates]) => [
      name, NAMES[rival], median(rates).toFixed(0), spread(rates),
      ...(rival === "library" ? ["", "", ""] : [of(rival).toFixed(2), ...(rival === "read" ? [LIMIT, judge(of(rival) >= LIMIT)] : ["", ""])]),
    ]);
  } finally {
    await running.close();
  }
}

const pages = await startPages({ "/": PAGE, "/seal.js": await bundle("seal", "es2022") });
const rows = [];
for (const name of BROWSERS) rows.push(...(await measure(name)));
await pages.stop();
table(["browser", "what", "MB/s, median", "min-max", "library / this", "limit", ""], rows);
