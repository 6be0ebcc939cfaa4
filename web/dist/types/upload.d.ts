import type { Message } from "./message.ts";
import type { Kept } from "./keep.ts";
import type { Ticket } from "./service.ts";
import type { Parcel, Way } from "./way.ts";
export interface Progress {
    sent: number;
    monitor?: string;
}
export interface Upload {
    parcel: Parcel;
    ticket: Ticket;
    /** Whether anybody may have any of it. */
    begun(): boolean;
    /** Hands all of it over. Resolves to undefined, or to a code: why the other side has not got it, perhaps in its own words. Rejects with
     *  what went wrong here. */
    handOver(way: Way, onprogress: (progress: Progress) => void, signal: AbortSignal): Promise<string | undefined>;
    /** Stops it at the service, if it was begun, and forgets it. */
    stop(): Promise<void>;
    /** Forgets what is kept of it. */
    forget(): Promise<void>;
}
/** Begins an upload with a new ticket, and keeps it for `owner` (undefined: keeps nothing). */
export declare function begin(message: Message, ticket: Ticket, owner?: string): Promise<Upload>;
/** Goes on with one that was kept: all that was sent is sealed once more and compared, so that a file that is another one by now ends in
 *  `file-changed` before anything is sent. */
export declare function resume(message: Message, kept: Kept): Promise<Upload>;
/** Resolves after `ms`; rejects when aborted. */
export declare function pause(ms: number, signal?: AbortSignal): Promise<void>;
