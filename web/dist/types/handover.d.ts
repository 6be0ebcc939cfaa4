import type { Layout } from "./seal.ts";
import type { Answer } from "./way.ts";
/** Answers in a row without progress: with the pauses between them, a gateway that restarts has a quarter of a minute. */
export declare const FAILURES = 6;
/** Impossible answers: one may be a fault of something between. */
export declare const LIES = 3;
/** The longest pause, whatever the other side asks for: somebody is looking at the page. */
export declare const PAUSE_MAX_MS = 15000;
export type Step = {
    do: "put";
    segment: number;
    first: number;
    last: number;
} | {
    do: "look";
} | {
    do: "pause";
    ms: number;
}
/** Until an answer comes. */
 | {
    do: "rest";
} | {
    do: "done";
} | {
    do: "fail";
    code: string;
};
export declare class Handover {
    #private;
    /** `sent`: the segments that were sent before, to anybody; then it begins with a look. */
    constructor(id: string, layout: Layout, parallel: number, sent?: Iterable<number>);
    /** What to do now. A `put` is taken to be under way from then on. */
    step(): Step;
    /** Takes the answer to a `put` of `segment`, or to a `look`. */
    answered(segment: number | undefined, answer: Answer): void;
    /** Bytes that are handed over. */
    get bytes(): number;
    /** Whether any of a segment is still to be sent, perhaps again. */
    wants(segment: number): boolean;
}
