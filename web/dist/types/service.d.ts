import type { Suite } from "./seal.ts";
import type { Settings } from "./types.ts";
export interface Ticket {
    post: string;
    upload_id: string;
    ticket: string;
    key: string;
    token: string;
    suite: Suite;
    record_size: number;
    expires: number;
    max_bytes: number;
    /** The service's permit for gateways, base64url. */
    permit?: string | null;
    /** The names of the only gateways that may bring uploads. */
    gateways?: string[] | null;
}
/** What a ticket is for. */
export interface Wanted {
    method: string;
    target: string;
    /** K, base64url, if there is one already: then the same upload gets another ticket, with another permit. */
    key?: string;
    /** The name of the gateway that the permit is to be for. */
    gateway?: string;
}
export interface Status {
    state: string;
    /** Bytes of the upload that it has. */
    received?: number;
    answer: string | null;
    reason?: {
        code: string;
        detail?: string;
    } | null;
}
export interface Note {
    total: number;
    files: {
        name: string;
        size: number;
        type: string;
    }[];
    caption?: string;
    monitor?: string;
}
/** What time it is by the service, in milliseconds since 1970; NaN until it has said. What a ticket's end is compared with: the device's own clock may
 *  be years off. */
export declare const time: () => number;
/** A ticket for one upload to this page's origin. While the service asks to wait for it, `onbusy` says so. */
export declare function ticket(wanted: Wanted, authorization: string | undefined, signal: AbortSignal, onbusy: () => void): Promise<Ticket>;
/** Asks for the settings before they are needed. */
export declare function askAhead(): void;
/** Whoever has looked at another page meanwhile may have changed them, or signed out. */
export declare function forgetAhead(): void;
/** The user's settings; undefined if the service does not say. */
export declare function settings(signal?: AbortSignal): Promise<Settings | undefined>;
/** The service's status of an upload. With `wait`, it waits for a change to a final state or `held`. */
export declare function status(id: string, wait: boolean, signal?: AbortSignal): Promise<Status>;
/** Tells the service of an upload that is on its way. */
export declare function note(id: string, token: string, { total, files, caption, monitor }: Note): Promise<void>;
/** Stops an upload. Rejects with `upload-done` if the application has it already. */
export declare function stop(id: string, token: string): Promise<void>;
