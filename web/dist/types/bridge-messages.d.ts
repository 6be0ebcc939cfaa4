/** At most so many `put` and `look` may be unanswered: enough to keep the socket busy, and a few segments of memory. */
export declare const BRIDGE_QUEUE = 8;
/** The bridge's path at a gateway. */
export declare const BRIDGE_PATH = "/bridge";
/** The window's size is part of its design: the page fits in without scrolling. */
export declare const BRIDGE_FEATURES = "popup,width=420,height=300";
interface Message<Type extends string> {
    hoop: 1;
    type: Type;
}
/** One upload. A second `begin` of the same origin is taken as well: what is put after it belongs to that upload. */
export interface Begin extends Message<"begin"> {
    /** 32 lower-case hexadecimal digits. */
    id: string;
    /** The service's post URL, of the page's own origin. */
    dest: string;
    /** Bytes of Z. */
    total: number;
    /** The prelude as base64url, as in `Hoop-Prelude`. */
    prelude: string;
    /** The service's permit as base64url, as in `Hoop-Permit`. */
    permit?: string;
    /** Names of gateways, 256 at most, of which the gateway is to say which is its own. */
    gateways?: string[];
}
/** Bytes `first` to `last` of Z, both inclusive, as in `Content-Range`. */
export interface Put extends Message<"put"> {
    /** Chosen by the page, names this in `progress` and `answer`. */
    seq: number;
    first: number;
    last: number;
    blob: Blob;
}
/** Asks what the gateway has, once all that came before it is answered. */
export interface Look extends Message<"look"> {
    seq: number;
}
/** Nothing more comes. */
export interface End extends Message<"end"> {
}
/** The page goes, or goes to sleep: the bridge is alone, as if the page had been closed, until it hears from it again. */
export interface Bye extends Message<"bye"> {
}
export type FromPage = Begin | Put | Look | End | Bye;
/** The bridge is open; sent to any origin, again and again until the first `begin`. */
export interface Hello extends Message<"hello"> {
    /** The gateway's version. */
    version: string;
}
/** `begin` was taken. */
export interface Ready extends Message<"ready"> {
    id: string;
    /** If `begin` named gateways: this one's name, if it is among them; else null. */
    gateway?: string | null;
}
/** `begin` was not taken. */
export interface Refused extends Message<"refused"> {
    /** Of the table in docs/protocol.md: `request-invalid`, `dest-invalid`, `origin-forbidden`. */
    code: string;
    detail: string;
}
/** The socket has taken so many bytes of this `put`: 0 as soon as the bridge has it, which is lost if its page closes before, and again when it is tried again. */
export interface Progress extends Message<"progress"> {
    seq: number;
    sent: number;
}
/** What came of a `put` or `look`; in the order of the questions, but for what did not fit the queue. */
export interface Answer extends Message<"answer"> {
    seq: number;
    /** HTTP's; 0: the gateway could not be reached, or the user stopped it (`code` is `aborted`). */
    status: number;
    /** `Hoop-Upload-Id`; of a `put`, only if the document of the answer names the same. */
    id?: string;
    /** `Hoop-State`, if the gateway said it. */
    state?: string;
    /** `Hoop-Missing`: spans `first-last, …`, empty for none. */
    missing?: string;
    /** `Hoop-Total`. */
    total?: string;
    /** `Hoop-Receipt`. */
    receipt?: string;
    /** Of a refusal: the problem's code. The bridge itself says `range-invalid`, `too-many-requests` and `aborted`. */
    code?: string;
    detail?: string;
    /** Seconds, of a refusal that passes. */
    retry_after?: number;
    /** The gateway's page about the upload. */
    monitor?: string;
}
export type FromBridge = Hello | Ready | Refused | Progress | Answer;
export {};
