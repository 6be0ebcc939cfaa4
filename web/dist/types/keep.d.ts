import type { Ticket } from "./service.ts";
/** An upload, as it was laid out first. */
export interface Kept {
    /** The upload's id. */
    id: string;
    /** Whose it is: `owner` of the settings; "" for nobody. */
    owner: string;
    /** `Message.key`. */
    key: string;
    ticket: Ticket;
    salt: Uint8Array<ArrayBuffer>;
    /** T's head, as it was sealed. */
    head: string;
    /** The body's parts as they were: text, or null where the next file comes. */
    parts: (string | null)[];
}
/** The most uploads that are kept; beyond that the oldest goes. */
export declare const KEPT_MAX = 50;
/** Forgets an upload. */
export declare const drop: (id: string) => Promise<unknown>;
/** Keeps an upload; false if that cannot be. */
export declare function keep(kept: Kept): Promise<boolean>;
/** The upload of `owner`, or undefined for whomever's, with this key, if one is kept that has not expired; the newest of several. `now` is the service's
 *  time (`time`); where it has not said, none has expired. */
export declare function find(owner: string | undefined, key: string, now?: number): Promise<Kept | undefined>;
/** Keeps the print of a segment; resolves when it is on disk, rejects if it does not get there: then the segment must not be sent while
 *  the upload is kept. */
export declare const keepPrint: (id: string, segment: number, print: string) => Promise<IDBValidKey>;
/** The prints of the segments that may have been sent. */
export declare function prints(id: string): Promise<Map<number, string>>;
