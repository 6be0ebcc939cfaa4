// A real `hoop service` on loopback, with TLS, before a small application; all of it goes when the test ends.

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { HOOP } from "./program.js";
import { start } from "./running.js";

const exec = promisify(execFile);
const NAME = "photos.example";

/** Starts everything; `t` is the test that it ends with. */
export async function startHouse(t) {
  const folder = await mkdtemp(path.join(tmpdir(), "hoop-interop-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const file = (name) => path.join(folder, name);
  await exec(HOOP, ["keygen", "-o", file("keys")]);
  await makeCertificate(NAME, file("certificate.pem"), file("key.pem"));
  const application = await startApplication(t);
  const port = await freePort();
  const origin = `https://${NAME}:${port}`;
  const service = await start(HOOP, [
    "service", "--listen", `127.0.0.1:${port}`, "--origin", origin, "--upstream", application.url, "--keys", file("keys"),
    "--tls-cert", file("certificate.pem"), "--tls-key", file("key.pem"), "--state-dir", file("service-state"),
  ], { ready: "listening on" });
  t.after(() => service.stop());
  const keyring = (await readFile(file("keys"), "utf8")).split("\n").filter((line) => line.startsWith("hoop-kws-v1 "));
  const ca = await readFile(file("certificate.pem"));
  return {
    origin, keyring, file,
    received: application.received,
    /** `hoop …` as a device of this house. */
    device: (...parameters) => exec(HOOP, [
      ...parameters, "--ca", file("certificate.pem"), "--resolve", `${NAME}:${port}:127.0.0.1`, "--state", file("device-state"),
    ]),
    /** A request to the service. */
    fetch: (method, target, headers, body) => request({ ca, port, method, path: target, headers }, body),
  };
}

/** A certificate for a name, which whoever trusts it can check by itself. */
export async function makeCertificate(name, certificate, key) {
  await exec("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", `/CN=${name}`,
    "-addext", `subjectAltName=DNS:${name}`, "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate,
  ]);
}

/** An application that keeps each request, and answers 201. */
async function startApplication(t) {
  const received = [];
  const server = http.createServer(async (incoming, answer) => {
    const body = Buffer.concat(await incoming.toArray());
    received.push({ method: incoming.method, target: incoming.url, headers: incoming.headers, body });
    answer.writeHead(201, { "Content-Type": "text/plain" }).end("kept");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.closeAllConnections() ?? server.close());
  return { received, url: `http://127.0.0.1:${server.address().port}` };
}

export async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function request(options, body) {
  const host = `${NAME}:${options.port}`;
  return new Promise((resolve, reject) => {
    const headers = { Host: host, ...options.headers, "Content-Length": body?.length ?? 0 };
    const outgoing = https.request({ ...options, host: "127.0.0.1", servername: NAME, headers, agent: false }, async (answer) => {
      const bytes = Buffer.concat(await answer.toArray());
      resolve({ status: answer.statusCode, headers: answer.headers, text: bytes.toString(), json: () => JSON.parse(bytes) });
    });
    outgoing.on("error", reject).end(body);
  });
}
