// Pages of a test's own at https://photos.example, where no `hoop service` is needed.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { makeCertificate } from "../interop/node/house.js";

const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", json: "application/json" };

/** Serves https://photos.example/, or another name's: `pages` maps a path to a file's URL, or to the text itself. `plain`: without TLS. Returns the server. */
export async function startPages(pages, { name = "photos.example", port = 443, plain = false } = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), "hoop-pages-"));
  const [certificate, key] = ["certificate.pem", "key.pem"].map((name) => path.join(folder, name));
  try {
    await makeCertificate(name, certificate, key);
    const answer = async (request, response) => {
      const { pathname } = new URL(request.url, `https://${name}`);
      const page = pages[pathname];
      if (page === undefined) return response.writeHead(404).end();
      const type = TYPES[pathname.split(".").at(-1)] ?? TYPES.html;
      response.writeHead(200, { "Content-Type": type }).end(page instanceof URL ? await readFile(page) : page);
    };
    const server = plain ? http.createServer(answer) : https.createServer({ cert: await readFile(certificate), key: await readFile(key) }, answer);
    return await listening(server, port);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Something at http://hoop.local:4667/ that lets every page ask everything, and keeps what was asked. */
export async function startOpenGateway() {
  const asked = [];
  const server = http.createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    response.writeHead(200, { "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*" }).end("here");
  });
  return Object.assign(await listening(server, 4667), { asked });
}

async function listening(server, port) {
  await new Promise((resolve, reject) => server.on("error", reject).listen(port, "127.0.0.1", resolve));
  const stop = () => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  });
  return { stop };
}
