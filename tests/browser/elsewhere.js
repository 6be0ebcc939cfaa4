// The rest of the internet: a network namespace behind one link, with a relay and a web site that nothing here leads to but a flow.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { makeCertificate } from "../interop/node/house.js";
import { HOOP } from "../interop/node/program.js";
import { start } from "../interop/node/running.js";

const exec = promisify(execFile);
const SITE = fileURLToPath(new URL("./far-site.js", import.meta.url));
/** Of the documentation networks: the site (RFC 5737), whose name the relay alone knows. */
const SITE_ADDRESS = "192.0.2.80";
const SITE_NAME = "web.example";
const RELAY = "10.5.0.1";

export class Elsewhere {
  secureOrigin = `https://${SITE_NAME}`;
  proxyPac = "http://127.0.0.1:4673/proxy.pac";
  authority = null;
  #folder;
  #programs = [];
  #site;
  #inside;
  #address = 2;

  /** A relay and the site there, and `hoop agent` here. `isEntrusted`: the site is entrusted to the relay, and browsers that trust `authority` take the agent for it. */
  static async open({ isEntrusted = false } = {}) {
    const elsewhere = new Elsewhere();
    elsewhere.#folder = await mkdtemp(path.join(tmpdir(), "hoop-elsewhere-"));
    try {
      await elsewhere.#build(isEntrusted);
    } catch (error) {
      await elsewhere.close();
      throw error;
    }
    return elsewhere;
  }

  async #build(isEntrusted) {
    const file = (name) => path.join(this.#folder, name);
    const holder = await start("unshare", ["--net", "sh", "-c", "echo it is there; exec sleep infinity"], { ready: "it is there" });
    this.#programs.push(holder);
    this.#inside = ["nsenter", `--net=/proc/${holder.pid}/ns/net`];
    await exec("ip", ["link", "add", "wifi", "type", "veth", "peer", "name", "net", "netns", String(holder.pid)]);
    // Its address of IPv6 would come a second later, and be a change of addresses to a browser.
    await exec("ip", ["link", "set", "wifi", "addrgenmode", "none"]);
    await this.#there("ip", ["link", "set", "lo", "up"]);
    await this.#there("ip", ["address", "add", `${SITE_ADDRESS}/32`, "dev", "lo"]);
    await this.#there("ip", ["link", "set", "net", "up"]);
    await this.lighten();
    await this.comeBack();

    await makeCertificate(SITE_NAME, file("site.pem"), file("site-key.pem"));
    this.#site = spawn(this.#inside[0], [...this.#inside.slice(1), process.execPath, SITE, SITE_ADDRESS, file("site.pem"), file("site-key.pem")], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    // Node keeps what comes while nobody listens, and would give it to whoever listens next.
    this.#site.on("message", () => {});
    await this.#says("listening");

    await makeCertificate("relay.example", file("relay.pem"), file("relay-key.pem"));
    const introduced = await exec(HOOP, [
      "introduce", "relay.example:4669", "--address", RELAY, "--devices", file("devices.toml"), "--cert", file("relay.pem"),
    ]);
    await writeFile(file("laptop.toml"), introduced.stdout, { mode: 0o600 });
    // The site's name is one of the relay's own machine.
    await writeFile(file("hosts"), `${SITE_ADDRESS} ${SITE_NAME}\n`);
    const relay = ["sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', file("hosts"), HOOP, "relay", "--listen", `${RELAY}:4669`];
    this.#programs.push(await start(this.#inside[0], [
      ...this.#inside.slice(1), "unshare", "--mount", ...relay, "--allow", SITE_ADDRESS, "--devices", file("devices.toml"), "--ca", file("site.pem"),
      "--tls-cert", file("relay.pem"), "--tls-key", file("relay-key.pem"),
    ], { ready: "listening on" }));
    const shown = [];
    if (isEntrusted) {
      await exec(HOOP, ["agent", "trust", SITE_NAME, "--output", file("authority")]);
      this.authority = file("authority.crt");
      shown.push("--authority", file("authority"), "--ca", file("site.pem"));
    }
    this.#programs.push(await start(HOOP, ["agent", "--relay", file("laptop.toml"), ...shown], { ready: "listening on", environment: { XDG_RUNTIME_DIR: "" } }));
  }

  /** Nothing gets through any more, and nothing here says so. */
  async darken() {
    await this.#there("ip", ["address", "del", `${RELAY}/24`, "dev", "net"]);
  }

  async lighten() {
    await this.#there("ip", ["address", "add", `${RELAY}/24`, "dev", "net"]);
  }

  /** The network goes. */
  async goAway() {
    await exec("ip", ["link", "set", "wifi", "down"]);
  }

  /** It is there again, with another address. */
  async comeBack() {
    await exec("ip", ["address", "flush", "dev", "wifi"]);
    await exec("ip", ["address", "add", `10.5.0.${this.#address++}/24`, "dev", "wifi"]);
    await exec("ip", ["link", "set", "wifi", "up"]);
  }

  /** From now on the site sends no more than so many images, and of a file no more than so many bytes. */
  hold(images, bytes) {
    this.#site.send({ images, bytes });
  }

  /** Resolves once the site holds something back. */
  held() {
    return this.#says("held");
  }

  /** The site sends all. */
  release() {
    this.#site.send({ images: null, bytes: null });
  }

  async #says(word) {
    for (;;) {
      const [said] = await once(this.#site, "message");
      if (said === word) return;
    }
  }

  #there(command, parameters) {
    return exec(this.#inside[0], [...this.#inside.slice(1), command, ...parameters]);
  }

  async close() {
    this.#site?.kill("SIGKILL");
    for (const program of this.#programs.reverse()) await program.stop();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
