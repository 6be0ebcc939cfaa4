// Whether a gateway that said "stored" is still to be relied on, by what it and the service say while the page stays (docs/protocol.md §5). Pure: no clock, no network.

import type { Status } from "./service.ts";
import type { Answer } from "./way.ts";

/** So long may the service get nothing new. A gateway has others to serve, too, and nobody waits in front of the page as at a command line; but a page is not kept
 *  open for ever. */
export const PATIENCE_MS = 600_000;
/** The same where the page stays because of it: somebody waits in front of it. */
export const STRANGER_MS = 120_000;
/** A gateway that sends at certain hours is waited for until they come, once for each time that the service has got something: they come every day. */
export const HOURS_MS = 86_400_000;
/** How often the page sends what is missing by itself: a service that has not taken it by then will not. */
export const MENDS = 3;

/** What a gateway says of an upload that it has still to deliver; anything else is its word that it need not, or will not. */
const CARRYING = ["receiving", "stored", "delivering"];
/** What a service says of an upload that it has not got. */
const COMING = ["announced", "receiving"];

/** What it says when it has all of it. */
const WHOLE = ["stored", "delivering"];

/** Whether the gateway says that it carries it no longer, or what no gateway says. */
export const isDone = ({ status, state, code }: Answer) => status === 404 || code === "gateway-lies" || (!!state && !CARRYING.includes(state));

export class Doubt {
  #received = 0;
  #since: number;
  /** Until when the gateway has said that it is not its time. */
  #shut: number | undefined;
  #mends = 0;
  #stranger: boolean;

  /** `stranger`: the gateway is one that is not relied on, and the hours that it tells are not waited for. */
  constructor(now: number, stranger = false) {
    this.#since = now;
    this.#stranger = stranger;
  }

  /** Whether the page is to send what the service lacks, by what the gateway said (if it was asked) and the service after that (if it answered). */
  weigh(said: Answer | undefined, told: Pick<Status, "state" | "received" | "reason"> | undefined, now: number): boolean {
    const received = told?.received ?? 0;
    // Nobody could send it anything now, or it has come on.
    if (!told || told.reason || received > this.#received) [this.#received, this.#since, this.#shut] = [Math.max(received, this.#received), now, undefined];
    // It has all, and it is not its time: by itself the page would use the same thin line at the hours that its owner keeps free. As long as it says so.
    else if (!this.#stranger && said?.status === 200 && WHOLE.includes(said.state ?? "") && !said.missing && said.retryAfter) {
      this.#shut ??= now + Math.min(said.retryAfter * 1000, HOURS_MS);
      if (now < this.#shut) this.#since = now;
    }
    const due = (said && isDone(said)) || now - this.#since >= (this.#stranger ? STRANGER_MS : PATIENCE_MS);
    if (!due || !told || told.reason || !COMING.includes(told.state) || this.#mends === MENDS) return false;
    this.#mends++;
    this.#since = now;
    return true;
  }
}
