// The gateway's small window (`GET /bridge`, docs/protocol.md "Bridge"): hands the gateway what its opener posts to it, for browsers that do not
// let a page talk to the LAN. All words are in the HTML, in the reader's language; here they are chosen.

import { Bridge } from "./bridge-core.ts";
import type { Effect, Job, Outcome, View } from "./bridge-core.ts";
import type { Hello } from "./bridge-messages.ts";

const HELLO_MS = 500;
const TICK_MS = 1_000;
/** A connection on which nothing moves is given up; the gateway gives up after 60 s. */
const STALL_MS = 75_000;

const opener = window.opener as Window | null;
const bridge = new Bridge(performance.now());
const requests = new Map<Job, XMLHttpRequest>();
const words = document.body.dataset;
const element = <E extends HTMLElement>(id: string) => document.getElementById(id) as E;
const site = element("site"), amount = element("amount"), status = element("status"), hint = element("hint");
const progress = element<HTMLProgressElement>("progress"), stop = element<HTMLButtonElement>("stop");
const megabytes = new Intl.NumberFormat(document.documentElement.lang, { style: "unit", unit: "megabyte", maximumFractionDigits: 1 });

const isAlone = () => window.opener === null || (window.opener as Window).closed;

function after(step: () => void): void {
  step();
  bridge.take().forEach(perform);
  show(bridge.view());
}

function perform(effect: Effect): void {
  switch (effect.do) {
    case "post":
      return opener?.postMessage(effect.message, effect.to);
    case "send":
      return send(effect.job);
    case "abort":
      return requests.forEach((request) => request.abort());
    case "close":
      return window.close();
  }
}

function send(job: Job): void {
  const { upload, part } = job;
  const request = new XMLHttpRequest();
  let stall = 0;
  const moved = () => {
    clearTimeout(stall);
    stall = setTimeout(() => request.abort(), STALL_MS);
  };
  requests.set(job, request);
  // One URL per upload, like a page's own requests.
  request.open(part ? "PUT" : "HEAD", `/offload/${upload.id}?dest=${encodeURIComponent(upload.dest)}`);
  request.setRequestHeader("Hoop-Version", "1");
  request.onloadend = () => {
    clearTimeout(stall);
    requests.delete(job);
    after(() => bridge.outcome(job, outcome(request, upload.id, !part), performance.now()));
  };
  moved();
  if (!part) return request.send();
  request.setRequestHeader("Hoop-Prelude", upload.prelude);
  if (upload.permit) request.setRequestHeader("Hoop-Permit", upload.permit);
  request.setRequestHeader("Content-Range", `bytes ${part.first}-${part.last}/${upload.total}`);
  request.upload.onprogress = ({ loaded }) => {
    moved();
    after(() => bridge.sent(job, loaded));
  };
  request.send(part.blob);
}

/** `bare`: the answer has no document. */
function outcome(request: XMLHttpRequest, id: string, bare: boolean): Outcome {
  const { status } = request;
  if (status === 0) return { status };
  const body = parsed(request.responseText);
  const header = (name: string) => request.getResponseHeader(name) ?? undefined;
  const retryAfter = header("Retry-After");
  const named = header("Hoop-Upload-Id");
  return {
    status,
    id: bare || body.id === named ? named : undefined,
    state: header("Hoop-State"),
    missing: header("Hoop-Missing"),
    total: header("Hoop-Total"),
    receipt: header("Hoop-Receipt"),
    code: text(body.code),
    detail: text(body.detail),
    retry_after: retryAfter && /^\d+$/.test(retryAfter) ? Number(retryAfter) : undefined,
    monitor: text(body.monitor) ?? (status < 300 ? `${location.origin}/monitor?ID=${id}` : undefined),
  };
}

function parsed(json: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(json));
  } catch {
    return {};
  }
}

const text = (value: unknown) => (typeof value === "string" ? value : undefined);

/** Sets a text only when it changes: the status is read aloud. */
function say(place: HTMLElement, words: string): void {
  if (place.textContent !== words) place.textContent = words;
  place.hidden = words === "";
}

function show(view: View): void {
  const { phase, origin, done, total, alone, detail } = view;
  const under = phase === "working" || phase === "retrying" || phase === "idle";
  say(site, origin === null ? "" : (words.site ?? "").replace("{site}", host(origin)));
  say(status, `${words[phase] ?? ""}${phase === "failed" && detail ? ` (${detail})` : ""}`);
  say(hint, (under ? words[alone ? "alone" : "keep"] : "") ?? "");
  say(amount, total === 0 ? "" : `${megabytes.format(done / 1e6)} / ${megabytes.format(total / 1e6)}`);
  progress.hidden = total === 0;
  progress.max = Math.max(total, 1);
  progress.value = done;
  stop.textContent = (under ? words.stop : words.close) ?? "";
  document.body.dataset.phase = phase;
}

/** As people read it: the scheme only where it is not https. */
function host(origin: string): string {
  return origin.replace(/^https:\/\//, "");
}

async function start(opener: Window): Promise<void> {
  // Told to the gateway's own page, and to no other.
  const test = await fetch("/test", { cache: "no-store" }).then((answer) => answer.json()).catch(() => undefined);
  bridge.name = text(test?.gateway);
  const hello: Hello = { hoop: 1, type: "hello", version: words.version ?? "" };
  const greet = () => {
    if (bridge.begun || isAlone()) return clearInterval(greeting);
    opener.postMessage(hello, "*");
  };
  const greeting = setInterval(greet, HELLO_MS);
  window.addEventListener("message", (event) => {
    if (event.source !== opener) return;
    after(() => bridge.message(event.data, event.origin, performance.now()));
  });
  window.addEventListener("beforeunload", (event) => {
    if (bridge.busy) event.preventDefault();
  });
  setInterval(() => after(() => bridge.tick(performance.now(), isAlone())), TICK_MS);
  stop.addEventListener("click", () => after(() => bridge.stop()));
  stop.hidden = false;
  greet();
  show(bridge.view());
}

if (opener) start(opener);
else say(status, words.orphan ?? "");
