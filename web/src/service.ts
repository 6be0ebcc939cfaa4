// The service's side of an upload, over the page's own origin (docs/protocol.md §7).

import type { Suite } from "./seal.ts";
import { HoopError } from "./types.ts";
import type { Settings } from "./types.ts";
import { pause } from "./upload.ts";
import { cleanCode } from "./way.ts";

export interface Ticket {
  post: string;
  upload_id: string;
  ticket: string;
  key: string;
  token: string;
  suite: Suite;
  record_size: number;
  expires: number;
  max_bytes: number;
  /** The service's permit for gateways, base64url. */
  permit?: string | null;
  /** The names of the only gateways that may bring uploads. */
  gateways?: string[] | null;
}

/** What a ticket is for. */
export interface Wanted {
  method: string;
  target: string;
  /** K, base64url, if there is one already: then the same upload gets another ticket, with another permit. */
  key?: string;
  /** The name of the gateway that the permit is to be for. */
  gateway?: string;
}

export interface Status {
  state: string;
  /** Bytes of the upload that it has. */
  received?: number;
  answer: string | null;
  reason?: { code: string; detail?: string } | null;
}

export interface Note {
  total: number;
  files: { name: string; size: number; type: string }[];
  caption?: string;
  monitor?: string;
}

/** Names that the service keeps of a note (docs/protocol.md, "Notes"), and the longest address of a gateway's page. */
const NOTE_FILES = 20;
const MONITOR_MAX = 2048;
/** In characters, so that a note is far from the 64 KiB that a browser sends to the end although its page has gone, and that the service takes. */
const CAPTION_MAX = 1000;
const NAME_MAX = 300;
/** The longest that a service waits, in seconds. */
const WAIT_S = 30;
/** How long an answer may take that waits for nothing. */
const TIMEOUT_MS = 15_000;

/** By how much the service's `Date` was ahead of this page's own time. */
let offset: number;

/** What time it is by the service, in milliseconds since 1970; NaN until it has said. What a ticket's end is compared with: the device's own clock may
 *  be years off. */
export const time = (): number => offset + performance.now();

/** With `onbusy`, a service that asks to wait is waited for, a minute at most, and asked again, three times at most. */
async function call(path: string, init: RequestInit = {}, timeout = TIMEOUT_MS, onbusy?: () => void, left = 3): Promise<Response> {
  const signal = AbortSignal.any([AbortSignal.timeout(timeout), init.signal!].filter(Boolean));
  const headers = { "Hoop-Version": "1", ...(init.headers as Record<string, string>) };
  const response = await fetch(new URL(path, location.origin), { cache: "no-store", ...init, headers, signal }).catch((cause) => {
    throw new HoopError(init.signal?.aborted ? "aborted" : "network", undefined, { cause });
  });
  offset = Date.parse(response.headers.get("date")!) - performance.now() || offset;
  if (response.ok) return response;
  if (response.status === 429 && onbusy && left) {
    onbusy();
    await pause(Math.min(60, response.headers.get("retry-after") as unknown as number) * 1000, init.signal!);
    return call(path, init, timeout, onbusy, left - 1);
  }
  const problem = await response.json().catch(() => null);
  throw new HoopError(cleanCode(problem?.code) ?? (response.status === 404 ? "not-found" : "not-hoop"), problem?.detail && `${problem.detail}`);
}

/** A ticket for one upload to this page's origin. While the service asks to wait for it, `onbusy` says so. */
export async function ticket(wanted: Wanted, authorization: string | undefined, signal: AbortSignal, onbusy: () => void): Promise<Ticket> {
  const headers = { "Content-Type": "application/json", ...(authorization && { Authorization: authorization }) };
  const response = await call("/hoop/tickets", { method: "POST", headers, body: JSON.stringify(wanted), signal }, TIMEOUT_MS, onbusy);
  const { post, tickets, gateways } = await response.json();
  const [first] = tickets;
  if (!URL.canParse(post) || new URL(post).origin !== location.origin || !/^[\da-f]{32}$/.test(first.upload_id))
    throw new HoopError("not-hoop");
  return { ...first, post, gateways };
}

/** What was asked ahead may be so old: longer, and the user may be another. */
const AHEAD_MS = 10_000;
let ahead: { at: number; said: Promise<Settings | undefined> } | undefined;

/** Asks for the settings before they are needed. */
export function askAhead(): void {
  ahead = { at: performance.now(), said: settings() };
}

/** Whoever has looked at another page meanwhile may have changed them, or signed out. */
export function forgetAhead(): void {
  ahead = undefined;
}

/** The user's settings; undefined if the service does not say. */
export async function settings(signal?: AbortSignal): Promise<Settings | undefined> {
  const early = ahead;
  ahead = undefined;
  if (early && performance.now() - early.at < AHEAD_MS) return early.said;
  try {
    return await (await call("/hoop/settings", { headers: { Accept: "application/json" }, signal }, 4000)).json();
  } catch {
    return undefined;
  }
}

/** The service's status of an upload. With `wait`, it waits for a change to a final state or `held`. */
export async function status(id: string, wait: boolean, signal?: AbortSignal): Promise<Status> {
  const headers: Record<string, string> = { Accept: "application/json", ...(wait && { Prefer: `wait=${WAIT_S}` }) };
  return (await call(`/hoop/uploads/${id}`, { headers, signal }, TIMEOUT_MS + (wait ? WAIT_S * 1000 : 0))).json();
}

/** Tells the service of an upload that is on its way. */
export async function note(id: string, token: string, { total, files, caption, monitor }: Note): Promise<void> {
  const body = JSON.stringify({
    total, caption: caption?.slice(0, CAPTION_MAX), monitor: monitor && monitor.length <= MONITOR_MAX ? monitor : undefined,
    files: files.slice(0, NOTE_FILES).map(({ name, ...rest }) => ({ name: name.slice(0, NAME_MAX), ...rest })), file_count: files.length,
  });
  const headers = { "Content-Type": "application/json", "Hoop-Token": token };
  await call(`/hoop/uploads/${id}`, { method: "PUT", headers, body, keepalive: true });
}

/** Stops an upload. Rejects with `upload-done` if the application has it already. */
export async function stop(id: string, token: string): Promise<void> {
  await call(`/hoop/uploads/${id}`, { method: "DELETE", headers: { "Hoop-Token": token }, keepalive: true });
}
