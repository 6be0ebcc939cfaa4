// A web site, as a program: a page of 150 images of 1,517 bytes, a large file, and a WebSocket that says one word. Its parent may have it hold back what it sends.
// Arguments: an address, a certificate, a key.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

const IMAGES = 150;
const IMAGE_BYTES = 1_517;
/** Its bytes count up from 0 to 255, again and again. */
const PIECE = Buffer.alloc(64 * 1024, Buffer.from(Array.from({ length: 256 }, (_, at) => at)));

const [address, certificate, key] = process.argv.slice(2);
let limits = { images: null, bytes: null };
let images = 0;
const waiting = new Set();

process.on("message", (told) => {
  limits = told;
  images = 0;
  if (told.images === null) {
    for (const go of waiting) go();
    waiting.clear();
  }
});

function held() {
  process.send("held");
  return new Promise((go) => waiting.add(go));
}

/** One pixel, made as long as the images of the published table by comments. */
function image() {
  const pixel = Buffer.from("R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAUwAOw==", "base64");
  const room = IMAGE_BYTES - pixel.length;
  const comments = [Buffer.from([0x21, 0xfe])];
  let left = room - 3;
  while (left > 0) {
    const length = Math.min(left - 1, 255);
    comments.push(Buffer.from([length]), Buffer.alloc(length, 0x20));
    left -= length + 1;
  }
  return Buffer.concat([pixel.subarray(0, -1), ...comments, Buffer.from([0]), pixel.subarray(-1)]);
}

const GIF = image();
const PAGE = `<!doctype html><title>150 images</title>${Array.from({ length: IMAGES }, (_, at) => `<img src="/image/${at}">`).join("")}`;

async function answer(request, response) {
  if (request.url === "/") return response.writeHead(200, { "Content-Type": "text/html" }).end(PAGE);
  if (request.url.startsWith("/image/")) {
    if (limits.images !== null && ++images > limits.images) await held();
    return response.writeHead(200, { "Content-Type": "image/gif", "Content-Length": GIF.length, "Cache-Control": "no-store" }).end(GIF);
  }
  const [, name, length] = request.url.split("/");
  if (name !== "file") return response.writeHead(404).end();
  response.writeHead(200, { "Content-Type": "application/octet-stream", "Content-Length": length, "Cache-Control": "no-store" });
  await pipeline(Readable.from(pieces(Number(length))), response);
}

async function* pieces(length) {
  for (let sent = 0; sent < length; sent += PIECE.length) {
    if (limits.bytes !== null && sent >= limits.bytes) await held();
    yield PIECE.subarray(0, Math.min(PIECE.length, length - sent));
  }
}

/** The key of every WebSocket's server (RFC 6455 section 1.3), and a text frame without a mask. */
const WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const HELLO = Buffer.from("\x81\x05hello", "latin1");

function greet({ headers }, socket) {
  const accept = createHash("sha1").update(headers["sec-websocket-key"] + WEBSOCKET).digest("base64");
  socket.on("error", () => {});
  socket.write(["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket", `Sec-WebSocket-Accept: ${accept}`, "", ""].join("\r\n"));
  socket.write(HELLO);
}

const serve = (request, response) => answer(request, response).catch((error) => response.destroy(error));
const servers = [
  [http.createServer(serve), 80],
  [https.createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, serve), 443],
];
for (const [server] of servers) server.on("upgrade", greet);
for (const [server, port] of servers) await new Promise((go) => server.listen(port, address, go));
process.send("listening");
