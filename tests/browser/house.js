// The three of them on loopback, for real: the photo wall, `hoop service` before it as https://photos.example, and `hoop gateway` as
// http://hoop.local:4667. Each can be stopped and started again.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeCertificate } from "../interop/node/house.js";
import { HOOP } from "../interop/node/program.js";
import { start } from "../interop/node/running.js";
import { Link } from "./link.js";

const exec = promisify(execFile);
const WALL = fileURLToPath(new URL("../../examples/photo-wall/server.js", import.meta.url));
const WALL_PORT = 8000;
const BEHIND_LINK = { service: 1443, gateway: 14667, wall: 18000 };
/** Where the gateway finds the service if there is a link between them. */
const DELIVERY_ADDRESS = "127.0.0.2";
const ORIGIN = "https://photos.example";
const ADDRESS = "127.0.0.1";
/** When every photo was changed last, so that only their bytes tell two of the same name and length apart. */
const TAKEN_AT = 1_790_000_000;

export class House {
  origin = ORIGIN;
  gatewayUrl = "http://hoop.local:4667";
  wall = null;
  service = null;
  gateway = null;
  /** The links before the gateway and the service, and between them, if the house was started with them. */
  links = {};
  #options;
  #folder;
  #walls = [];
  /** How many photos there are to be, as it was last said. */
  #asserted;
  #gateways = [];

  /** Starts a house. Options, all of which may be absent:
   *  `gateway: false`: none yet; `startGateway()` starts it.
   *  `signIn`: the photo wall asks for sign-in, and the service asks it who is there.
   *  `wall`: further environment of the photo wall; null: none is started, and something else may listen on port 8000.
   *  `serviceFlags`, `gatewayFlags`: further flags. `routes`: the text of routes.toml.
   *  `links`: any of `gateway`, `service`, `wall`, `delivery`: a Link before the one, as `house.links.gateway`, or from the gateway to the service. */
  static async start(options = {}) {
    const house = new House();
    house.#options = options;
    house.#folder = await mkdtemp(path.join(tmpdir(), "hoop-house-"));
    try {
      await exec(HOOP, ["keygen", "-o", house.file("keys")]);
      await makeCertificate("photos.example", house.file("certificate.pem"), house.file("key.pem"));
      for (const role of options.links ?? []) house.links[role] = await house.#link(role);
      if (options.wall !== null) await house.startWall();
      await house.startService();
      if (options.gateway !== false) await house.startGateway();
    } catch (error) {
      await house.close();
      throw error;
    }
    return house;
  }

  /** Ends everything. */
  async close() {
    const programs = [...this.#gateways, this.service, this.wall].filter(Boolean);
    await Promise.all(programs.map((program) => program.stop()));
    await Promise.all(Object.values(this.links).map((link) => link.cut()));
    await rm(this.#folder, { recursive: true, force: true });
    // A second copy may have come after the first was looked at.
    if (this.#asserted !== undefined) assert.equal(this.arrived.length, this.#asserted, "photos at the end");
  }

  /** A path in the house's folder, which goes with it. */
  file(name) {
    return path.join(this.#folder, name);
  }

  async startWall() {
    const { signIn, wall } = this.#options;
    const port = this.links.wall ? BEHIND_LINK.wall : WALL_PORT;
    const environment = { PORT: String(port), PHOTOS: this.file("photos"), HOOP: "1", ...(signIn && { SIGN_IN: "1" }), ...wall };
    this.wall = await start(process.execPath, [WALL], { ready: '"listening"', environment });
    this.#walls.push(this.wall);
  }

  /** `flags`: in the place of `serviceFlags`. */
  async startService(flags = this.#options.serviceFlags ?? []) {
    const { signIn, routes = signIn ? '[user]\npath = "/me"\njson = "/id"\nsign_in = "/login"\nrequired = true\n' : null } = this.#options;
    if (routes !== null) await writeFile(this.file("routes.toml"), routes);
    this.service = await start(HOOP, [
      "service", "--listen", this.#listen("service", 443), "--origin", ORIGIN, "--upstream", `http://${ADDRESS}:${WALL_PORT}`,
      "--keys", this.file("keys"), "--tls-cert", this.file("certificate.pem"), "--tls-key", this.file("key.pem"),
      "--state-dir", this.file("service-state"), ...(routes === null ? [] : ["--routes", this.file("routes.toml")]), ...flags,
    ], { ready: "listening on" });
  }

  /** Starts the gateway, or another one: with a spool of its own, at a port that no link leads to yet. */
  async startGateway({ spool = "spool", port } = {}) {
    this.gateway = await start(HOOP, [
      "gateway", "--listen", port ? `${ADDRESS}:${port}` : this.#listen("gateway", 4667), "--spool", this.file(spool), "--no-mdns",
      "--resolve", `photos.example:443:${this.links.delivery ? DELIVERY_ADDRESS : ADDRESS}`, "--allow-dest", "photos.example", "--ca", this.file("certificate.pem"),
      ...(this.#options.gatewayFlags ?? []),
    ], { ready: "listening on" });
    this.#gateways.push(this.gateway);
    return this.gateway;
  }

  /** Waits until a gateway says that an upload is in one of these states; for ten seconds it may not know the upload yet. */
  async gatewaySays(id, states, port = this.links.gateway ? BEHIND_LINK.gateway : 4667) {
    const ending = new AbortController();
    const events = await onceKnown(`http://${ADDRESS}:${port}/monitor?ID=${id}`, { headers: { Accept: "text/event-stream" }, signal: ending.signal });
    let text = "";
    for await (const piece of events.body.pipeThrough(new TextDecoderStream())) {
      text += piece;
      const state = states.find((state) => text.includes(`"state":"${state}"`));
      if (!state) continue;
      ending.abort();
      return state;
    }
    throw new Error(`the gateway did not say ${states} of ${id}: ${text}`);
  }

  #link(role) {
    if (role === "delivery") return Link.open(443, 443, DELIVERY_ADDRESS);
    return Link.open({ gateway: 4667, service: 443, wall: WALL_PORT }[role], BEHIND_LINK[role]);
  }

  #listen(role, port) {
    return `${ADDRESS}:${this.links[role] ? BEHIND_LINK[role] : port}`;
  }

  /** A new file of random bytes, in a folder of its own, and what is known of it. */
  async photo(name, bytes = 100_000) {
    const content = randomBytes(bytes);
    const file = path.join(await mkdtemp(this.file("photo-")), name);
    await writeFile(file, content);
    await utimes(file, TAKEN_AT, TAKEN_AT);
    return { name, path: file, bytes, sha256: sha256(content) };
  }

  /** The URL of a page of the gateway, past the link before it. */
  pastLink(target) {
    return `http://${this.#listen("gateway", 4667)}${target}`;
  }

  /** What the gateway's monitor says of an upload, asked past the link; for ten seconds it may not know it yet. */
  async ask(id) {
    const answer = await onceKnown(this.pastLink(`/monitor?ID=${id}`), { headers: { Accept: "application/json" } });
    return answer.json();
  }

  /** What the photo wall has said of the photos that came to it, in order. */
  get arrived() {
    const lines = this.#walls.flatMap((wall) => wall.lines).filter((line) => line.startsWith('{"event":"photo"'));
    return lines.map((line) => JSON.parse(line));
  }

  /** Waits until as many photos are at the wall as are given, and compares them with these byte by byte; no other photo and no
   *  second copy may be there. */
  async assertArrived(...photos) {
    await this.wall.until(() => this.arrived.length >= photos.length, `has ${photos.length} photos`);
    this.#asserted = photos.length;
    const name = (photo) => `${photo.name} ${photo.sha256}`;
    assert.deepEqual(this.arrived.map(name).sort(), photos.map(name).sort());
    for (const { file, sha256: said } of this.arrived) {
      assert.equal(sha256(await readFile(path.join(this.file("photos"), file))), said, `what lies on disk as ${file}`);
    }
  }
}

/** What a gateway's monitor answers: it knows an upload from the first part on that it has recorded, and is given ten seconds for that. */
async function onceKnown(url, options) {
  let answer = await fetch(url, options);
  for (let times = 0; answer.status === 404 && times < 100; times++) {
    await answer.body?.cancel();
    await new Promise((resolve) => setTimeout(resolve, 100));
    answer = await fetch(url, options);
  }
  assert.equal(answer.status, 200, `the gateway's word, asked at ${url}`);
  return answer;
}

function sha256(bytes) {
  return createHash("sha256").update(bytes).digest("hex");
}
