import type { Ticket } from "./service.ts";
import { HoopError } from "./types.ts";
import type { Phase } from "./types.ts";
import type { Answer } from "./way.ts";
export interface News {
    phase: Phase;
    answer?: Response;
    /** Where it points. */
    location?: string;
    error?: HoopError;
    /** Nothing more can come. */
    final: boolean;
}
/** Whoever has said that it will deliver the upload. */
export interface Carrier {
    /** What it says of the upload now, if it can be asked. */
    look?(): Promise<Answer>;
    /** Sends what the service lacks past it. */
    mend(): Promise<void>;
    /** It is not relied on. */
    stranger: boolean;
}
/** Asks until the end, or until aborted; `tell` gets each change of what was sent to `url`. Believes the service alone, never a gateway; what a gateway does not deliver is sent past it. */
export declare function follow(ticket: Ticket, url: URL, tell: (news: News) => void, signal: AbortSignal, carrier?: Carrier): Promise<void>;
