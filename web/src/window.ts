// The page's side of the gateway's window (docs/protocol.md, "Bridge"), for browsers that do not let a page talk to the LAN.

import { BRIDGE_FEATURES, BRIDGE_PATH, BRIDGE_QUEUE } from "./bridge-messages.ts";
import type { Answer as FromWindow, FromBridge } from "./bridge-messages.ts";
import { calledOf, cleanCode, ownUrl } from "./way.ts";
import type { Answer, Parcel, Way } from "./way.ts";

/** How long the window may take to load and say hello: of a gateway that is known, and otherwise. */
const HELLO_MS = 6000;
const UNKNOWN_MS = 2500;
/** A window that shows something says hello within this, or it is not the gateway's: the browser's own page on an address that does not answer. */
const SHOWN_MS = 1000;
/** So long may a window say nothing while it has work. */
const STILL_MS = 60_000;
const LOOK_MS = 100;

/** Why there is no window: `popup-blocked`; `window-closed` (by its user, or cut off by `Cross-Origin-Opener-Policy`); `no-gateway`. */
export type NoWindow = "popup-blocked" | "window-closed" | "no-gateway";

export interface Bridge {
  /** Hands it an upload; resolves to a way, or to why not. */
  way(parcel: Parcel): Promise<Way | string>;
  /** Closes it and opens another, from within a click. */
  again(): Promise<Bridge | NoWindow>;
  close(): void;
}

/** Opens the window: within a user's gesture, and at once. Resolves when it has said hello. */
export function openBridge(gateway: string, known = true): Promise<Bridge | NoWindow> {
  const other = window.open(gateway + BRIDGE_PATH, "_blank", BRIDGE_FEATURES);
  if (!other) return Promise.resolve("popup-blocked");
  const target = new URL(gateway).origin;
  const waiting = new Map<number, { resolve(answer: Answer): void; onsent?(bytes: number): void }>();
  let begun: ((refusal?: string, called?: unknown) => void) | undefined;
  let hello: ((outcome: Bridge | NoWindow) => void) | undefined;
  let seq = 0;
  let heard = performance.now();

  const say = (message: object) => {
    heard = Math.max(heard, waiting.size ? 0 : performance.now());
    other.postMessage({ hoop: 1, ...message }, target);
  };
  const listen = ({ source, origin, data }: MessageEvent) => {
    if (source !== other || origin !== target || data?.hoop !== 1) return;
    const message = data as FromBridge;
    // Only what belongs to its work shows that a window is at it.
    if (message.type === "ready" || waiting.has((message as FromWindow).seq)) heard = performance.now();
    if (message.type === "hello") hello?.(bridge);
    if (message.type === "ready") begun?.(undefined, message.gateway);
    if (message.type === "refused") begun?.(cleanCode(message.code) ?? "not-hoop");
    if (message.type === "progress") waiting.get(message.seq)?.onsent?.(count(message.sent));
    if (message.type === "answer") {
      waiting.get(message.seq)?.resolve(clean(message, target));
      waiting.delete(message.seq);
    }
  };
  const opened = performance.now();
  let shown = Infinity;
  const clock = setInterval(() => {
    const now = performance.now();
    const silent = now - heard;
    if (hello && isElsewhere(other)) shown = Math.min(shown, now);
    const speechless = hello && (now - opened > (known ? HELLO_MS : UNKNOWN_MS) || (!known && now - shown > SHOWN_MS));
    if (!other.closed && silent < (waiting.size ? STILL_MS : Infinity) && !speechless) return;
    const why = other.closed ? "window-closed" : "no-gateway";
    hello?.(why);
    begun?.(why);
    for (const { resolve } of waiting.values()) resolve({ status: 0, code: why });
    waiting.clear();
    if (other.closed) leave();
  }, LOOK_MS);
  // A page that goes elsewhere leaves the window an opener that is not closed.
  const bye = () => say({ type: "bye" });
  const leave = () => {
    clearInterval(clock);
    removeEventListener("pagehide", bye);
    removeEventListener("message", listen);
  };
  addEventListener("message", listen);
  addEventListener("pagehide", bye);

  const ask = (message: object, signal: AbortSignal, onsent?: (bytes: number) => void) => new Promise<Answer>((resolve) => {
    if (other.closed || signal.aborted) return resolve({ status: 0, code: other.closed ? "window-closed" : undefined });
    const number = ++seq;
    signal.addEventListener("abort", () => resolve({ status: 0 }), { once: true });
    say({ ...message, seq: number });
    waiting.set(number, { resolve, onsent });
  });

  const bridge: Bridge = {
    async way(parcel) {
      let called: unknown;
      const refusal = await new Promise<string | undefined>((resolve) => {
        begun = (refusal, said) => {
          called = said;
          resolve(refusal);
        };
        heard = performance.now();
        say({ type: "begin", ...parcel });
        setTimeout(resolve, HELLO_MS, "no-gateway");
      });
      begun = undefined;
      if (refusal) return refusal;
      return {
        name: "bridge", gateway, called: calledOf(parcel.gateways ?? [], called), parallel: BRIDGE_QUEUE - 1,
        put: (first, last, blob, onsent, signal) => ask({ type: "put", first, last, blob }, signal, onsent),
        look: (signal) => ask({ type: "look" }, signal),
        close() {
          if (!other.closed) say({ type: "end" });
          leave();
        },
      };
    },
    again() {
      bridge.close();
      return openBridge(gateway);
    },
    close() {
      leave();
      other.close();
    },
  };
  return new Promise<Bridge | NoWindow>((resolve) => (hello = resolve)).then((outcome) => {
    hello = undefined;
    if (typeof outcome === "string") bridge.close();
    return outcome;
  });
}

/** Whether a window shows more than the empty page that it begins with: then it is not ours to look into. */
function isElsewhere(other: Window): boolean {
  try {
    return other.location.href !== "about:blank";
  } catch {
    return true;
  }
}

/** A number as a window may say it; 0 for everything else. */
const count = (value: unknown) => (typeof value === "number" && value >= 0 ? value : 0);

/** A text as a window may say it. */
const text = (value: unknown) => (typeof value === "string" ? value : undefined);

function clean({ status, id, state, missing, total, receipt, code, retry_after, monitor }: FromWindow, origin: string): Answer {
  return {
    status: count(status), id: text(id), state: text(state), missing: text(missing), total: text(total), receipt: text(receipt),
    code: cleanCode(code) ?? (count(status) ? undefined : "no-gateway"), retryAfter: count(retry_after) || undefined, monitor: ownUrl(monitor, origin),
  };
}
