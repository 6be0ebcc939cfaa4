// What the bridge does, without window, clock or network: messages and outcomes go in, effects come out. The shell (bridge.ts) does
// what `take` returns after each call, and calls `tick` once a second.

import { BRIDGE_QUEUE } from "./bridge-messages.ts";
import type { Answer, Begin, FromBridge } from "./bridge-messages.ts";

/** Puts on the wire at once: while one is synced to the gateway's disk, the next one travels. */
export const RUNNING = 2;
/** Waits between attempts double from the first to the second, in ms. */
const RETRY_FIRST_MS = 1_000;
const RETRY_LAST_MS = 15_000;
/** How long a gateway that does not answer is tried. A page can do something else; once it has gone nobody can, so
 *  patience costs nothing and a gateway has time to start again. */
const PATIENCE_WITH_PAGE_MS = 30_000;
const PATIENCE_ALONE_MS = 600_000;
/** Without work or opener, the window is of no use. */
export const ALONE_MS = 60_000;
/** With an opener that says nothing: longer than any ticket takes. */
export const IDLE_MS = 600_000;
/** How long "done" can be read. */
export const DONE_MS = 2_000;
/** As the gateway has it (`dest`), and more than any prelude needs. */
const DEST_MAX = 1024;
const PRELUDE_MAX = 1024;
/** 113 bytes, and room for what comes. */
const PERMIT_MAX = 1024;
/** As many as a service may list. */
const GATEWAYS_MAX = 256;
/** Refusals that pass by themselves. With a page, it is the page's to say what then. */
const PASSING = new Set([408, 429, 500, 502, 503, 504, 507]);

/** One request to the gateway, to be made again as often as it is asked for. */
export interface Job {
  readonly seq: number;
  readonly upload: Upload;
  /** Absent: a `look`. */
  readonly part?: { first: number; last: number; blob: Blob };
}

export interface Upload {
  readonly id: string;
  readonly dest: string;
  readonly total: number;
  readonly prelude: string;
  readonly permit?: string;
}

/** What a request came to; `status` 0: nothing came. */
export type Outcome = Omit<Answer, "hoop" | "type" | "seq">;

export type Effect =
  /** `to`: the one origin that may read it. */
  | { do: "post"; to: string; message: FromBridge }
  | { do: "send"; job: Job }
  /** Every request that is under way. */
  | { do: "abort" }
  | { do: "close" };

/** What the window shows. `left`: the page closed before it had handed everything over. */
export interface View {
  phase: "waiting" | "working" | "retrying" | "idle" | "left" | "done" | "failed" | "stopped";
  /** Whose upload it is. */
  origin: string | null;
  done: number;
  total: number;
  /** Whether the page that opened this window has gone. */
  alone: boolean;
  /** The gateway's reason, when it failed. */
  detail: string;
}

interface Entry extends Job {
  running: boolean;
  sent: number;
  attempts: number;
  /** When it first failed. */
  failedAt: number;
  retryAt: number;
  answer?: Outcome;
}

export class Bridge {
  #origin: string | null = null;
  #upload: Upload | null = null;
  /** Unanswered, in the order they came. */
  #queue: Entry[] = [];
  #effects: Effect[] = [];
  /** Bytes of the upload that the gateway has acknowledged. */
  #acknowledged = 0;
  #whole = false;
  #ended = false;
  #stopped = false;
  #failure: Outcome | null = null;
  #alone = false;
  /** The page has said that it goes; it may come back, by the browser's "back". */
  #bye = false;
  /** When there was last something to do. */
  #busyAt: number;
  /** The gateway's name, once it is known: said to a page that names it first. */
  name: string | undefined;

  constructor(now: number) {
    this.#busyAt = now;
  }

  /** The effects since the last call, to be done in this order. */
  take(): Effect[] {
    return this.#effects.splice(0);
  }

  /** Whether closing the window would lose something. */
  get busy(): boolean {
    return this.#queue.length > 0;
  }

  get begun(): boolean {
    return this.#origin !== null;
  }

  /** A message of the opener, whose page is of `origin`. What is no message of ours is ignored. */
  message(data: unknown, origin: string, now: number): void {
    if (this.#stopped || !isRecord(data) || data.hoop !== 1 || origin === "null") return;
    if (this.#origin !== null && origin !== this.#origin) return;
    this.#bye = data.type === "bye";
    if (data.type === "begin") return this.#begin(data, origin, now);
    if (this.#upload === null) return;
    this.#busyAt = now;
    if (data.type === "put") this.#put(data, this.#upload, now);
    if (data.type === "look") this.#enqueue(data, { upload: this.#upload }, now);
    if (data.type === "end") this.#ended = true;
    this.#maybeClose(now);
  }

  /** The socket has taken so much of a `put`. */
  sent(job: Job, bytes: number): void {
    const entry = this.#find(job);
    if (!entry?.running) return;
    entry.sent = bytes;
    this.#post({ hoop: 1, type: "progress", seq: job.seq, sent: bytes });
  }

  /** A request that was asked for has ended. */
  outcome(job: Job, outcome: Outcome, now: number): void {
    const entry = this.#find(job);
    if (!entry?.running) return;
    entry.running = false;
    this.#busyAt = now;
    const wait = this.#retryWait(entry, outcome, now);
    if (wait !== null) {
      entry.retryAt = now + wait;
      entry.attempts += 1;
      entry.sent = 0;
      if (entry.part) this.#post({ hoop: 1, type: "progress", seq: job.seq, sent: 0 });
      return;
    }
    entry.answer = outcome;
    this.#learn(entry, outcome);
    this.#advance(now);
  }

  /** Time has passed. `alone`: the page that opened the window has gone. */
  tick(now: number, alone: boolean): void {
    this.#alone = alone || this.#bye;
    if (this.#stopped) return;
    this.#advance(now);
  }

  /** The user has had enough. */
  stop(): void {
    this.#stopped = true;
    this.#effects.push({ do: "abort" });
    for (const { seq } of this.#queue.splice(0)) this.#answer(seq, { status: 0, code: "aborted", detail: "stopped by the user" });
    this.#effects.push({ do: "close" });
  }

  view(): View {
    const total = this.#upload?.total ?? 0;
    const moving = this.#queue.filter((entry) => entry.upload === this.#upload && !entry.answer).reduce((sum, entry) => sum + entry.sent, 0);
    const done = this.#whole ? total : Math.min(total, this.#acknowledged + moving);
    return { phase: this.#phase(), origin: this.#origin, done, total, alone: this.#alone, detail: this.#failure?.detail ?? "" };
  }

  #phase(): View["phase"] {
    if (this.#stopped) return "stopped";
    if (this.#queue.some((entry) => entry.attempts > 0 && !entry.answer)) return "retrying";
    if (this.#queue.length > 0) return "working";
    if (this.#whole) return "done";
    if (this.#failure) return "failed";
    if (this.#alone) return "left";
    return this.#upload ? "idle" : "waiting";
  }

  #begin(data: Record<string, unknown>, origin: string, now: number): void {
    const refusal = judge(data, origin);
    if (refusal) {
      this.#effects.push({ do: "post", to: origin, message: { hoop: 1, type: "refused", ...refusal } });
      return;
    }
    const { id, dest, total, prelude, permit, gateways } = data as unknown as Begin;
    const { name } = this;
    const same = this.#upload?.id === id && this.#upload.dest === dest && this.#upload.total === total;
    if (!same) this.#acknowledged = 0;
    this.#origin = origin;
    this.#upload = { id, dest, total, prelude, ...(permit && { permit }) };
    this.#whole = false;
    this.#ended = false;
    this.#failure = null;
    this.#busyAt = now;
    this.#post({ hoop: 1, type: "ready", id, ...(gateways && name && { gateway: gateways.includes(name) ? name : null }) });
  }

  #put(data: Record<string, unknown>, upload: Upload, now: number): void {
    const { first, last, blob } = data;
    const fits = isCount(first) && isCount(last) && first <= last && last < upload.total;
    if (fits && blob instanceof Blob && blob.size === last - first + 1) {
      return this.#enqueue(data, { upload, part: { first, last, blob } }, now);
    }
    if (isCount(data.seq)) this.#answer(data.seq, { status: 400, code: "range-invalid", detail: "first, last and blob do not go together" });
  }

  #enqueue(data: Record<string, unknown>, job: Omit<Job, "seq">, now: number): void {
    const { seq } = data;
    if (!isCount(seq)) return;
    if (this.#queue.length >= BRIDGE_QUEUE) {
      return this.#answer(seq, { status: 429, code: "too-many-requests", detail: `${BRIDGE_QUEUE} wait already` });
    }
    this.#queue.push({ ...job, seq, running: false, sent: 0, attempts: 0, failedAt: now, retryAt: now });
    // From here on the page is not needed for it.
    if (job.part) this.#post({ hoop: 1, type: "progress", seq, sent: 0 });
    this.#advance(now);
  }

  /** Answers what can be answered, begins what can begin, closes if that was all. */
  #advance(now: number): void {
    while (this.#queue[0]?.answer) {
      const { seq, answer } = this.#queue.shift()!;
      this.#answer(seq, answer!);
    }
    let running = this.#queue.filter((entry) => entry.running).length;
    for (const entry of this.#queue) {
      if (running >= RUNNING) break;
      // A look answers for all that came before it.
      if (!entry.part && entry !== this.#queue[0]) break;
      if (entry.running || entry.answer || entry.retryAt > now) continue;
      if (entry.attempts === 0) entry.failedAt = now;
      entry.running = true;
      running += 1;
      this.#effects.push({ do: "send", job: entry });
    }
    if (this.#queue.length > 0) this.#busyAt = now;
    this.#maybeClose(now);
  }

  #maybeClose(now: number): void {
    if (this.#queue.length > 0) return;
    const quiet = now - this.#busyAt;
    // Why it failed stays to be read.
    if (this.#alone && this.#failure && !this.#whole) return;
    const over = this.#whole ? quiet >= DONE_MS : this.#ended || quiet >= (this.#alone ? ALONE_MS : IDLE_MS);
    if (over) this.#effects.push({ do: "close" });
  }

  #retryWait(entry: Entry, outcome: Outcome, now: number): number | null {
    if (outcome.status !== 0 && !(this.#alone && PASSING.has(outcome.status))) return null;
    if (entry.attempts === 0) entry.failedAt = now;
    const left = entry.failedAt + (this.#alone ? PATIENCE_ALONE_MS : PATIENCE_WITH_PAGE_MS) - now;
    const wait = Math.max(Math.min(RETRY_FIRST_MS * 2 ** entry.attempts, RETRY_LAST_MS), (outcome.retry_after ?? 0) * 1_000);
    return wait <= left ? wait : null;
  }

  #learn(entry: Entry, outcome: Outcome): void {
    if (entry.upload !== this.#upload) return;
    const { id, total } = entry.upload;
    const ok = outcome.status >= 200 && outcome.status < 300 && outcome.id === id && outcome.total === String(total);
    // Of a look, "unknown" is an answer.
    if (!ok && entry.part) this.#failure = outcome;
    if (!ok || outcome.missing === undefined) return;
    this.#failure = null;
    this.#acknowledged = Math.max(0, entry.upload.total - bytes(outcome.missing));
    this.#whole = outcome.missing === "";
  }

  #answer(seq: number, outcome: Outcome): void {
    this.#post({ hoop: 1, type: "answer", seq, ...outcome });
  }

  #post(message: FromBridge): void {
    if (this.#origin !== null) this.#effects.push({ do: "post", to: this.#origin, message });
  }

  #find(job: Job): Entry | undefined {
    return this.#queue.find((entry) => entry === job);
  }
}

/** What is wrong with a `begin` of a page of `origin`; null for nothing. */
export function judge(data: Record<string, unknown>, origin: string): { code: string; detail: string } | null {
  const invalid = (member: string) => ({ code: "request-invalid", detail: `\`${member}\` of \`begin\` is malformed` });
  if (typeof data.id !== "string" || !/^[0-9a-f]{32}$/.test(data.id)) return invalid("id");
  if (!isCount(data.total) || data.total === 0) return invalid("total");
  if (typeof data.prelude !== "string" || data.prelude.length > PRELUDE_MAX || !/^[\w-]+$/.test(data.prelude)) return invalid("prelude");
  const { permit } = data;
  if (permit !== undefined && (typeof permit !== "string" || permit.length > PERMIT_MAX || !/^[\w-]+$/.test(permit))) return invalid("permit");
  const { gateways } = data;
  if (gateways !== undefined && (!Array.isArray(gateways) || gateways.length > GATEWAYS_MAX)) return invalid("gateways");
  if (typeof data.dest !== "string" || data.dest.length > DEST_MAX) return invalid("dest");
  if (!URL.canParse(data.dest)) return { code: "dest-invalid", detail: "`dest` is not a URL" };
  const dest = new URL(data.dest);
  if (dest.origin !== origin) return { code: "origin-forbidden", detail: `\`dest\` is of ${dest.origin}, the page of ${origin}` };
  if (dest.protocol !== "https:" && !(dest.protocol === "http:" && isLoopback(dest.hostname))) {
    return { code: "dest-invalid", detail: "`dest` must be https" };
  }
  return null;
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

/** How many bytes `first-last, …` names. What is unreadable names none. */
function bytes(spans: string): number {
  const lengths = [...spans.matchAll(/(\d+)-(\d+)/g)].map(([, first, last]) => Number(last) - Number(first) + 1);
  return lengths.reduce((sum, length) => sum + length, 0);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
