// The photo wall by itself: its two forms, and who may hang up what.

import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { start } from "../../tests/interop/node/running.js";

const SERVER = fileURLToPath(new URL("server.js", import.meta.url));

/** A wall that ends with the test. `restart()` gives another on the same folder. */
async function startWall(t, environment = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), "photo-wall-"));
  t.after(() => rm(folder, { recursive: true }));
  const photos = path.join(folder, "photos");
  let program;
  const run = async () => {
    program = await start(process.execPath, [SERVER], { ready: '"listening"', environment: { PORT: "0", PHOTOS: photos, ...environment } });
    const { port } = program.lines.map((line) => JSON.parse(line)).find(({ event }) => event === "listening");
    return (target, options) => fetch(`http://127.0.0.1:${port}${target}`, { redirect: "manual", ...options });
  };
  t.after(() => program.stop());
  return { ask: await run(), photos, restart: () => program.stop().then(run) };
}

async function signIn(ask, name = "alice", password = "wonderland") {
  const answer = await ask("/login", { method: "POST", body: new URLSearchParams({ name, password }) });
  return { answer, cookie: answer.headers.get("set-cookie")?.split(";")[0] };
}

async function csrfOf(ask, cookie) {
  const text = await (await ask("/", { headers: { cookie } })).text();
  return text.match(/name="csrf" value="([^"]+)"/)[1];
}

function form(fields = {}, photos = 1) {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.set(name, value);
  for (let at = 0; at < photos; at++) data.append("photo", new Blob([`photo ${at}`]), `${at}.jpg`);
  return data;
}

test("with Hoop the page differs by exactly one line", async (t) => {
  const [plain, changed] = await Promise.all([{}, { HOOP: "1" }].map((environment) => startWall(t, environment)));
  const lines = async ({ ask }) => (await (await ask("/")).text()).split("\n");
  const [before, after] = [await lines(plain), await lines(changed)];
  const added = after.filter((line) => !before.includes(line));
  assert.deepEqual(added, ['<script type="module" src="/hoop/hoop.js" data-hoop="form[enctype]"></script>']);
  assert.deepEqual(after.filter((line) => line !== added[0]), before);
});

test("without sign-in a form of many photos is taken as it is", async (t) => {
  const { ask, photos } = await startWall(t);
  const answer = await ask("/photos", { method: "POST", body: form({ caption: "<b>Evening</b>" }, 300) });
  assert.equal(answer.status, 201);
  assert.equal((await answer.json()).photos.length, 300);
  assert.equal((await readdir(photos)).length, 300);
  assert.ok((await (await ask("/")).text()).includes("&#60;b&#62;Evening"), "a caption is text");
  assert.equal((await ask("/me")).status, 404);
});

test("a request of which nothing was stored is forgotten, and one that was is stored once", async (t) => {
  const { ask, photos } = await startWall(t);
  const send = (body) => ask("/photos", { method: "POST", body, headers: { "idempotency-key": '"one"', accept: "application/json" } });
  const wrong = form();
  wrong.append("film", new Blob(["no photo"]), "film.mp4");
  for (let time = 0; time < 2; time++) assert.equal((await send(wrong)).status, 400, "a field that the wall does not know");
  const first = await (await send(form())).json();
  assert.deepEqual(await (await send(form())).json(), first);
  assert.deepEqual((await readdir(photos)).filter((name) => first.photos.some(({ file }) => file === name)).length, 1);
});

test("with sign-in a stranger is sent to sign in, and nothing of his is kept", async (t) => {
  const { ask, photos } = await startWall(t, { SIGN_IN: "1" });
  for (const cookie of ["", "session=guessed"]) {
    const answer = await ask("/photos", { method: "POST", body: form(), headers: { cookie } });
    assert.deepEqual([answer.status, answer.headers.get("location")], [303, "/login"]);
  }
  assert.deepEqual(await readdir(photos), []);
  assert.deepEqual([(await ask("/me")).status, await (await ask("/me")).json()], [401, { id: null }]);
  assert.equal((await signIn(ask, "alice", "guessed")).answer.status, 403);
  assert.equal((await signIn(ask, "nobody", "")).answer.status, 403);
});

test("the session's cookie is out of scripts' and other sites' reach", async (t) => {
  const { ask } = await startWall(t, { SIGN_IN: "1", USERS: "carol:a:b" });
  const { answer, cookie } = await signIn(ask, "carol", "a:b");
  assert.match(answer.headers.get("set-cookie"), /^session=[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Lax$/);
  assert.deepEqual(await (await ask("/me", { headers: { cookie } })).json(), { id: "carol" });
  const foreign = new URLSearchParams({ name: "carol", password: "a:b", next: "//evil.example" });
  assert.equal((await ask("/login", { method: "POST", body: foreign })).headers.get("location"), "/");
});

test("a form needs the token of its user, and nothing of a forged one is kept", async (t) => {
  const { ask, photos } = await startWall(t, { SIGN_IN: "1" });
  const { cookie } = await signIn(ask);
  const bob = await signIn(ask, "bob", "builder");
  for (const csrf of ["", "guessed", await csrfOf(ask, bob.cookie)]) {
    const answer = await ask("/photos", { method: "POST", body: form({ csrf }), headers: { cookie } });
    assert.equal(answer.status, 403, csrf);
  }
  const good = { csrf: await csrfOf(ask, cookie) };
  assert.equal((await ask("/photos", { method: "POST", body: form(good), headers: { cookie } })).status, 201);
  assert.equal((await readdir(photos)).length, 1);
});

test("a form filled in before signing out is good once the same user has signed in again, a restart between or not", async (t) => {
  const { ask, restart } = await startWall(t, { SIGN_IN: "1" });
  const { cookie } = await signIn(ask);
  const csrf = await csrfOf(ask, cookie);
  const out = await ask("/logout", { method: "POST", body: new URLSearchParams({ csrf }), headers: { cookie } });
  assert.equal(out.status, 303);
  const send = (askNow, session) => askNow("/photos", { method: "POST", body: form({ csrf }), headers: { cookie: session } });
  assert.equal((await send(ask, cookie)).headers.get("location"), "/login", "the old session has ended");
  const again = await signIn(ask);
  assert.equal((await send(ask, again.cookie)).status, 201);
  assert.equal((await send(await restart(), again.cookie)).status, 201);
});
