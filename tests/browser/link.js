// What lies between a browser and a server, when a test wants to slow it down, hold it at a certain byte, or cut it.

import { once } from "node:events";
import net from "node:net";

/** A TCP link on loopback. What goes from the browser to the server is counted and can be held; the way back is free. */
export class Link {
  /** Bytes that have come from the browser, on all connections. */
  taken = 0;
  /** Bytes a second that each connection may carry to the server; Infinity: as fast as it goes. */
  rate = Infinity;
  #to;
  #server = null;
  #connections = new Set();
  #gate = null;
  #holds = [];
  #mute = false;

  static async open(port, to, address = "127.0.0.1") {
    const link = new Link();
    link.#to = to;
    link.port = port;
    link.address = address;
    await link.mend();
    return link;
  }

  /** Resolves when `bytes` more have come; what comes after them is held until `release()`. */
  holdAfter(bytes) {
    return new Promise((resolve) => this.#holds.push({ at: this.taken + bytes, resolve }));
  }

  release() {
    this.#gate?.open();
    this.#gate = null;
  }

  /** From now on nothing that the server says gets back to the browser, until `mend()`. */
  mute() {
    this.#mute = true;
  }

  /** From now on another server is behind the link: all connections end, and new ones go there. */
  async turn(port) {
    await this.cut();
    this.#to = port;
    await this.mend();
  }

  /** Ends all connections at once and takes no more, as if the server's cable were pulled. */
  async cut() {
    const server = this.#server;
    this.#server = null;
    for (const socket of this.#connections) socket.destroy();
    this.release();
    if (server) await new Promise((resolve) => server.close(resolve));
  }

  async mend() {
    if (this.#server) return;
    this.#mute = false;
    this.#server = net.createServer((browser) => this.#join(browser));
    await new Promise((resolve, reject) => this.#server.on("error", reject).listen(this.port, this.address, resolve));
  }

  #join(browser) {
    const server = net.connect(this.#to, "127.0.0.1");
    for (const socket of [browser, server]) {
      this.#connections.add(socket);
      socket.on("error", () => {}).on("close", () => {
        this.#connections.delete(socket);
        browser.destroy();
        server.destroy();
      });
    }
    server.on("data", (piece) => this.#mute || browser.write(piece)).on("end", () => this.#mute || browser.end());
    this.#forward(browser, server).catch(() => browser.destroy());
  }

  async #forward(browser, server) {
    for await (const piece of browser) {
      this.taken += piece.length;
      this.#holdIfDue();
      await this.#gate?.opened;
      if (this.rate !== Infinity) await new Promise((resolve) => setTimeout(resolve, (piece.length / this.rate) * 1000));
      if (!server.write(piece)) await once(server, "drain");
    }
    server.end();
  }

  #holdIfDue() {
    const due = this.#holds.filter(({ at }) => this.taken >= at);
    if (due.length === 0) return;
    this.#holds = this.#holds.filter((hold) => !due.includes(hold));
    this.#gate ??= gate();
    for (const hold of due) hold.resolve();
  }
}

function gate() {
  let open;
  const opened = new Promise((resolve) => (open = resolve));
  return { open, opened };
}
