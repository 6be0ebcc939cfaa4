// Joins an upload with its card and the console: what `offload` is given so that a person sees it.

import { Card } from "./card.ts";
import type { CardOptions } from "./card.ts";
import { diagnose } from "./diagnose.ts";
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
  const card = new Card({ ...buttons, cancel: () => ending.abort() });
  let latest: State;
  let placed = false;
  const show = () => {
    if (!placed) place(card.element);
    placed = true;
    card.show(latest);
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

/** Has the console told why, when the straight way to a gateway was not to be had. */
export function watch({ gateways = ["http://hoop.local:4667"] }: OffloadOptions, { phase, question, error }: State): void {
  const missed = question?.kind === "bridge" || question?.kind === "retry" || (error && (phase === "ordinary" || phase === "failed"));
  if (missed) void diagnose(gateways);
}
