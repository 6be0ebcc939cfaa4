/** The most that an ordinary upload may be delayed where no box is known, from the click on. */
export declare const DELAY_MS = 300;
/** Of that, for an answer from the box and from the service; the rest is for what the page does itself. */
export declare const OPEN_WAIT_MS = 250;
/** How long to wait for a box that answered lately: a `.local` name whose first query is lost takes over a second. */
export declare const KNOWN_WAIT_MS = 2500;
export declare const KNOWN_MS: number;
export declare const NONE_MS = 86400000;
/** People come home on the day that they left. */
export declare const AWAY_MS = 3600000;
/** The most boxes that are remembered; pages name one or two. */
export declare const BOXES_MAX = 8;
/** When a gateway answered last, and when it was last looked for in vain, in milliseconds since 1970. */
export interface Box {
    seen?: number;
    none?: number;
}
export interface Memory {
    /** The visitor wants to be asked nothing any more. */
    quiet: boolean;
    /** By the gateway's origin. */
    boxes: Readonly<Record<string, Box>>;
}
export interface Belief {
    /** One answered lately. */
    known: boolean;
    /** How long it may take to answer before the upload goes without it, in milliseconds. */
    wait: number;
    /** Whether the visitor may be asked about it. */
    ask: boolean;
}
export declare function belief({ quiet, boxes }: Memory, gateway: string, now: number): Belief;
/** What is remembered after a look. */
export declare function learn(memory: Memory, gateway: string, what: keyof Box, now: number): Memory;
/** What was written down; nothing where it is not as it was written. */
export declare function recall(text: string | null): Memory;
