import type { Ticket } from "./service.ts";
import { HoopError } from "./types.ts";
import type { Phase } from "./types.ts";
export interface News {
    phase: Phase;
    answer?: Response;
    error?: HoopError;
    /** Nothing more can come. */
    final: boolean;
}
/** Asks until the end, or until aborted; `tell` gets each change. Believes the service alone, never a gateway. */
export declare function follow(ticket: Ticket, tell: (news: News) => void, signal: AbortSignal): Promise<void>;
