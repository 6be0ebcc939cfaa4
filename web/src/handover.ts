// Which segment to send next, and what an answer means. A pure machine: no clock, socket or dice.
//
// Promises: a segment counts as handed over only if it was sent and the other side says that it has it; every upload ends, whatever is
// answered: after `FAILURES` answers in a row without progress, `LIES` impossible ones, or `4 × segments + 32` in all.

import { MAX_SPANS, parseMissing, within } from "./ranges.ts";
import type { Span } from "./ranges.ts";
import { span } from "./seal.ts";
import type { Layout } from "./seal.ts";
import type { Answer } from "./way.ts";

/** Answers in a row without progress: with the pauses between them, a gateway that restarts has a quarter of a minute. */
export const FAILURES = 6;
/** What a request counts for that was given up because nothing moved: it took half a minute already. */
const STILL = FAILURES / 2;
/** Impossible answers: one may be a fault of something between. */
export const LIES = 3;
/** The longest pause, whatever the other side asks for: somebody is looking at the page. */
export const PAUSE_MAX_MS = 15_000;
const PAUSE_MS = 500;

/** The states of an upload that goes on; in all but the first, all of it is there. */
const STATES = ["receiving", "stored", "delivering", "received", "accepted", "held", "rejected", "unknown"];
const ENDED = ["stopped", "expired", "refused"];
/** Refusals that pass: timeouts, busy, paused, broken off, unwell. 507 is none of them: a full disk stays full for longer than people wait. */
const PASSING = [0, 408, 423, 425, 429, 500, 502, 503, 504];
/** As well: a request that broke off, and at a service, that somebody sends it another total just now. */
const PASSING_CODES = ["body-truncated", "range-invalid"];

export type Step =
  | { do: "put"; segment: number; first: number; last: number }
  | { do: "look" }
  | { do: "pause"; ms: number }
  /** Until an answer comes. */
  | { do: "rest" }
  | { do: "done" }
  | { do: "fail"; code: string };

export class Handover {
  #id: string;
  #layout: Layout;
  #parallel: number;
  /** Of each segment: what is to be sent of it; undefined: nothing. */
  #todo: (Span | undefined)[];
  /** Segments that may have reached somebody, in this page or before a reload. */
  #sent: Set<number>;
  #flying = new Set<number>();
  #best = 0;
  #failures = 0;
  #lies = 0;
  #answers = 0;
  #pause = 0;
  #look: boolean;
  #end: { do: "done" } | { do: "fail"; code: string } | undefined;

  /** `sent`: the segments that were sent before, to anybody; then it begins with a look. */
  constructor(id: string, layout: Layout, parallel: number, sent: Iterable<number> = []) {
    this.#id = id;
    this.#layout = layout;
    this.#parallel = parallel;
    this.#sent = new Set(sent);
    this.#todo = Array.from({ length: layout.segments }, (_, segment) => span(layout, segment));
    this.#look = this.#sent.size > 0;
  }

  /** What to do now. A `put` is taken to be under way from then on. */
  step(): Step {
    if (this.#end) return this.#end;
    if (this.#pause || this.#look) {
      if (this.#flying.size) return { do: "rest" };
      const ms = this.#pause;
      this.#pause = 0;
      if (ms) return { do: "pause", ms };
      return { do: "look" };
    }
    if (this.#flying.size >= this.#parallel) return { do: "rest" };
    const segment = this.#todo.findIndex((todo, index) => todo && !this.#flying.has(index));
    if (segment >= 0) {
      const [first, last] = this.#todo[segment]!;
      this.#flying.add(segment);
      this.#sent.add(segment);
      return { do: "put", segment, first, last };
    }
    return this.#flying.size ? { do: "rest" } : { do: "look" };
  }

  /** Takes the answer to a `put` of `segment`, or to a `look`. */
  answered(segment: number | undefined, answer: Answer): void {
    if (segment !== undefined) this.#flying.delete(segment);
    this.#look &&= segment !== undefined;
    if (++this.#answers > 4 * this.#layout.segments + 32) return this.#fail("gateway-lies");
    if (answer.state && ENDED.includes(answer.state)) return this.#fail(`upload-${answer.state}`);
    // The gateway's window says so when its user stops it, when it is closed, and when it has tried for half a minute.
    if (answer.status === 0 && answer.code) return this.#fail(answer.code);
    if (answer.status >= 200 && answer.status < 203) return this.#told(segment, answer);
    if (answer.status === 404 && segment === undefined) {
      this.#todo = this.#todo.map((_, index) => span(this.#layout, index));
      return this.#best ? this.#stall() : undefined;
    }
    if (PASSING.includes(answer.status) || PASSING_CODES.includes(answer.code!)) return this.#stall(answer);
    this.#fail(answer.code ?? "not-hoop");
  }

  /** Bytes that are handed over. */
  get bytes(): number {
    return this.#layout.total - this.#todo.reduce((sum, todo) => sum + (todo ? todo[1] - todo[0] + 1 : 0), 0);
  }

  /** Whether any of a segment is still to be sent, perhaps again. */
  wants(segment: number): boolean {
    return !!this.#todo[segment];
  }

  /** Takes what a 2xx says, if it has all four fields, and says it of this upload: anybody can answer 201. */
  #told(segment: number | undefined, answer: Answer): void {
    const { id, state, total } = answer;
    const missing = parseMissing(answer.missing, this.#layout);
    if (!missing || id !== this.#id || total !== `${this.#layout.total}` || !STATES.includes(state!)) return this.#lie(answer);
    // Whoever cannot name all that is missing has not said that the rest is there.
    const known = missing.length < MAX_SPANS ? Infinity : missing.at(-1)![1];
    const whole = !missing.length && state !== STATES[0];
    // An answer to one segment may be older than that to another, so it is asked about its own alone. Nothing is under way at a look.
    for (const index of segment === undefined ? this.#todo.keys() : [segment]) {
      const all = span(this.#layout, index);
      const lacks = within(missing, all);
      if (lacks) this.#todo[index] = lacks;
      else if (this.#sent.has(index) && (segment !== undefined || all[1] <= known)) this.#todo[index] = undefined;
    }
    if (whole && this.#sent.size < this.#layout.segments) return this.#lie(answer);
    if (whole && this.#todo.every((todo) => !todo)) {
      this.#end = { do: "done" };
      return;
    }
    const { bytes } = this;
    if (bytes > this.#best) {
      this.#best = bytes;
      this.#failures = 0;
    } else if (segment === undefined ? !this.#todo.some(Boolean) : this.#todo[segment]) this.#stall(answer, "gateway-lies");
  }

  #lie(answer: Answer): void {
    if (++this.#lies >= LIES) return this.#fail("gateway-lies");
    this.#stall(answer, "gateway-lies");
  }

  /** No progress: pauses, and looks before it goes on. Without an answer, it only counts. */
  #stall(answer?: Answer, code = answer?.code ?? "network"): void {
    this.#failures += answer?.still ? STILL : 1;
    if (this.#failures >= FAILURES) return this.#fail(code);
    if (!answer) return;
    this.#pause = Math.min(PAUSE_MAX_MS, Math.max(PAUSE_MS * 2 ** (this.#failures - 1), (answer.retryAfter ?? 0) * 1000));
    this.#look = true;
  }

  #fail(code: string): void {
    this.#end ??= { do: "fail", code };
  }
}
