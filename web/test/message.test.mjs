// The request as the browser would have sent it, laid out by us.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { File } from "node:buffer";
import { test } from "node:test";
import { load } from "./sources.mjs";

const global = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
global("location", new URL("https://photos.example/album?x=1#part"));
global("document", Object.create({ baseURI: "https://photos.example/album?x=1", characterSet: "UTF-8" }));
global("navigator", { languages: ["fr-FR", "fr", "en"], userAgent: "Browser/1" });

const { boundary, head, message, multipart } = await load("message");
const golden = JSON.parse(readFileSync(new URL("golden/multipart.json", import.meta.url), "utf8"));
const text = (parts) => new Blob(parts).text();

for (const { by, type, length, body } of golden.sent) {
  test(`a multipart body is what Chromium sends by ${by}, byte by byte`, async () => {
    const entries = [
      ...golden.entries.filter(([name]) => name || by === "fetch"),
      ...golden.files.map(([field, name, media, content]) => [field, new File([content], name, { type: media })]), ["last", "one"],
    ];
    const border = type.split("boundary=")[1];
    const made = new Blob(multipart(entries, border));
    assert.equal(made.size, Number(length));
    assert.equal(Buffer.from(await made.arrayBuffer()).toString("base64"), body);
  });
}

test("a boundary is of a form that applications have seen, and another each time", () => {
  assert.match(boundary(), /^----WebKitFormBoundary[A-Za-z0-9]{16}$/);
  assert.notEqual(boundary(), boundary());
});

test("a file's bytes are not read before they are sealed", async () => {
  const file = new File(["x".repeat(10)], "a.bin");
  file.arrayBuffer = file.text = file.stream = () => assert.fail("it was read");
  const parts = multipart([["f", file]], "b");
  assert.equal(parts[1], file);
  assert.ok(new Blob(parts).size > 10);
});

test("the head is an HTTP request that says what the browser would have said", async () => {
  const body = new FormData();
  body.append("title", "At the lake");
  body.append("photo", new File(["abc"], "a.jpg", { type: "image/jpeg", lastModified: 5 }));
  const made = await message({ url: "/?j#frag", body, headers: { "X-CSRF-Token": "t", Authorization: "Bearer b", Cookie: "no", "Content-Type": "no", "Transfer-Encoding": "chunked" } });
  const lines = head(made, "TOKEN").split("\r\n");
  const size = new Blob(made.parts).size;
  assert.deepEqual(lines.filter((line) => !line.startsWith("Content-Type")), [
    "POST /?j HTTP/1.1", "Host: photos.example", "Accept: */*", "Accept-Language: fr-FR,fr;q=0.9,en;q=0.8", "Origin: https://photos.example",
    "Referer: https://photos.example/album?x=1", "Sec-Fetch-Dest: empty", "Sec-Fetch-Mode: cors", "Sec-Fetch-Site: same-origin", "User-Agent: Browser/1",
    "x-csrf-token: t", `Content-Length: ${size}`, "Hoop-Token: TOKEN", "", "",
  ]);
  assert.match(lines.find((line) => line.startsWith("Content-Type")), /^Content-Type: multipart\/form-data; boundary=----WebKitFormBoundary\w{16}$/);
  assert.deepEqual([made.authorization, made.caption, made.files.length], ["Bearer b", "At the lake", 1]);
});

test("other bodies are laid out as fetch does", async () => {
  for (const [body, type, bytes] of [
    [new URLSearchParams({ a: "b c" }), "application/x-www-form-urlencoded;charset=UTF-8", "a=b+c"], ["é", "text/plain;charset=UTF-8", "é"],
    [new Blob(["x"], { type: "image/png" }), "image/png", "x"], [new Blob(["x"]), "", "x"],
  ]) {
    const made = await message({ url: "/", method: "put", body });
    assert.equal(made.fields.find(([name]) => name === "Content-Type")?.[1] ?? "", type);
    assert.equal(made.method, "PUT");
    assert.equal(await text(made.parts), bytes);
  }
  const made = await message(new Request("https://photos.example/r", { method: "PATCH", body: "b", headers: { "Content-Type": "a/b" } }));
  assert.deepEqual([made.method, made.url.href, await text(made.parts), made.fields.at(-1)], ["PATCH", "https://photos.example/r", "b", ["Content-Type", "a/b"]]);
});

test("an upload to another origin, or that is none, is not offloaded", async () => {
  for (const input of [{ url: "https://other.example/", body: "x" }, { url: "http://photos.example/", body: "x" }, { url: "/", method: "GET", body: "x" }, { url: "/", method: "DELETE", body: "x" }])
    await assert.rejects(message(input), { code: "not-offloadable" });
});

test("a head that would not fit record 0 is refused", async () => {
  const made = await message({ url: "/", body: "x", headers: { "X-Long": "x".repeat(61_000) } });
  assert.throws(() => head(made, "T"), { code: "head-invalid" });
});

test("the same files and text are the same upload; another file, time or text is another", async () => {
  const key = async (name, time, caption) => {
    const body = new FormData();
    body.append("caption", caption);
    body.append("f", new File(["abc"], name, { lastModified: time }));
    return (await message({ url: "/", body })).key;
  };
  const one = await key("a", 1, "c");
  assert.equal(await key("a", 1, "c"), one);
  for (const other of [["b", 1, "c"], ["a", 2, "c"], ["a", 1, "d"]]) assert.notEqual(await key(...other), one);
});

/** A form with these controls: what of HTML's forms is used here. */
class Form {
  constructor(...controls) {
    this.controls = controls.map((control) => ({ type: "text", form: this, ...control }));
  }

  getAttribute(name) {
    return { method: "post", action: "/photos", enctype: "multipart/form-data" }[name] ?? null;
  }

  get elements() {
    return this.controls;
  }

  async read() {
    const entries = new FormData();
    for (const { name, value, off } of this.controls) if (!off) entries.append(name, value);
    return message(this, null, entries);
  }
}

test("another value of a hidden field is another upload; another token is not", async () => {
  global("HTMLFormElement", Form);
  const file = { name: "photo", type: "file", value: new File(["abc"], "a.jpg", { lastModified: 5 }) };
  const key = async (...controls) => (await new Form(file, ...controls).read()).key;
  const hidden = (name, value) => ({ name, type: "hidden", value });
  assert.notEqual(await key(hidden("album", "7")), await key(hidden("album", "8")));
  const box = { name: "public", type: "checkbox", value: "1" };
  assert.notEqual(await key(hidden("public", "0"), box), await key(hidden("public", "0"), { ...box, off: true }));
  assert.equal(await key(hidden("csrf_token", "a")), await key(hidden("csrf_token", "b")));
  assert.notEqual(await key({ name: "token", value: "a" }), await key({ name: "token", value: "b" }), "a person has typed it");
});

test("a form with a password in it, and a body without a name, are not kept", async () => {
  const password = { name: "secret", type: "password", value: "wonderland" };
  assert.equal((await new Form(password).read()).keepable, false);
  assert.equal((await new Form({ ...password, value: "" }).read()).keepable, true);
  assert.equal((await message({ url: "/x", body: new Blob(["abc"]) })).keepable, false);
  assert.equal((await message({ url: "/x", body: new File(["abc"], "a.jpg") })).keepable, true);
});

test("files of a folder keep their place in it, as browsers send them", async () => {
  const file = Object.defineProperty(new File(["abc"], "a.jpg"), "webkitRelativePath", { value: "trip/day 1/a.jpg" });
  assert.match(await text(multipart([["f", file]], "b")), /; filename="trip\/day 1\/a\.jpg"/);
});
