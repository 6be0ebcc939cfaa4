// The conductor, with the page, the service and the gateway played here: when something is asked, sent, stopped, and who is told.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import "fake-indexeddb/auto";
import { load } from "./sources.mjs";

const stand = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
const page = new EventTarget();
/** What the permission to reach the local network is, and what is wrong today. */
let world;
stand("location", new URL("https://photos.example/"));
stand("document", { baseURI: "https://photos.example/", characterSet: "UTF-8", querySelectorAll: (selector) => (selector.startsWith("input") ? (world.controls ?? []) : []) });
stand("navigator", { languages: ["en"], userAgent: "Test", permissions: { query: async () => ({ state: world.permission }) } });
stand("addEventListener", page.addEventListener.bind(page));
stand("removeEventListener", page.removeEventListener.bind(page));
stand("reportError", (error) => world.reported.push(error.message));
stand("window", { open: () => openWindow() });
Object.defineProperty(Request.prototype, "targetAddressSpace", { value: "local", configurable: true });
// What the library waits for after the last test holds nothing up.
const [realTimeout, realInterval] = [setTimeout, setInterval];
stand("setTimeout", (...how) => realTimeout(...how).unref());
stand("setInterval", (...how) => realInterval(...how).unref());
const alive = realInterval(() => {}, 60_000);
after(() => clearInterval(alive));
const { offload } = await load("offload");
const { find } = await load("keep");

const json = (value, status = 200) => new Response(JSON.stringify(value), { status });
const turn = () => new Promise((resolve) => realTimeout(resolve, 5));
async function until(holds) {
  for (let turns = 0; !(await holds()); turns++) {
    assert.ok(turns < 1000, `${holds} does not come true`);
    await turn();
  }
}

/** A new world: a gateway that may be reached and takes everything, a service that gives tickets. */
function begin(change = {}) {
  world = {
    permission: "granted", settings: { policy: "ask", min_bytes: 0, types: {}, saved: false, owner: null }, log: [], reported: [], windows: [], tickets: 0,
    probe: async () => json({ hoop: "gateway" }), put: async () => 201, stop: () => new Response(null, { status: 204 }), ...change,
  };
}

const count = (what) => world.log.filter((line) => line.startsWith(what)).length;
let serial = 0;

globalThis.fetch = async (address, init = {}) => {
  const url = new URL(address);
  const method = init.method ?? "GET";
  world.log.push(`${method} ${url.host}${url.pathname}`);
  init.signal?.throwIfAborted();
  if (url.host === "hoop.local:4667") return world.probe(init.signal);
  if (url.pathname === "/hoop/settings") return (await world.slow?.()) ?? json(world.settings);
  if (url.pathname === "/hoop/tickets") {
    world.tickets++;
    const id = (++serial).toString(16).padStart(32, "0");
    const key = Buffer.alloc(32, serial).toString("base64url");
    const fixed = { token: "dG9rZW4", suite: "aes256gcm", record_size: 65_536, expires: Math.ceil(Date.now() / 1000) + 1000, max_bytes: 2 ** 40 };
    return json({ post: "https://photos.example/hoop/post", tickets: [{ upload_id: id, ticket: Buffer.alloc(107, 7).toString("base64url"), key, ...fixed }] });
  }
  if (method === "DELETE") return world.stop();
  if (url.pathname.startsWith("/hoop/uploads/")) return method === "GET" ? json({ code: "upload-unknown" }, 404) : new Response(null, { status: 204 });
  throw new TypeError(`nobody answers ${method} ${address}`);
};

stand("XMLHttpRequest", class {
  upload = {};
  status = 0;
  statusText = "";
  response = new Blob(["done"]);
  headers = {};
  open(method, address) {
    [this.method, this.url] = [method, new URL(address)];
  }
  setRequestHeader(name, value) {
    this.headers[name] = value;
  }
  getAllResponseHeaders() {
    return "content-type: text/plain\r\nlocation: /photos/1\r\n";
  }
  getResponseHeader(name) {
    return { "hoop-state": "stored", "hoop-missing": "", "hoop-total": this.headers["Content-Range"]?.split("/")[1] }[name] ?? null;
  }
  abort() {
    this.end(0);
  }
  end(status) {
    if (this.over) return;
    [this.over, this.status] = [true, status];
    this.onloadend();
  }
  send(body) {
    world.log.push(`${this.method} ${this.url.host}${this.url.pathname}`);
    this.upload.onprogress?.({ loaded: body?.size ?? 0 });
    world.put(this.url).then((status) => this.end(status));
  }
});

function openWindow() {
  const opened = {
    closed: false, heard: [],
    close: () => void (opened.closed = true),
    postMessage(message) {
      opened.heard.push(message.type);
      if (message.type === "begin") opened.say({ type: "ready", id: message.id });
    },
    say: (message) => page.dispatchEvent(Object.assign(new Event("message"), { source: opened, origin: "http://hoop.local:4667", data: { hoop: 1, ...message } })),
  };
  world.windows.push(opened);
  return opened;
}

function photo(name = `${++serial}.jpg`) {
  const body = new FormData();
  body.append("photo", new File(["abc"], name, { lastModified: 5 }));
  return { url: "/photos", body };
}

const outcome = (promise) => promise.then(({ way }) => way, ({ code }) => code);
const isGuarded = () => !page.dispatchEvent(new Event("beforeunload", { cancelable: true }));

for (const [when, change] of Object.entries({
  "the gateway is looked for": { probe: (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))) },
  "the settings are asked for": { permission: "prompt", slow: () => new Promise((resolve) => setTimeout(resolve, 30)) },
})) {
  test(`cancelled while ${when}, nothing is sent and nothing is asked`, async () => {
    begin(change);
    const ending = new AbortController();
    const asked = [];
    let submitted = 0;
    const ended = outcome(offload(photo(), { signal: ending.signal, ask: ({ kind }) => asked.push(kind), ordinarySubmit: () => submitted++ }));
    await turn();
    ending.abort();
    assert.equal(await ended, "aborted");
    assert.deepEqual([submitted, asked, world.tickets], [0, [], 0]);
  });
}

test("a listener that throws is reported, and the upload goes once", async () => {
  begin();
  const fail = () => {
    throw new Error("the application's");
  };
  assert.equal(await outcome(offload(photo(), { policy: "always", onstate: fail, onprogress: fail })), "direct");
  assert.deepEqual([count("PUT hoop.local"), count("POST photos.example/photos")], [1, 0]);
  assert.ok(world.reported.length > 1);
});

test("what the user has saved holds for programs, too", async () => {
  begin({ settings: { policy: "always", min_bytes: 5_000, types: {}, saved: true, owner: null } });
  assert.equal(await outcome(offload(photo())), "ordinary");
  assert.equal(await outcome(offload({ url: "/notes", body: new Blob([new Uint8Array(5_000)]) })), "direct");
});

test("leaving is warned of while any upload needs the page", async () => {
  let finish;
  const held = new Promise((resolve) => (finish = resolve));
  begin({ put: () => held });
  const first = offload(photo(), { policy: "always" });
  await until(() => count("PUT hoop.local") === 1);
  assert.ok(isGuarded());
  world.put = async () => 201;
  await offload(photo(), { policy: "always" });
  assert.ok(isGuarded(), "the other one is not done");
  finish(201);
  await first;
  assert.ok(!isGuarded());
});

test("two clicks open one window, and an upload that is cancelled closes it", async () => {
  begin({ permission: "denied" });
  const ending = new AbortController();
  const ask = ({ proceed }) => {
    proceed();
    proceed();
    queueMicrotask(() => world.windows[0].say({ type: "hello" }));
  };
  const ended = outcome(offload(photo(), { policy: "always", signal: ending.signal, ask }));
  await until(() => world.windows[0]?.heard.includes("put"));
  ending.abort();
  assert.equal(await ended, "aborted");
  assert.deepEqual(world.windows.map(({ closed }) => closed), [true]);
});

test("who changes their mind while the window opens sends it directly, and the window closes", async () => {
  begin({ permission: "denied" });
  const ask = ({ proceed, decline }) => {
    proceed();
    decline();
  };
  assert.equal(await outcome(offload(photo(), { policy: "always", ask })), "ordinary");
  world.windows[0].say({ type: "hello" });
  await until(() => world.windows[0].closed);
});

test("what could not be stopped is not called stopped", async () => {
  for (const [answer, code] of [[() => json({ code: "spool-full" }, 507), "not-stopped"], [() => json({ code: "upload-done" }, 409), "upload-done"], [undefined, "aborted"]]) {
    begin({ put: () => new Promise(() => {}), ...(answer && { stop: answer }) });
    const ending = new AbortController();
    let phase;
    const ended = outcome(offload(photo(), { policy: "always", signal: ending.signal, onstate: (state) => (phase = state.phase) }));
    await until(() => count("PUT hoop.local") === 1);
    ending.abort();
    assert.equal(await ended, code);
    assert.equal(phase, code === "aborted" ? "stopped" : "failed");
  }
});

test("one that is under way is found again by the same file, and not by a body without a name", async () => {
  begin({ put: () => new Promise(() => {}) });
  const named = photo();
  void offload(named, { policy: "always" }).catch(() => {});
  void offload({ url: "/notes", body: new Blob(["secret"]) }, { policy: "always" }).catch(() => {});
  await until(() => count("PUT hoop.local") === 2);
  const { key } = await (await load("message")).message(named);
  assert.equal((await find("", key)).parts.filter((part) => part === null).length, 1);
  const { key: nameless } = await (await load("message")).message({ url: "/notes", body: new Blob(["public"]) });
  assert.equal(await find("", nameless), undefined);
});

test("the ordinary way tells how far it has come, and gives the application's answer", async () => {
  begin({ probe: () => Promise.reject(new TypeError("nobody")) });
  const seen = [];
  const receipt = await offload(photo(), { policy: "always", onprogress: ({ sent, total }) => seen.push(sent === total) });
  const answer = await receipt.delivered();
  assert.deepEqual([receipt.way, answer.status, answer.headers.get("location"), await answer.text(), seen], ["ordinary", 201, "/photos/1", "done", [true]]);
});
