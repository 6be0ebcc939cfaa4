import type { Status } from "./service.ts";
import type { Answer } from "./way.ts";
/** So long may the service get nothing new. A gateway has others to serve, too, and nobody waits in front of the page as at a command line; but a page is not kept
 *  open for ever. */
export declare const PATIENCE_MS = 600000;
/** The same where the page stays because of it: somebody waits in front of it. */
export declare const STRANGER_MS = 120000;
/** A gateway that sends at certain hours is waited for until they come, once for each time that the service has got something: they come every day. */
export declare const HOURS_MS = 86400000;
/** How often the page sends what is missing by itself: a service that has not taken it by then will not. */
export declare const MENDS = 3;
/** Whether the gateway says that it carries it no longer, or what no gateway says. */
export declare const isDone: ({ status, state, code }: Answer) => boolean;
export declare class Doubt {
    #private;
    /** `stranger`: the gateway is one that is not relied on, and the hours that it tells are not waited for. */
    constructor(now: number, stranger?: boolean);
    /** Whether the page is to send what the service lacks, by what the gateway said (if it was asked) and the service after that (if it answered). */
    weigh(said: Answer | undefined, told: Pick<Status, "state" | "received" | "reason"> | undefined, now: number): boolean;
}
