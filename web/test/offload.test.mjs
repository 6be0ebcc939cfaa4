// The conductor, with the page, the service and the gateway played here: when something is asked, sent, stopped, and who is told.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import "fake-indexeddb/auto";
import { gatewayKey } from "./gateway.mjs";
import { load } from "./sources.mjs";

const stand = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
const page = new EventTarget();
/** What the permission to reach the local network is, and what is wrong today. */
let world;
stand("location", new URL("https://photos.example/"));
stand("document", Object.create({ baseURI: "https://photos.example/", characterSet: "UTF-8", querySelectorAll: () => [] }));
stand("navigator", { languages: ["en"], userAgent: "Test", permissions: { query: async () => ({ state: world.permission }) } });
stand("addEventListener", page.addEventListener.bind(page));
stand("removeEventListener", page.removeEventListener.bind(page));
stand("reportError", (error) => world.reported.push(error.message));
stand("localStorage", { getItem: () => world.remembered ?? null, setItem: (_, text) => void (world.remembered = text) });
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
    permission: "granted", box: gatewayKey(1), wanted: [], puts: [], settings: { policy: "ask", min_bytes: 0, types: {}, saved: false, owner: null }, log: [], reported: [], windows: [], tickets: 0,
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
  if (url.host !== "photos.example") return world.probe(init.signal, url);
  if (url.pathname === "/hoop/settings") return (await world.slow?.()) ?? json(world.settings);
  if (url.pathname === "/hoop/tickets") {
    world.tickets++;
    if (world.busy?.length) return new Response(JSON.stringify({ code: "too-many-requests" }), { status: 429, headers: { "Retry-After": world.busy.shift() } });
    const id = (++serial).toString(16).padStart(32, "0");
    const key = Buffer.alloc(32, serial).toString("base64url");
    const fixed = { token: "dG9rZW4", suite: "aes256gcm", record_size: 65_536, expires: Math.ceil(Date.now() / 1000) + 1000, max_bytes: 2 ** 40 };
    const wanted = JSON.parse(init.body);
    world.wanted.push(wanted);
    const { gateways = null } = world;
    const named = wanted.gateway ?? (gateways?.length > 1 ? undefined : (gateways?.[0] ?? "any"));
    const permit = named === "any" || gateways?.includes(named) ? `permit-for-${named}` : null;
    const ticket = { upload_id: id, ticket: Buffer.alloc(107, 7).toString("base64url"), key, permit, ...fixed };
    return json({ post: "https://photos.example/hoop/post", tickets: [ticket], gateways });
  }
  if (method === "DELETE") return world.stop();
  if (url.pathname.startsWith("/hoop/uploads/")) return method === "GET" ? world.arrived ? json({ state: "received", received: 1000, answer: null }) : json({ code: "upload-unknown" }, 404) : new Response(null, { status: 204 });
  throw new TypeError(`nobody answers ${method} ${address}`);
};

/** The lengths of uploads, as their parts have told. */
const totals = {};
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
    const total = (totals[this.id] = this.headers["Content-Range"]?.split("/")[1] ?? totals[this.id]);
    if (name === "hoop-receipt") return (!this.fields && total && this.url.host !== "photos.example" && world.box?.receipt({ id: this.id, total })) || null;
    return (this.fields ?? { "hoop-upload-id": this.id, "hoop-state": this.state ?? "stored", "hoop-missing": "", "hoop-total": total })[name] ?? null;
  }
  abort() {
    this.end({ status: 0 });
  }
  /** `fields` and `document`: in the place of those that a gateway answers. */
  end({ status, code, state, fields, document }) {
    if (this.over) return;
    const responseText = document ?? JSON.stringify({ code, id: this.id });
    Object.assign(this, { over: true, status, state, fields, responseText });
    this.onloadend();
  }
  send(body) {
    const { method, url: { host, pathname }, headers } = this;
    this.id = pathname.split("/").at(-1);
    world.log.push(`${method} ${host}${pathname}`);
    if (method === "PUT") world.puts.push({ host, pathname, permit: headers["Hoop-Permit"], token: headers["Hoop-Token"] });
    // The service has nothing yet.
    const isNew = method === "HEAD" && host === "photos.example";
    const answer = isNew ? Promise.resolve({ status: 404, code: "upload-unknown" }) : world.put(this.url, this);
    // A browser that its preflight stopped sends nothing.
    if (!answer.stopped) this.upload.onprogress?.({ loaded: body?.size ?? 0 });
    Promise.resolve(answer).then((answer) => this.end(typeof answer === "number" ? { status: answer } : answer));
  }
});

function openWindow() {
  const opened = {
    closed: false, heard: [], messages: [],
    close: () => void (opened.closed = true),
    postMessage(message) {
      opened.heard.push(message.type);
      opened.messages.push(message);
      if (message.type === "begin") opened.say({ type: "ready", id: message.id, gateway: message.gateways && world.called });
      if (message.type === "begin") Object.assign(opened, { id: message.id, total: String(message.total) });
      if (message.type === "put" && world.called) queueMicrotask(() => opened.stored(message.seq));
    },
    stored: (seq) => opened.say({ type: "answer", seq, status: 201, id: opened.id, state: "stored", missing: "", total: opened.total, receipt: world.box?.receipt(opened) }),
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

const BOX = "http://hoop.local:4667";
/** What is remembered of somebody who has used the gateway before. */
const KNOWN = () => JSON.stringify({ boxes: { [BOX]: { seen: Date.now() } } });

for (const [leave, kind] of [["denied", "bridge"], ["prompt", "permission"]]) {
  test(`with leave ${leave} and no box known, one question is asked for many uploads`, async () => {
    begin({ permission: leave, probe: async () => { throw new TypeError("nobody"); } });
    const asked = [];
    const ask = ({ decline, proceed, ...question }) => {
      asked.push([question.kind, question.known]);
      (kind === "permission" ? proceed : decline)();
      world.permission = "granted";
    };
    for (let uploads = 0; uploads < 3; uploads++) {
      assert.equal(await outcome(offload(photo(), { ask })), "ordinary");
      world.permission = leave;
    }
    assert.deepEqual(asked, [[kind, false]]);
    assert.equal(world.windows.length, 0, "and no window opens");
  });

  test(`with leave ${leave}, after "not again" nothing is asked, though a box is known`, async () => {
    begin({ permission: leave, remembered: KNOWN() });
    const asked = [];
    const ask = (question) => {
      asked.push(question.kind);
      question.never();
    };
    for (let uploads = 0; uploads < 2; uploads++) assert.equal(await outcome(offload(photo(), { ask })), "ordinary");
    assert.deepEqual(asked, [kind]);
  });
}

test("leave that is not given leads to the window where a box is known, and to no second question elsewhere", async () => {
  for (const [remembered, kinds] of [[undefined, ["permission"]], [KNOWN(), ["permission", "bridge"]]]) {
    begin({ permission: "prompt", remembered, probe: async () => { world.permission = "denied"; throw new TypeError("denied"); } });
    const asked = [];
    const ask = ({ kind, proceed, decline }) => {
      asked.push(kind);
      (kind === "permission" ? proceed : decline)();
    };
    assert.equal(await outcome(offload(photo(), { ask })), "ordinary");
    assert.deepEqual(asked, kinds);
  }
});

for (const [what, settings] of [["gateway", {}], ["service", { slow: () => new Promise(() => {}) }]]) {
  test(`a form waits 300 ms for a ${what} that is silent, and a late answer is remembered`, async (t) => {
    let answer;
    begin({ ...settings, probe: () => new Promise((resolve) => (answer = resolve)) });
    t.mock.timers.enable({ apis: ["setTimeout"] });
    let sent = 0;
    const done = offload(photo(), { ordinarySubmit: () => sent++, decide: () => "always" });
    const settle = async () => { for (let turns = 0; turns < 20; turns++) await new Promise(setImmediate); };
    await settle();
    // The clock of its user's last act goes on by itself.
    assert.equal(sent, 0);
    t.mock.timers.tick(300);
    await settle();
    assert.equal(sent, 1);
    assert.equal((await done).way, "ordinary");
    if (what === "service") return;
    answer(json({ hoop: "gateway" }));
    await settle();
    assert.equal(typeof JSON.parse(world.remembered).boxes[BOX].seen, "number");
  });
}

test("of several gateways a silent one takes no time from the next", async () => {
  begin({ probe: async (_, { host }) => (host === "silent.local" ? new Promise(() => {}) : json({ hoop: "gateway" })) });
  assert.equal(await outcome(offload(photo(), { policy: "always", gateways: ["http://silent.local", "http://hoop.local:4667"] })), "direct");
});

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

test("leaving is warned of until the window's gateway has everything: what the window has is nobody's word", async () => {
  begin({ permission: "denied" });
  const ask = ({ proceed }) => {
    proceed();
    queueMicrotask(() => world.windows[0].say({ type: "hello" }));
  };
  const done = outcome(offload(photo(), { policy: "always", ask }));
  await until(() => world.windows[0]?.heard.includes("put"));
  const { seq } = world.windows[0].messages.find(({ type }) => type === "put");
  world.windows[0].say({ type: "progress", seq, sent: 0 });
  await turn();
  assert.ok(isGuarded());
  world.windows[0].stored(seq);
  assert.equal(await done, "bridge");
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

test("a service that asks to wait for a ticket is waited for and asked again, and the user is told why", async () => {
  begin({ busy: ["1"] });
  const states = [];
  const receipt = await offload(photo(), { card: false, onstate: ({ phase, busy }) => states.push(`${phase} ${busy ?? false}`) });
  assert.deepEqual([receipt.way, world.tickets], ["direct", 2]);
  assert.ok(states.includes("looking false") && states.includes("looking true"), `${states}`);
  begin({ busy: ["0", "0", "0", "0", "0"] });
  await assert.rejects(offload(photo(), { card: false, ordinary: false }), { code: "too-many-requests" });
  assert.equal(world.tickets, 4, "it is not asked for ever");
});

test("the ordinary way tells how far it has come, and gives the application's answer", async () => {
  begin({ probe: () => Promise.reject(new TypeError("nobody")) });
  const seen = [];
  const receipt = await offload(photo(), { policy: "always", onprogress: ({ sent, total }) => seen.push(sent === total) });
  const answer = await receipt.delivered();
  assert.deepEqual([receipt.way, answer.status, answer.headers.get("location"), await answer.text(), seen], ["ordinary", 201, "/photos/1", "done", [true]]);
});

/** A gateway of its own for each test: what shows of one is remembered. */
const gateway = () => `http://10.0.0.${++serial}:4667`;
const BOXES = [gatewayKey(11), gatewayKey(12)];
const [ONE, OTHER] = BOXES.map(({ name }) => name);
/** A gateway that tells its name to a page that names it first. */
const called = (name) => async (_signal, url) => {
  const names = url.searchParams.get("gateways")?.split(",");
  return json({ hoop: "gateway", gateway: names && (names.includes(name) ? name : null) });
};
const atGateway = () => world.puts.filter(({ host }) => host !== "photos.example");

test("where the service lists several gateways, the one that is here gets a permit in its name, and the ticket stays the same", async () => {
  begin({ gateways: [ONE, OTHER], probe: called(OTHER), box: BOXES[1] });
  assert.equal(await outcome(offload(photo(), { policy: "always", gateways: [gateway()] })), "direct");
  const [first, second] = world.wanted;
  assert.deepEqual([first.gateway, second.gateway, world.wanted.length], [undefined, OTHER, 2]);
  assert.equal(typeof second.key, "string");
  assert.deepEqual(atGateway().map(({ permit }) => permit), [`permit-for-${OTHER}`]);
});

test("by its window, too; and the window never hears the token", async () => {
  begin({ permission: "denied", gateways: [ONE, OTHER], called: ONE, box: BOXES[0] });
  const ask = ({ proceed }) => {
    proceed();
    queueMicrotask(() => world.windows[0].say({ type: "hello" }));
  };
  assert.equal(await outcome(offload(photo(), { policy: "always", ask })), "bridge");
  const { messages } = world.windows[0];
  const begins = messages.filter(({ type }) => type === "begin");
  assert.deepEqual(begins.map(({ gateways, permit }) => [gateways, permit]), [[[ONE, OTHER], undefined], [undefined, `permit-for-${ONE}`]]);
  assert.ok(!JSON.stringify(messages).includes("dG9rZW4"));
});

test("a 201 that does not name the upload in each field and its document is no gateway's, and the service gets it", async () => {
  const [id, total] = ["cd".repeat(16), "7"];
  const named = (change) => (_url, request) => ({
    "hoop-upload-id": request.id, "hoop-state": "stored", "hoop-missing": "", "hoop-total": request.headers["Content-Range"]?.split("/")[1], ...change,
  });
  const lies = {
    "nothing but a status": () => ({ fields: {} }),
    "no id": (url, request) => ({ fields: named({ "hoop-upload-id": undefined })(url, request) }),
    "another upload's id": (url, request) => ({ fields: named({ "hoop-upload-id": id })(url, request) }),
    "another length": (url, request) => ({ fields: named({ "hoop-total": total })(url, request) }),
    "no document": () => ({ document: "" }),
    "a page": () => ({ document: "<!doctype html>" }),
    "a document about another upload": () => ({ document: JSON.stringify({ id }) }),
  };
  for (const [lie, answer] of Object.entries(lies)) {
    // What it says when it is asked is no better.
    begin({ put: async (url, request) => (url.host === "photos.example" ? 201 : { status: request.method === "HEAD" ? 404 : 201, ...answer(url, request) }) });
    const phases = [];
    const sent = offload(photo(), { policy: "always", gateways: [gateway()], onstate: ({ phase }) => phases.push(phase) });
    assert.equal(await outcome(sent), "service", lie);
    assert.ok(!phases.includes("free"), lie);
  }
});

test("a gateway that is none of those that the service lists gets nothing, and one that does not say gets what has a permit", async () => {
  const older = async () => json({ hoop: "gateway" });
  for (const [gateways, probe, way] of [
    [[ONE], called(OTHER), "ordinary"], [[ONE, OTHER], called("3c".repeat(16)), "ordinary"], [[ONE, OTHER], older, "ordinary"], [[ONE], older, "direct"],
  ]) {
    begin({ gateways, probe, box: BOXES[0] });
    assert.equal(await outcome(offload(photo(), { policy: "always", gateways: [gateway()] })), way);
    assert.deepEqual(atGateway().map(({ permit }) => permit), way === "direct" ? [`permit-for-${ONE}`] : []);
  }
});

test("a conflict at a gateway means another way: the service gets it from the page, which shows its token there alone", async () => {
  for (const refusal of [{ status: 409, code: "upload-conflict" }, { status: 403, code: "permit-invalid" }, { status: 403, code: "permit-required" }]) {
    begin({ put: async ({ host }) => (host === "photos.example" ? 201 : refusal) });
    assert.equal(await outcome(offload(photo(), { policy: "always", gateways: [gateway()] })), "service");
    assert.deepEqual(world.puts.map(({ host, token }) => [host === "photos.example", token]), [[false, undefined], [true, "dG9rZW4"]]);
    assert.equal(count("POST photos.example/photos"), 0);
  }
});

test("a service that was told another prelude first gets the upload as ever, once it has stopped what it was told", async () => {
  begin({ put: async ({ pathname }) => (pathname === "/photos" ? 201 : { status: 409, code: "upload-conflict" }) });
  assert.equal(await outcome(offload(photo(), { policy: "always", gateways: [gateway()] })), "ordinary");
  assert.deepEqual([count("DELETE photos.example"), count("POST photos.example/photos")], [1, 1]);
});

/** Nothing was sent: what a preflight's refusal looks like, and a gateway that is away. */
const stopped = () => Object.assign(Promise.resolve(0), { stopped: true });

test("a gateway whose preflight lets no permit through gets the upload without one, and is not offered another", async () => {
  begin({ put: (_url, { headers }) => (headers["Hoop-Permit"] ? stopped() : Promise.resolve(201)) });
  const gateways = [gateway()];
  for (let uploads = 1; uploads <= 2; uploads++) assert.equal(await outcome(offload(photo(), { policy: "always", gateways })), "direct");
  assert.deepEqual(atGateway().map(({ permit }) => permit), ["permit-for-any", undefined, undefined]);
});

test("a gateway that was away for a moment, and asks for permits, gets the permit", async () => {
  let away = true;
  const put = (_url, { method, headers }) => {
    if (method === "HEAD") return Promise.resolve(404);
    if (!headers["Hoop-Permit"]) return Promise.resolve({ status: 403, code: "permit-required" });
    if (!away) return Promise.resolve(201);
    away = false;
    return stopped();
  };
  begin({ put });
  assert.equal(await outcome(offload(photo(), { policy: "always", gateways: [gateway()] })), "direct");
  assert.deepEqual(atGateway().map(({ permit }) => permit), ["permit-for-any", undefined, "permit-for-any"]);
});

for (const [lie, word] of Object.entries({ "knows nothing of it any more": { status: 404, code: "upload-unknown" }, "says, unsigned, that the service has it": { status: 200, state: "received" } })) {
  test(`from a page that stays, the service gets what a gateway took that ${lie}`, async () => {
    begin({ put: async (_url, { method }) => (method === "PUT" ? 201 : word) });
    const phases = [];
    const onstate = ({ phase, way }) => phases.at(-1)?.[0] !== phase && phases.push([phase, way]);
    const receipt = await offload(photo(), { policy: "always", gateways: [gateway()], onstate });
    assert.deepEqual([receipt.way, receipt.phase], ["direct", "free"]);
    await until(() => phases.at(-1)[0] === "received");
    assert.deepEqual(phases.slice(-3), [["free", "direct"], ["handing", "service"], ["received", "service"]]);
    // Uploads of other tests go on.
    const puts = world.puts.filter(({ pathname }) => pathname.includes(receipt.id));
    assert.deepEqual(puts.map(({ host }) => host === "photos.example"), [false, true]);
    assert.equal(count("POST photos.example/photos"), 0);
  });
}

/** The service gets all of it at that moment: by the gateway, or from the page. */
const arrives = () => (world.arrived = true);

for (const [who, box, listed] of [["shows no key", null, false], ["shows no key, where the service lists gateways", null, true], ["has another key than the one that is known", gatewayKey(3), false]]) {
  test(`a gateway that ${who} is used, and the page stays until the service has everything`, async () => {
    const address = gateway();
    begin();
    assert.equal((await offload(photo(), { policy: "always", gateways: [address] })).phase, "free");
    begin({ box, ...(listed && { gateways: [ONE], probe: called(ONE) }) });
    const states = [];
    const sent = offload(photo(), { policy: "always", gateways: [address], onstate: (state) => states.push(state) });
    await until(() => states.at(-1)?.stranger);
    assert.deepEqual([states.at(-1).phase, states.at(-1).stranger], ["handing", box ? "changed" : "unproven"]);
    assert.ok(isGuarded(), "leaving is warned of");
    await turn();
    arrives();
    const receipt = await sent;
    assert.deepEqual([receipt.way, receipt.phase, states.at(-1).stranger], ["direct", "received", undefined]);
    assert.ok(!states.some(({ phase }) => phase === "free"), "nobody was told to leave");
    assert.equal(count("POST photos.example/photos"), 0);
  });
}

test("what a stranger keeps to itself the page sends, and it may be cancelled until then", async () => {
  begin({ box: null, put: async (_url, { method }) => (method === "PUT" ? 201 : { status: 404, code: "upload-unknown" }) });
  const phases = [];
  const onstate = ({ phase, way, stranger }) => phases.push([phase, way, stranger]);
  const receipt = await offload(photo(), { policy: "always", gateways: [gateway()], onstate });
  assert.equal(receipt.phase, "received");
  assert.deepEqual(world.puts.filter(({ pathname }) => pathname.includes(receipt.id)).map(({ host }) => host === "photos.example"), [false, true]);
  assert.ok(!phases.some(([phase]) => phase === "free"));

  begin({ box: null });
  const ending = new AbortController();
  const ended = outcome(offload(photo(), { policy: "always", gateways: [gateway()], signal: ending.signal, onstate }));
  await until(() => phases.at(-1)[2]);
  ending.abort();
  assert.equal(await ended, "aborted");
  assert.equal(phases.at(-1)[0], "stopped");
  assert.equal(count("DELETE photos.example"), 1);
});

test("whose receipt is of another upload, or of a gateway that the service does not list, is passed over", async () => {
  for (const [change, why] of [
    [{ box: { receipt: (of) => gatewayKey(1).receipt({ ...of, id: "cd".repeat(16) }) } }, "another upload"],
    [{ box: gatewayKey(13), gateways: [ONE], probe: called(ONE) }, "a copied name"],
  ]) {
    begin(change);
    const phases = [];
    const sent = offload(photo(), { policy: "always", gateways: [gateway()], onstate: ({ phase }) => phases.push(phase) });
    assert.equal(await outcome(sent), "service", why);
    assert.ok(!phases.includes("free"), why);
  }
});
