// After "free to leave": what the service says of an upload, until nothing more can come.

import { Doubt, isDone } from "./gateway-trust.ts";
import { unbase64url } from "./bytes.ts";
import { openAnswer, response } from "./seal.ts";
import { status, time } from "./service.ts";
import type { Status, Ticket } from "./service.ts";
import { HoopError } from "./types.ts";
import type { Phase } from "./types.ts";
import { pause } from "./upload.ts";
import type { Answer } from "./way.ts";

/** Between questions while the gateway carries it, or while it waits for its owner: from 2 s to a minute. */
const LEAST_MS = 2000;
const MOST_MS = 60_000;
/** What the service may still say after `expires`: an upload begun in time ends 7 days later at the latest. */
const AFTER_S = 7 * 86_400;

export interface News {
  phase: Phase;
  answer?: Response;
  /** Where it points. */
  location?: string;
  error?: HoopError;
  /** Nothing more can come. */
  final: boolean;
}

const OVER = ["rejected", "unknown", "stopped", "expired", "refused"];

const NOTHING: Status = { state: "announced", answer: null };

/** Of a browser's six connections to a server over HTTP/1.1, so many wait for news; whoever comes later asks now and then. */
const WAITING_MAX = 2;
let waiting = 0;

/** Whoever has said that it will deliver the upload. */
export interface Carrier {
  /** What it says of the upload now, if it can be asked. */
  look?(): Promise<Answer>;
  /** Sends what the service lacks past it. */
  mend(): Promise<void>;
  /** It is not relied on. */
  stranger: boolean;
}

/** Asks until the end, or until aborted; `tell` gets each change of what was sent to `url`. Believes the service alone, never a gateway; what a gateway does not deliver is sent past it. */
export async function follow(ticket: Ticket, url: URL, tell: (news: News) => void, signal: AbortSignal, carrier?: Carrier): Promise<void> {
  const doubt = new Doubt(performance.now(), carrier?.stranger);
  let last = "";
  for (let wait = LEAST_MS; !signal.aborted && !(time() / 1000 > ticket.expires + AFTER_S); ) {
    const began = performance.now();
    // Asked before the service, which never goes back.
    const said = last.startsWith("received") ? undefined : await carrier?.look?.();
    const waits = waiting < WAITING_MAX && !(said && isDone(said));
    if (waits) waiting++;
    const told = await status(ticket.upload_id, waits, signal).catch(({ code }) => (code === "upload-unknown" ? NOTHING : undefined));
    if (waits) waiting--;
    if (carrier && doubt.weigh(said, told, performance.now())) await carrier.mend();
    const now = told && [told.state, told.reason?.code].join();
    if (told && now !== last) {
      last = now!;
      wait = LEAST_MS;
      const news = await read(ticket, told);
      const location = news?.answer?.headers.get("location");
      if (news) tell({ ...news, location: location && URL.canParse(location, url) ? new URL(location, url).href : undefined });
      if (news?.final) return;
    }
    // A service that waits has paused already.
    if (performance.now() - began < wait) await pause(wait, signal).catch(() => {});
    wait = Math.min(wait * 1.5, MOST_MS);
  }
}

async function read(ticket: Ticket, { state, answer, reason }: { state: string; answer: string | null; reason?: { code: string; detail?: string } | null }): Promise<News | undefined> {
  if (state === "received" || state === "replaying" || state === "committing") return { phase: "received", final: false };
  const opened = answer ? await openAnswer(answer, unbase64url(ticket.key), ticket.upload_id).then(response).catch(() => undefined) : undefined;
  const said = opened?.state == null || opened.state === state ? opened?.response : undefined;
  if (state === "accepted") return { phase: "delivered", answer: said ?? new Response(null), final: true };
  if (state === "held") return { phase: "held", error: new HoopError(reason?.code ?? "sign-in-required", reason?.detail), final: false };
  if (!OVER.includes(state)) return undefined;
  const code = reason?.code ?? { unknown: "answer-lost", rejected: state }[state] ?? `upload-${state}`;
  return { phase: state === "stopped" ? "stopped" : "failed", error: new HoopError(code, reason?.detail, { cause: said }), answer: said, final: true };
}
