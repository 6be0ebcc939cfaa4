// An ordinary photo wall: a form, a folder of pictures, a page that shows them. It knows nothing of Hoop.
//
//   PORT=8000 PHOTOS=./photos npm start
//
// POST /photos takes multipart/form-data with any number of `photo` files and a `caption`. A browser is sent back to the wall
// (303); a client that asks for JSON gets 201 and what was stored. A request that repeats an `Idempotency-Key` gets the first one's
// answer, as payment services have it: so a client may try again when an answer was lost (FORGETFUL=1 turns that off, to be like most
// applications). A line per picture goes to standard output.

import { createHash, randomUUID } from "node:crypto";
import { createReadStream, mkdirSync, readdirSync, statSync } from "node:fs";
import { extname, join, resolve } from "node:path";
import express from "express";
import multer from "multer";

const folder = resolve(process.env.PHOTOS ?? "photos");
mkdirSync(folder, { recursive: true });

const storage = multer.diskStorage({
  destination: folder,
  filename: (_request, file, done) => done(null, randomUUID() + extname(file.originalname).toLowerCase()),
});
const upload = multer({ storage, limits: { files: 20, fileSize: 4 * 1024 ** 3 } });
const app = express();
app.disable("x-powered-by");

const escape = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

function wall() {
  const newestFirst = (a, b) => statSync(join(folder, b)).mtimeMs - statSync(join(folder, a)).mtimeMs;
  const pictures = readdirSync(folder).sort(newestFirst).slice(0, 60);
  const figures = pictures.map((name) => `<img src="/photos/${escape(name)}" alt="" loading="lazy">`).join("\n");
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Photo wall</title>
<style>body{font:16px/1.5 system-ui;margin:2rem auto;max-width:64rem;padding:0 1rem}
main{columns:18rem;gap:1rem}img{width:100%;border-radius:.5rem;margin-bottom:1rem}form{margin-bottom:2rem}</style>
<h1>Photo wall</h1>
<form method="post" action="/photos" enctype="multipart/form-data">
<label>Photos <input type="file" name="photo" accept="image/*" multiple required></label>
<label>Caption <input name="caption"></label> <button>Hang them up</button></form>
<main>${figures || "<p>Nothing here yet.</p>"}</main></html>`;
}

function sha256(path) {
  return new Promise((done, fail) => {
    const hash = createHash("sha256");
    createReadStream(path).on("data", (chunk) => hash.update(chunk)).on("error", fail).on("end", () => done(hash.digest("hex")));
  });
}

app.get("/", (_request, response) => response.type("html").send(wall()));
app.use("/photos", express.static(folder, { immutable: true, maxAge: "1d" }));

// The answers of the last requests that carried a key; a request whose body broke off is forgotten, and may come again.
const answered = new Map();
const KEYS = 10_000;

async function once(request, response, next) {
  const key = request.get("idempotency-key");
  if (!key || process.env.FORGETFUL) return next();
  const first = answered.get(key);
  if (!first) {
    const settled = resolvers();
    answered.set(key, settled.promise);
    if (answered.size > KEYS) answered.delete(answered.keys().next().value);
    response.locals.settle = settled.resolve;
    request.once("close", () => {
      if (request.complete) return;
      answered.delete(key);
      settled.resolve(null);
    });
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

app.post("/photos", once, upload.array("photo", 20), async (request, response) => {
  const photos = await Promise.all(
    request.files.map(async (file) => ({ name: file.originalname, bytes: file.size, sha256: await sha256(file.path), file: file.filename })),
  );
  for (const photo of photos) console.log(JSON.stringify({ event: "photo", ...photo, at: Date.now() }));
  response.locals.settle?.({ status: 201, body: { photos } });
  if (photos.length === 0) return response.status(400).json({ error: "no photo was sent" });
  if (request.accepts(["html", "json"]) === "html" && request.get("accept")?.includes("text/html")) return response.redirect(303, "/");
  response.status(201).json({ photos });
});
app.use((error, _request, response, _next) => response.status(error.status ?? 400).json({ error: error.message }));

const server = app.listen(Number(process.env.PORT ?? 8000), process.env.HOST ?? "127.0.0.1", () => {
  console.log(JSON.stringify({ event: "listening", port: server.address().port }));
});
server.requestTimeout = 0; // a thin uplink may take hours
process.on("SIGTERM", () => server.close(() => process.exit(0)));
