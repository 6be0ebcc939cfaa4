import type { Answer, FromBridge } from "./bridge-messages.ts";
/** Puts on the wire at once: while one is synced to the gateway's disk, the next one travels. */
export declare const RUNNING = 2;
/** Without work or opener, the window is of no use. */
export declare const ALONE_MS = 60000;
/** With an opener that says nothing: longer than any ticket takes. */
export declare const IDLE_MS = 600000;
/** How long "done" can be read. */
export declare const DONE_MS = 2000;
/** One request to the gateway, to be made again as often as it is asked for. */
export interface Job {
    readonly seq: number;
    readonly upload: Upload;
    /** Absent: a `look`. */
    readonly part?: {
        first: number;
        last: number;
        blob: Blob;
    };
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
{
    do: "post";
    to: string;
    message: FromBridge;
} | {
    do: "send";
    job: Job;
}
/** Every request that is under way. */
 | {
    do: "abort";
} | {
    do: "close";
};
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
export declare class Bridge {
    #private;
    /** The gateway's name, once it is known: said to a page that names it first. */
    name: string | undefined;
    constructor(now: number);
    /** The effects since the last call, to be done in this order. */
    take(): Effect[];
    /** Whether closing the window would lose something. */
    get busy(): boolean;
    get begun(): boolean;
    /** A message of the opener, whose page is of `origin`. What is no message of ours is ignored. */
    message(data: unknown, origin: string, now: number): void;
    /** The socket has taken so much of a `put`. */
    sent(job: Job, bytes: number): void;
    /** A request that was asked for has ended. */
    outcome(job: Job, outcome: Outcome, now: number): void;
    /** Time has passed. `alone`: the page that opened the window has gone. */
    tick(now: number, alone: boolean): void;
    /** The user has had enough. */
    stop(): void;
    view(): View;
}
/** What is wrong with a `begin` of a page of `origin`; null for nothing. */
export declare function judge(data: Record<string, unknown>, origin: string): {
    code: string;
    detail: string;
} | null;
