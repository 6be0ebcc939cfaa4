// An application of a test's own behind `hoop service`, in the photo wall's stead: it shows the pages it is given and keeps every upload whole.

import http from "node:http";
import { buffer } from "node:stream/consumers";

/** Listens where the photo wall does; for `{ house: { wall: null } }`. `pages` maps a path to HTML, or to `{ html, headers }`. The server has `uploads`, each with
 *  its `url`, `type` and `body`, and `until(count)`. `answers`: how uploads are answered, one after another: a status, or `"lost"` for none; then 200. */
export async function startApplication(pages, answers = []) {
  const uploads = [];
  const watchers = new Set();
  const server = http.createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://application");
    if (request.method !== "POST") {
      const page = pages[pathname];
      return response.writeHead(page ? 200 : 404, { "Content-Type": "text/html; charset=utf-8", ...page?.headers }).end(page?.html ?? page);
    }
    const body = await buffer(request);
    uploads.push({ url: request.url, type: request.headers["content-type"], body });
    for (const watch of [...watchers]) watch();
    const answer = answers.shift() ?? 200;
    if (answer === "lost") return request.socket.destroy();
    if (answer !== 200) return response.writeHead(answer).end();
    response.writeHead(200, { "Content-Type": "text/html; charset=utf-8" }).end("<!doctype html><title>Thanks</title><p>Thanks");
  });
  await new Promise((resolve, reject) => server.on("error", reject).listen(8000, "127.0.0.1", resolve));
  const until = (count) => new Promise((resolve) => {
    const watch = () => uploads.length >= count && resolve();
    watchers.add(watch);
    watch();
  });
  const stop = () => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  });
  return { uploads, until, stop };
}

/** The entries of a multipart body, in order: `[name, text]`, or `[name, { name, bytes }]` for a file. */
export async function entries({ type, body }) {
  const form = await new Response(body, { headers: { "Content-Type": type } }).formData();
  return Promise.all([...form].map(async ([name, value]) => [name, typeof value === "string" ? value : { name: value.name, bytes: Buffer.from(await value.arrayBuffer()) }]));
}

/** A multipart body as text, a character for each byte, with the border that every sender draws anew as one word. */
export function withoutBorder({ type, body }) {
  return body.toString("latin1").replaceAll(/boundary=(.+)$/.exec(type)[1], "border");
}
