// An ordinary photo wall: a form, a folder of pictures, a page that shows them. It knows nothing of Hoop.
//
//   PORT=8000 PHOTOS=./photos npm start
//
// POST /photos takes multipart/form-data with any number of `photo` files and a `caption`. A browser is sent back to the wall
// (303); a client that asks for JSON gets 201 and what was stored. A request that repeats an `Idempotency-Key` gets the first one's
// answer, as payment services have it: so a client may try again when an answer was lost (FORGETFUL=1 turns that off, to be like most
// applications). A line per picture goes to standard output.
//
// SIGN_IN=1 asks who it is: users of USERS (`alice:wonderland,bob:builder`), a session cookie, a CSRF token in each form.
// HOOP=1 adds the one line that makes the form drop and walk, and has the same with Uppy at /uppy/, once web/uppy is built.

import { createHash, randomUUID } from "node:crypto";
import { createReadStream, mkdirSync, readdirSync, statSync } from "node:fs";
import { readFile, unlink } from "node:fs/promises";
import { extname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import express from "express";
import multer from "multer";
import { loginPage, wallPage, withCsrf } from "./page.js";
import { Sessions } from "./sessions.js";

/** A form's limits: as many photos as a camera's evening, each as large as a film. */
const FILES_MAX = 1_000;
const FILE_BYTES_MAX = 4 * 1024 ** 3;
/** The newest so many are shown, and only their captions are remembered. */
const SHOWN_MAX = 60;
const UPPY = fileURLToPath(new URL("../../web/uppy/example/dist/", import.meta.url));
const EXAMPLE_USERS = "alice:wonderland,bob:builder";

const folder = resolve(process.env.PHOTOS ?? "photos");
mkdirSync(folder, { recursive: true });

const storage = multer.diskStorage({
  destination: folder,
  filename: (_request, file, done) => done(null, randomUUID() + extname(file.originalname).toLowerCase()),
});
const upload = multer({ storage, limits: { files: FILES_MAX, fileSize: FILE_BYTES_MAX } });
const app = express();
app.disable("x-powered-by");

const users = process.env.USERS ?? EXAMPLE_USERS;
const sessions = process.env.SIGN_IN
  ? new Sessions(`${folder}.sessions.json`, new Map(users.split(",").map((pair) => pair.split(/:(.*)/s).slice(0, 2))))
  : null;

const captions = new Map();

function remember(file, caption, by) {
  captions.set(file, { caption, by });
  if (captions.size > SHOWN_MAX) captions.delete(captions.keys().next().value);
}

function newest() {
  const at = new Map(readdirSync(folder).map((name) => [name, statSync(join(folder, name)).mtimeMs]));
  const names = [...at.keys()].sort((a, b) => at.get(b) - at.get(a)).slice(0, SHOWN_MAX);
  return names.map((file) => ({ file, ...captions.get(file) }));
}

function sha256(path) {
  return new Promise((done, fail) => {
    const hash = createHash("sha256");
    createReadStream(path).on("data", (chunk) => hash.update(chunk)).on("error", fail).on("end", () => done(hash.digest("hex")));
  });
}

/** Only for whoever is signed in, if that is asked for at all; others are sent to sign in. */
function signedIn(request, response, next) {
  response.locals.user = sessions?.user(request) ?? null;
  return sessions && !response.locals.user ? response.redirect(303, "/login") : next();
}

/** Only with the form's token, once the form has been read. */
async function fromOurForm(request, response, next) {
  if (!sessions || sessions.isCsrf(response.locals.user, request.body?.csrf)) return next();
  await Promise.all((request.files ?? []).map((file) => unlink(file.path)));
  response.locals.settle?.({ status: 403, body: FORGED });
  return response.status(403).json(FORGED);
}
const FORGED = { error: "the form has no token of this user" };

app.get("/", signedIn, (_request, response) => {
  const { user } = response.locals;
  const csrf = user && sessions.csrf(user);
  response.set("Cache-Control", "no-store").type("html").send(wallPage({ pictures: newest(), user, csrf, environment: process.env }));
});
app.use("/photos", express.static(folder, { immutable: true, maxAge: "1d" }));

if (process.env.HOOP) {
  app.use("/uppy", express.static(UPPY, { index: false }));
  app.get("/uppy/", signedIn, async (_request, response) => {
    const { user } = response.locals;
    const page = await readFile(join(UPPY, "index.html"), "utf8").catch(() => null);
    if (page === null) return response.status(404).json({ error: "web/uppy is not built: npm ci && npm run build" });
    return response.set("Cache-Control", "no-store").type("html").send(withCsrf(page, user && sessions.csrf(user)));
  });
}

if (sessions) {
  const form = express.urlencoded({ extended: false, limit: "16kb" });
  const hint = process.env.USERS ? null : "For trying it out: alice with wonderland, or bob with builder.";
  const local = (next) => (typeof next === "string" && /^\/(?![/\\])/.test(next) ? next : "/");
  app.get("/login", (request, response) => response.type("html").send(loginPage({ next: local(request.query.next), hint })));
  app.post("/login", form, (request, response) => {
    const { name, password, next } = request.body ?? {};
    if (request.get("sec-fetch-site") === "cross-site") return response.status(403).json({ error: "another site's form" });
    if (sessions.signIn(response, name, password)) return response.redirect(303, local(next));
    return response.status(403).type("html").send(loginPage({ next: local(next), wrong: true, hint }));
  });
  app.post("/logout", signedIn, form, fromOurForm, (request, response) => {
    sessions.signOut(request, response);
    response.redirect(303, "/login");
  });
  app.get("/me", (request, response) => {
    const id = sessions.user(request);
    response.set("Cache-Control", "no-store").status(id ? 200 : 401).json({ id });
  });
}

// The answers of the last requests that carried a key; a request of which nothing was stored (its body broke off, or it was refused) is
// forgotten, and may come again.
const answered = new Map();
const KEYS = 10_000;

async function once(request, response, next) {
  const key = request.get("idempotency-key") && `${response.locals.user} ${request.get("idempotency-key")}`;
  if (!key || process.env.FORGETFUL) return next();
  const first = answered.get(key);
  if (!first) {
    const settled = resolvers();
    answered.set(key, settled.promise);
    if (answered.size > KEYS) answered.delete(answered.keys().next().value);
    let open = true;
    response.locals.settle = (answer) => {
      open = false;
      settled.resolve(answer);
    };
    response.locals.forget = () => {
      if (open) answered.delete(key);
      response.locals.settle(null);
    };
    request.once("close", () => request.complete || response.locals.forget());
    response.once("finish", response.locals.forget);
    return next();
  }
  request.resume();
  console.log(JSON.stringify({ event: "repeat", key }));
  const answer = await first;
  if (answer) return response.status(answer.status).json(answer.body);
  return response.status(503).set("retry-after", "1").json({ error: "the first request with this key broke off: send it again" });
}

function resolvers() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

app.post("/photos", signedIn, once, upload.array("photo", FILES_MAX), fromOurForm, async (request, response) => {
  const photos = await Promise.all(
    request.files.map(async (file) => ({ name: file.originalname, bytes: file.size, sha256: await sha256(file.path), file: file.filename })),
  );
  for (const photo of photos) console.log(JSON.stringify({ event: "photo", ...photo, at: Date.now() }));
  for (const { filename } of request.files) remember(filename, request.body.caption, response.locals.user);
  response.locals.settle?.({ status: 201, body: { photos } });
  if (photos.length === 0) return response.status(400).json({ error: "no photo was sent" });
  if (request.accepts(["html", "json"]) === "html" && request.get("accept")?.includes("text/html")) return response.redirect(303, "/");
  response.status(201).json({ photos });
});
app.use((error, _request, response, _next) => {
  // Also if the connection broke after the last byte, when no answer is finished any more.
  response.locals.forget?.();
  response.status(error.status ?? 400).json({ error: error.message });
});

const server = app.listen(Number(process.env.PORT ?? 8000), process.env.HOST ?? "127.0.0.1", () => {
  console.log(JSON.stringify({ event: "listening", port: server.address().port }));
});
server.requestTimeout = 0; // a thin uplink may take hours
process.on("SIGTERM", () => server.close(() => process.exit(0)));
