// The card in every state, to look at and for screenshots: `gallery.html?state=free&lang=fr`, or all of them without `state`.
// No part of the library.

import { Card } from "./card.ts";
import { HoopError, type Question, type State } from "./types.ts";

const question = (kind: Question["kind"], known: boolean): Question => ({ kind, known, proceed() {}, decline() {}, ...(kind !== "retry" && { never() {} }) });
const base: State = { phase: "looking", way: "direct", gateway: "hoop.local:4667", sent: 0, total: 128_400_000, id: "0f".repeat(16) };
const monitor = `http://hoop.local:4667/monitor?ID=${base.id}`;
const asking = (kind: Question["kind"], known = true): State => ({ ...base, phase: "asking", question: question(kind, known) });
const failed = (code: string): State => ({ ...base, phase: "failed", id: code === "no-gateway" ? undefined : base.id, error: new HoopError(code, "told by the gallery") });

/** Every state that looks different, by name. */
export const states: Record<string, State> = {
  looking: base,
  offer: asking("offer"),
  permission: asking("permission"),
  bridge: asking("bridge"),
  "permission-unknown": asking("permission", false),
  "bridge-unknown": asking("bridge", false),
  retry: asking("retry"),
  handing: { ...base, phase: "handing", sent: 47_200_000, rate: 11_300_000 },
  resumed: { ...base, phase: "handing", sent: 91_000_000, rate: 2_400_000, resumed: true },
  service: { ...base, phase: "handing", way: "service", sent: 60_000_000, rate: 420_000 },
  unproven: { ...base, phase: "handing", sent: base.total, stranger: "unproven" },
  changed: { ...base, phase: "handing", sent: base.total, stranger: "changed" },
  free: { ...base, phase: "free", sent: base.total, monitor },
  received: { ...base, phase: "received", sent: base.total, monitor },
  delivered: { ...base, phase: "delivered", sent: base.total, monitor, location: "https://photos.example/photos/42" },
  held: { ...base, phase: "held", sent: base.total, monitor },
  ...Object.fromEntries(
    ["form-token-refused", "not-permitted", "upstream-failed"]
      .map((code) => [`held-${code}`, { ...base, phase: "held", sent: base.total, monitor, error: new HoopError(code) } as State]),
  ),
  stopped: { ...base, phase: "stopped" },
  ordinary: { ...base, phase: "ordinary", way: "ordinary" },
  ...Object.fromEntries(
    ["network", "file-changed", "spool-full", "too-large", "rejected", "answer-lost", "expired", "sign-in-required", "gateway-lies", "no-gateway", "internal"]
      .map((code) => [`failed-${code}`, failed(code)]),
  ),
};

declare global {
  interface Window {
    /** The names of all states, for whoever drives the gallery. */
    states: string[];
  }
}
window.states = Object.keys(states);

const asked = new URLSearchParams(location.search);
document.documentElement.lang = asked.get("lang") ?? "en";
const wanted = asked.get("state");
for (const [name, state] of Object.entries(states)) {
  if (wanted && wanted !== name) continue;
  const card = new Card({ cancel() {}, again() {}, direct() {}, site: "https://photos.example" });
  document.querySelector("main")!.append(card.element);
  card.show(state);
}
document.documentElement.dataset.ready = "";
