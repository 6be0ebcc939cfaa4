// Clients of the IETF draft "Resumable Uploads for HTTP" that nobody here wrote, with a real gateway, through to a real service: tus-js-client's latest and its
// next version, node's own HTTP client, and curl.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import http from "node:http";
import test from "node:test";
import { promisify } from "node:util";
import * as latest from "tus-js-client";
import * as next from "tus-js-client-next";
import { Link } from "../../browser/link.js";
import { freePort, startHouse } from "./house.js";
import { HOOP } from "./program.js";
import { start } from "./running.js";

const exec = promisify(execFile);
const PHOTO_BYTES = 3_000_000;

/** A house with a gateway, and a sealed upload for it that the service's application will get as a form with this photo. */
async function startGateway(t) {
  const house = await startHouse(t);
  const { host, port: servicePort } = new URL(house.origin);
  const port = await freePort();
  let running = null;
  const up = async () => {
    running = await start(HOOP, [
      "gateway", "--listen", `127.0.0.1:${port}`, "--spool", house.file("spool"), "--no-mdns", "--ca", house.file("certificate.pem"),
      "--resolve", `photos.example:${servicePort}:127.0.0.1`, "--allow-dest", host,
    ], { ready: "listening on" });
  };
  await up();
  t.after(() => running.stop());
  const photo = randomBytes(PHOTO_BYTES);
  await writeFile(house.file("photo.jpg"), photo);
  await house.device("seal", "-F", `photo=@${house.file("photo.jpg")}`, "-o", house.file("z"), `${house.origin}/photos`);
  const offload = `/offload?dest=${encodeURIComponent(`${house.origin}/hoop/post`)}`;
  return {
    house, photo, port, offload,
    z: await readFile(house.file("z")),
    /** Ends the gateway as a power cut would, and starts it again. */
    restart: async () => {
      await running.stop("SIGKILL");
      await up();
    },
  };
}

/** Waits until the gateway hears that the application has accepted the upload, and looks that it got it once and unharmed. */
async function arrives({ house, photo, port }, id) {
  const ending = new AbortController();
  const events = await fetch(`http://127.0.0.1:${port}/monitor?ID=${id}`, { headers: { Accept: "text/event-stream" }, signal: ending.signal });
  let text = "";
  for await (const piece of events.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    if (text.includes('"state":"accepted"')) break;
  }
  ending.abort();
  assert.match(text, /"state":"accepted"/);
  assert.equal(house.received.length, 1);
  assert.ok(house.received[0].body.includes(photo));
}

/** One exchange with the gateway; `sent` bytes of the body are sent, then the connection breaks. */
function exchange(port, method, path, headers, body, { sent } = {}) {
  const informed = [];
  return new Promise((resolve, reject) => {
    const outgoing = http.request({ host: "127.0.0.1", port, method, path, headers, agent: false });
    outgoing.on("information", (answer) => {
      informed.push({ status: answer.statusCode, headers: answer.headers });
      if (sent !== undefined) outgoing.write(body.subarray(0, sent), () => setImmediate(() => outgoing.destroy()));
    });
    outgoing.on("response", async (answer) => {
      await answer.toArray();
      resolve({ status: answer.statusCode, headers: answer.headers, informed });
    });
    outgoing.on("error", (error) => (sent === undefined ? reject(error) : resolve({ informed })));
    if (sent === undefined) outgoing.end(body);
    else outgoing.flushHeaders();
  });
}

/** Uploads with tus-js-client by way of `link`. Resolves to the last answer's `Hoop-Upload-Id`. */
function tusUpload({ Upload }, { z, offload }, link, options) {
  return new Promise((resolve, reject) => {
    const upload = new Upload(z, {
      endpoint: `http://127.0.0.1:${link.port}${offload}`,
      retryDelays: [0, 100, 200, 500, 1000, 2000, 3000, 3000, 3000],
      storeFingerprintForResuming: false,
      ...options,
      onError: reject,
      onSuccess: ({ lastResponse }) => resolve(lastResponse.getHeader("Hoop-Upload-Id")),
    });
    upload.start();
  });
}

for (const [name, tus, uploads] of [
  ["tus-js-client 4.3.1", latest, [["ietf-draft-03", {}], ["ietf-draft-05", { chunkSize: 700_000, uploadDataDuringCreation: true }]]],
  ["tus-js-client 5.0.0-pre2", next, [["ietf-draft-03", {}], ["ietf-draft-05", { chunkSize: 400_000 }]]],
]) {
  for (const [protocol, options] of uploads) {
    test(`${name} uploads with ${protocol} and ${JSON.stringify(options)}, over a link that breaks and a gateway that is killed`, async (t) => {
      const gateway = await startGateway(t);
      const link = await Link.open(await freePort(), gateway.port);
      t.after(() => link.cut());
      const broken = link.holdAfter(1_000_000);
      const uploaded = tusUpload(tus, gateway, link, { protocol, ...options });
      await broken;
      await link.cut();
      const killed = link.holdAfter(1_000_000);
      await link.mend();
      await killed;
      await link.cut();
      await gateway.restart();
      await link.mend();
      const id = await uploaded;
      assert.ok(id, "the last answer names the upload");
      // What was sent twice is less than all of it.
      assert.ok(link.taken < gateway.z.length + 2_200_000, `${link.taken} bytes for ${gateway.z.length}`);
      await arrives(gateway, id);
    });
  }
}

test("node's client hears of the resource by 104, and goes on there after a break and a restart", async (t) => {
  const gateway = await startGateway(t);
  const { port, z } = gateway;
  const draft = { "Upload-Draft-Interop-Version": "8" };
  const first = { ...draft, "Upload-Complete": "?1", "Content-Length": z.length };
  const { informed } = await exchange(port, "POST", gateway.offload, first, z, { sent: 1_000_000 });
  assert.equal(informed[0].status, 104);
  assert.equal(informed[0].headers["upload-draft-interop-version"], "8");
  const { location } = informed[0].headers;
  await gateway.restart();

  const standing = await exchange(port, "HEAD", location, draft);
  assert.deepEqual([standing.status, standing.headers["upload-complete"]], [204, "?0"]);
  assert.equal(Number(standing.headers["upload-length"]), z.length);
  const offset = Number(standing.headers["upload-offset"]);
  assert.ok(offset <= 1_000_000);
  const rest = { "Upload-Complete": "?1", "Upload-Offset": offset, "Content-Type": "application/partial-upload", "Content-Length": z.length - offset };
  const done = await exchange(port, "PATCH", location, { ...draft, ...rest }, z.subarray(offset));
  assert.deepEqual([done.status, done.headers["upload-complete"], done.headers["hoop-state"]], [201, "?1", "stored"]);
  await arrives(gateway, done.headers["hoop-upload-id"]);
});

test("curl shows the 104, and a careful creation goes by curl alone", async (t) => {
  const gateway = await startGateway(t);
  const { house, port, offload, z } = gateway;
  const curl = async (...parameters) => (await exec("curl", ["-sSi", "--max-time", "60", ...parameters])).stdout;
  const url = `http://127.0.0.1:${port}`;
  const draft = ["-H", "Upload-Draft-Interop-Version: 8", "-H", "Expect:"];
  await writeFile(house.file("part"), z.subarray(0, 1_000_000));
  await writeFile(house.file("rest"), z.subarray(1_000_000));
  const created = await curl(...draft, "-H", "Upload-Complete: ?0", "-H", `Upload-Length: ${z.length}`, "--data-binary", `@${house.file("part")}`, `${url}${offload}`);
  assert.match(created, /^HTTP\/1\.1 104 Upload Resumption Supported\r\n/);
  const [, location] = created.match(/\r\nlocation: (\S+)\r\n/i);
  assert.match(created, /\r\n\r\nHTTP\/1\.1 201 Created\r\n/);
  assert.match(await curl("-I", `${url}${location}`), /\r\nupload-offset: 1000000\r\n/i);
  const done = await curl(
    ...draft, "-X", "PATCH", "-H", "Upload-Complete: ?1", "-H", "Upload-Offset: 1000000", "-H", "Content-Type: application/partial-upload",
    "--data-binary", `@${house.file("rest")}`, `${url}${location}`,
  );
  assert.match(done, /HTTP\/1\.1 201 Created\r\n/);
  await arrives(gateway, done.match(/\r\nhoop-upload-id: (\S+)\r\n/i)[1]);
});
