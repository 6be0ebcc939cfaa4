// The library's sealing beside raw WebCrypto, in one page load of each browser.
//
// Twice: sealing alone, from bytes in memory to records in memory with all that the library does to them (delimiters, nonces, tags, print), beside WebCrypto
// on the same bytes (this has the limit); and from the browser's Blob to Blobs ready to be sent, beside WebCrypto that reads the same Blob in the same pieces
// and makes none (this shows what Blobs cost; what a whole hand-over costs is web-upload's to say).
// WebCrypto gets 65,520 bytes a call, as many in flight as the library has, and what comes is dropped.

import "../../tests/browser/namespace.js";
import { BROWSERS, launch } from "../../tests/browser/browsers.js";
import { startPages } from "../../tests/browser/pages.js";
import { bundle } from "../../web/test/sources.mjs";
import { ROUNDS, judge, median, spread, table } from "./bench.js";

const LIMIT = 0.8;

const PAGE = `<!doctype html><title>Sealing</title><script type="module">
  import { sealRecords, sealer } from "/seal.js";
  const RECORD = 65_536, INPUT = RECORD - 16, PER = 128, BYTES = 96e6;
  const ROOM = RECORD - 17;
  // One byte more, for the last delimiter.
  const bytes = new Uint8Array(BYTES + 1);
  for (let at = 0; at < BYTES; at += 65_536) crypto.getRandomValues(bytes.subarray(at, Math.min(at + 65_536, BYTES)));
  const blob = new Blob([bytes.subarray(0, BYTES)]);
  const random = (length) => crypto.getRandomValues(new Uint8Array(length));
  const key = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt"]);

  async function encrypt(piece) {
    const calls = [];
    for (let at = 0; at < piece.length; at += INPUT) calls.push(crypto.subtle.encrypt({ name: "AES-GCM", iv: random(12) }, key, piece.subarray(at, at + INPUT)));
    await Promise.all(calls);
  }

  const rivals = {
    async alone() {
      const base = random(12);
      for (let at = 0; at < BYTES; at += PER * ROOM) {
        const to = Math.min(at + PER * ROOM, BYTES);
        const nonce = (slot) => {
          const iv = base.slice();
          new DataView(iv.buffer).setUint32(8, at / ROOM + slot);
          return iv;
        };
        const { tags } = await sealRecords(bytes.subarray(at, to + 1), to === BYTES, key, nonce, RECORD);
        await crypto.subtle.digest("SHA-256", tags);
      }
    },
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
      for (let at = 0; at < BYTES; at += PER * INPUT) await encrypt(bytes.subarray(at, Math.min(at + PER * INPUT, BYTES)));
    },
  };
  /** Millions of bytes a second. */
  window.measure = async (rival) => {
    const begin = performance.now();
    await rivals[rival]();
    return BYTES / 1000 / (performance.now() - begin);
  };
</script>`;

const NAMES = {
  alone: "library, sealing alone", memory: "WebCrypto, from memory",
  library: "library, with Blobs", read: "WebCrypto, reading a Blob",
};
const PEERS = { alone: "memory", library: "read" };

async function measure(name) {
  const running = await launch(name);
  try {
    const page = await running.browser.newPage();
    await page.goto("https://photos.example/");
    await page.waitForFunction("window.measure !== undefined");
    const figures = { alone: [], memory: [], library: [], read: [] };
    for (let round = -1; round < ROUNDS; round++) {
      for (const rival in figures) {
        const rate = await page.evaluate((which) => window.measure(which), rival);
        // The first round warms up.
        if (round >= 0) figures[rival].push(rate);
      }
    }
    return Object.entries(figures).map(([rival, rates]) => {
      const peer = figures[PEERS[rival]];
      const ratio = peer && median(rates.map((rate, round) => rate / peer[round]));
      const judged = rival === "alone" ? [LIMIT, judge(ratio >= LIMIT)] : ["", ""];
      return [name, NAMES[rival], median(rates).toFixed(0), spread(rates), peer ? ratio.toFixed(2) : "1.00", ...judged];
    });
  } finally {
    await running.close();
  }
}

const pages = await startPages({ "/": PAGE, "/seal.js": await bundle("seal", "es2022") });
const rows = [];
for (const name of BROWSERS) rows.push(...(await measure(name)));
await pages.stop();
table(["browser", "what", "MB/s, median", "min-max", "of WebCrypto", "limit", ""], rows);
