// The whole way with a real `hoop service`: what `hoop seal` made is opened by a library that nobody here wrote, and a
// device that seals with that library has its upload delivered.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import test from "node:test";
import { decrypt, encodings, encrypt } from "@apeleghq/rfc8188";
import { concat, fromBase64url, openAnswer, openTicket, openToken, toBase64url } from "./hoop.js";
import { startHouse } from "./house.js";

const RECORD_SIZE = 65_536;
const COOKIE = "session=alice";

const exact = (bytes) => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
const ikm = (suite, key) => exact(suite === "aes128gcm" ? key.subarray(0, 16) : key);

async function collect(readable) {
  const pieces = [];
  for await (const piece of readable) pieces.push(new Uint8Array(piece));
  return concat(pieces);
}

/** Head and body of an HTTP message. */
function split(bytes) {
  const border = Buffer.from(bytes).indexOf("\r\n\r\n");
  const [start, ...lines] = Buffer.from(bytes.subarray(0, border)).toString().split("\r\n");
  const fields = Object.fromEntries(lines.map((line) => line.split(": ")).map(([name, value]) => [name.toLowerCase(), value]));
  return { start, fields, body: Buffer.from(bytes.subarray(border + 4)) };
}

/** Waits until the application's answer is there, and opens it with K. */
async function answerOf(house, id, key) {
  const asked = await house.fetch("GET", `/hoop/uploads/${id}`, { Prefer: "wait=30" });
  const status = asked.json();
  assert.equal(status.state, "accepted", asked.text);
  return openAnswer(id, key, fromBase64url(status.answer));
}

/** The one upload that the device remembers. */
async function remembered(house) {
  const folder = house.file("device-state/uploads");
  const names = (await readdir(folder)).filter((name) => name.endsWith(".json"));
  assert.equal(names.length, 1);
  return JSON.parse(await readFile(path.join(folder, names[0]), "utf8"));
}

for (const suite of ["aes256gcm", "aes128gcm"]) {
  test(`what hoop seal made with ${suite} is opened by @apeleghq/rfc8188 with the ticket's key`, async (t) => {
    const house = await startHouse(t);
    const photo = randomBytes(1_000_000);
    await writeFile(house.file("photo.jpg"), photo);
    const form = ["-F", "title=Evening", "-F", `photo=@${house.file("photo.jpg")}`, "-H", `Cookie: ${COOKIE}`];
    await house.device("seal", "--suite", suite, ...form, "-o", house.file("z"), `${house.origin}/photos?album=1`);
    const sealed = new Uint8Array(await readFile(house.file("z")));
    const { id, key: text } = await remembered(house);
    const key = fromBase64url(text);

    let ticket;
    const lookup = (keyId) => {
      ticket = new Uint8Array(keyId);
      return ikm(suite, key);
    };
    const source = ReadableStream.from([sealed]);
    const { start, fields, body } = split(await collect(decrypt(encodings[suite], source, lookup, RECORD_SIZE)));

    assert.equal(start, "POST /photos?album=1 HTTP/1.1");
    assert.equal(Number(fields["content-length"]), body.length);
    assert.ok(body.includes(photo) && body.includes("Evening"));
    assert.equal(fields.cookie, undefined, "the cookie went to the service alone");

    const granted = await openTicket(house.keyring, house.origin, ticket);
    assert.deepEqual([granted.upload_id, toBase64url(granted.key), granted.suite], [id, text, suite]);
    const token = JSON.parse(await openToken(house.keyring, house.origin, id, fromBase64url(fields["hoop-token"])));
    assert.equal(token.cookie, COOKIE);

    const posted = await house.fetch("POST", "/hoop/post", {}, sealed);
    assert.ok([200, 202].includes(posted.status), posted.text);
    assert.match(await answerOf(house, id, key), /^HTTP\/1\.1 201 [^]*\r\n\r\nkept$/);
    const [request, ...others] = house.received;
    assert.equal(others.length, 0);
    assert.ok(request.body.equals(body));
    assert.deepEqual([request.target, request.headers.cookie], ["/photos?album=1", COOKIE]);
  });

  test(`what a device sealed with @apeleghq/rfc8188 and ${suite} is delivered by hoop service`, async (t) => {
    const house = await startHouse(t);
    const wanted = { method: "PUT", target: "/files/a.bin", suite };
    const headers = { "Content-Type": "application/json", "Hoop-Version": "1", Cookie: COOKIE };
    const issued = await house.fetch("POST", "/hoop/tickets", headers, Buffer.from(JSON.stringify(wanted)));
    assert.equal(issued.status, 200, issued.text);
    const { ticket, key: text, token, upload_id: id } = issued.json().tickets[0];
    const key = fromBase64url(text);

    const body = randomBytes(300_000);
    const head = [
      "PUT /files/a.bin HTTP/1.1", `Host: ${new URL(house.origin).host}`, "Content-Type: application/octet-stream",
      `Content-Length: ${body.length}`, `Hoop-Token: ${token}`, "", "",
    ];
    const plaintext = ReadableStream.from([Buffer.from(head.join("\r\n")), body]);
    const keyId = exact(fromBase64url(ticket));
    const sealed = await collect(await encrypt(encodings[suite], plaintext, RECORD_SIZE, keyId, ikm(suite, key)));

    const posted = await house.fetch("POST", "/hoop/post", {}, sealed);
    assert.ok([200, 202].includes(posted.status), posted.text);
    assert.equal(posted.headers["hoop-upload-id"], id);
    assert.match(await answerOf(house, id, key), /^HTTP\/1\.1 201 [^]*\r\n\r\nkept$/);
    const [request, ...others] = house.received;
    assert.equal(others.length, 0);
    assert.deepEqual([request.method, request.target, request.headers.cookie], ["PUT", "/files/a.bin", COOKIE]);
    assert.ok(request.body.equals(body));

    const again = await house.fetch("POST", "/hoop/post", {}, sealed);
    assert.equal(again.status, 200, again.text);
    assert.equal(house.received.length, 1, "the same body again is delivered no second time");
  });
}
