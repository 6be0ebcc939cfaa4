// A photo wall with sign-in, `hoop service` before it and `hoop gateway`, all on this machine, to be used by hand in one's own
// browser. See README.md. It ends, and removes what it has written, on Ctrl-C or when one of its programs ends.

import { execFile } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdtemp, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { pipeline } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeCertificate } from "../tests/interop/node/house.js";
import { HOOP } from "../tests/interop/node/program.js";
import { Running } from "../tests/interop/node/running.js";

const WALL = fileURLToPath(new URL("../examples/photo-wall/server.js", import.meta.url));
const ADDRESS = "127.0.0.1";
/** The gateway reaches the service here, by a thin line. */
const FAR_ADDRESS = "127.0.0.2";
const PORT = 8443;
const GATEWAY_PORT = 4667;
/** 1.15 Mbit/s, the uplink of the other demo, in bytes a second. */
const LINE_RATE = 1_150_000 / 8;

// With ASK the page has a name that counts as out on the Internet, in a Chromium that is told so: then it asks for leave.
const asks = Boolean(process.env.ASK);
const name = asks ? "photos.example" : "localhost";
const origin = `https://${name}:${PORT}`;
const gatewayUrl = `http://${asks ? "hoop.local" : ADDRESS}:${GATEWAY_PORT}`;

const folder = await mkdtemp(path.join(tmpdir(), "hoop-demo-web-"));
const file = (leaf) => path.join(folder, leaf);
const programs = [];
let ending = false;

process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => end(0, "Stopped."));

try {
  await startAll();
} catch (error) {
  await end(1, error.message);
}
console.log(invitation());
const gone = await Promise.race(programs.map((program) => program.ended.then(() => program)));
await end(1, `${gone.name} has ended; it said:\n${gone.lines.slice(-20).join("\n")}`);

async function startAll() {
  await promisify(execFile)(HOOP, ["keygen", "-o", file("keys")]);
  await makeCertificate(name, file("certificate.pem"), file("key.pem"));
  await writeFile(file("routes.toml"), '[user]\npath = "/me"\njson = "/id"\nsign_in = "/login"\nrequired = true\n');
  await startLine();
  const wall = await run(process.execPath, [WALL], '"listening"', {
    PORT: "0", PHOTOS: file("photos"), SIGN_IN: "1", HOOP: "1", ...(!asks && { HOOP_GATEWAY: gatewayUrl }),
  });
  const { port } = JSON.parse(wall.lines.find((line) => line.includes('"listening"')));
  await run(HOOP, [
    "service", "--listen", `${ADDRESS}:${PORT}`, "--origin", origin, "--upstream", `http://${ADDRESS}:${port}`, "--keys", file("keys"),
    "--tls-cert", file("certificate.pem"), "--tls-key", file("key.pem"), "--state-dir", file("service"), "--routes", file("routes.toml"),
  ], "listening on");
  await run(HOOP, [
    "gateway", "--listen", `${ADDRESS}:${GATEWAY_PORT}`, "--spool", file("spool"), "--no-mdns", "--allow-dest", `${name}:${PORT}`,
    "--resolve", `${name}:${PORT}:${FAR_ADDRESS}`, "--ca", file("certificate.pem"),
  ], "listening on");
}

async function run(command, parameters, ready, environment) {
  const program = new Running(command, parameters, environment);
  programs.push(program);
  await program.until(() => program.lines.some((line) => line.includes(ready)), `says "${ready}"`);
  return program;
}

/** The thin line: what the gateway sends takes its time, what comes back does not. */
function startLine() {
  const pace = async function* (pieces) {
    for await (const piece of pieces) {
      await sleep((piece.length / LINE_RATE) * 1000);
      yield piece;
    }
  };
  const server = net.createServer((gateway) => {
    const service = net.connect(PORT, ADDRESS);
    const over = () => [gateway, service].forEach((socket) => socket.destroy());
    pipeline(gateway, pace, service, over);
    pipeline(service, gateway, over);
  });
  return new Promise((resolve, reject) => server.on("error", reject).listen(PORT, FAR_ADDRESS, resolve));
}

/** Only the first reason for the end counts: ending one program ends the others. */
async function end(status, why) {
  if (ending) return new Promise(() => {});
  ending = true;
  await Promise.all(programs.map((program) => program.stop()));
  console.log(`\n${why}`);
  process.exit(status);
}

function invitation() {
  return `
  Open      ${origin}/${asks ? `      in a Chromium that takes this page for one out on the Internet:

    chromium --user-data-dir=${file("chromium")} \\
      --host-resolver-rules='MAP ${name} ${ADDRESS}, MAP hoop.local ${ADDRESS}' \\
      --ip-address-space-overrides=${ADDRESS}:${PORT}=public,${ADDRESS}:${GATEWAY_PORT}=local ${origin}/
` : ""}
  Sign in   as alice, with the password wonderland; or as bob, with builder
  A photo   ${fileURLToPath(new URL("evening.jpg", import.meta.url))}, or your own: several at once are fine

The browser warns of the certificate, since it was made for this demo and nobody has signed it: go on ("Advanced …").

Leave to reach the local network
${asks ? `  Chromium asks, after you have pressed "Continue" in the card: "… wants to access other devices on your local network". Allow.
  To change your mind: the sign at the left of the address, or Settings, "Privacy and security", "Site settings".
  If you block it, the card offers the Hoop box's small window instead.`
: `  Chromium has nothing to ask here, since page and Hoop box are on one machine. ASK=1 make demo-web shows its question.
  Firefox lets no such page reach the local network: the card offers the box's small window. Open it; it closes by itself.`}

Try
  Walk away      Choose photos, press "Hang them up", answer the card. At "You may leave", close the page. Between the box and the site
                 is a line of 1.15 Mbit/s: the photo above takes 20 seconds, then it hangs on the wall.
  My uploads     ${origin}/hoop/uploads: pause, resume and stop what is under way. ${origin}/hoop/settings: ask no more.
  The box        ${gatewayUrl}/, and its page of one upload: follow the link in the card.
  Sign out       while something is under way. It waits at the site; sign in again, and press Finish in my uploads.
  Without a box  The form works as ever: turn scripts off, or press "Send directly".

All is on this machine, and goes when you press Ctrl-C.
`;
}
