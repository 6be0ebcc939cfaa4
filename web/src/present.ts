// Joins an upload with its card and the console: what `offload` is given so that a person sees it. Card, words and diagnosis are a
// file of their own (hoop-card.ts), loaded when they are first needed.

import { native } from "./native.ts";
import type { Card, CardOptions } from "./card.ts";
import type { OffloadOptions, State } from "./types.ts";

/** An upload that goes the ordinary way at once shows no card: it would only flicker. */
const PATIENCE_MS = 400;

/** The options with a card that is put into the page by `place`. Its Cancel button and `options.signal` both end the upload. */
export function present<Options extends OffloadOptions>(options: Options, place: (card: Element) => void, buttons: Omit<CardOptions, "cancel"> = {}): Options {
  const ending = new AbortController();
  const { signal, ask, onstate } = options;
  const end = () => ending.abort(signal?.reason);
  if (signal?.aborted) end();
  signal?.addEventListener("abort", end, { once: true });
  let latest: State;
  let placed = false;
  let card: Promise<Card> | undefined;
  const show = () => {
    placed = true;
    card ??= import("./hoop-card.ts").then(({ Card }) => {
      const made = new Card({ ...buttons, cancel: () => ending.abort() });
      place(made.element);
      return made;
    });
    // Nobody can answer a question that cannot be shown.
    card.then((card) => card.show(latest), () => latest.question?.decline());
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  return {
    ...options,
    signal: ending.signal,
    ask: ask ?? (() => {}),
    onstate(state) {
      latest = state;
      const brief = state.phase === "looking" || state.phase === "ordinary";
      if (!brief || placed) {
        // Whoever answers the questions in the card's stead shows them, too.
        if (!ask || !state.question) show();
        clearTimeout(timer);
      } else timer ??= setTimeout(() => placed || show(), PATIENCE_MS);
      watch(options, state);
      onstate?.(state);
    },
  };
}

/** More blocked addresses than this tell nothing new. */
const BLOCKED_MAX = 20;
/** Addresses that the page's policy has been seen to block. */
const blocked: string[] = [];

/** Notices what the page's policy blocks, from now on. */
export function watchPolicy(): void {
  native(document, "addEventListener")("securitypolicyviolation", ({ effectiveDirective, blockedURI }) => {
    if (effectiveDirective === "connect-src" && blocked.length < BLOCKED_MAX) blocked.push(blockedURI);
  });
}

let telling: Promise<void> | undefined;

/** Has the console told why, when the straight way to a gateway was not to be had. */
export function watch({ gateways = ["http://hoop.local:4667"] }: OffloadOptions, { phase, question, error }: State): void {
  if (error && phase === "ordinary") console.info(`Hoop: sent without a gateway (${error.code}${error.message === error.code ? "" : `: ${error.message}`}).`);
  const missed = question?.kind === "bridge" || question?.kind === "retry" || (error && (phase === "ordinary" || phase === "failed"));
  if (missed) telling = import("./hoop-card.ts").then(({ diagnose }) => diagnose(gateways, blocked)).catch(() => {});
}

/** Resolves when the console has been told, or after `ms`: a page that is left says nothing any more. */
export const told = (ms: number) => Promise.race([telling, telling && new Promise<void>((resolve) => setTimeout(resolve, ms))]);
