/** What to do with an upload: `always` hand it to the gateway, `never`, or `ask` each time. */
export type Policy = "always" | "never" | "ask";
/** The user's settings, as the service keeps them (`GET /hoop/settings`, docs/protocol.md §7). */
export interface Settings {
    /** For types that `types` does not name. Default `ask`. */
    policy: Policy;
    /** Uploads with fewer bytes of files are sent directly. Default 0. */
    min_bytes: number;
    /** By media type, `image/jpeg` or `image/*`. With several files, the strictest policy applies: first `never`, then `ask`, then `always`. */
    types: Record<string, Policy>;
    /** Whether the user has saved settings; if not, a form's own attributes hold. */
    saved: boolean;
    /** Who the user is, as an opaque word; null for nobody. What a browser keeps for one user is not used for another. */
    owner: string | null;
}
/** How an upload goes: from the page to the gateway, through the gateway's window, sealed to the service itself, or
 *  as if Hoop were not there. */
export type Way = "direct" | "bridge" | "service" | "ordinary";
/** Why the page does not rely on a gateway that has everything. `unproven`: the gateway did not prove its identity, or this browser cannot check the proof.
 *  `changed`: this browser knows a different gateway at that address. */
export type Stranger = "unproven" | "changed";
/** Where an upload stands, for people.
 *
 *  ```text
 *                          ┌────────┐ the gateway does not deliver: to the service, from here
 *                          ▼        │
 *  looking ─▶ asking ─▶ handing ─▶ free ─▶ received ─▶ delivered │ held │ failed │ stopped
 *     └─────────┴─────────┴─▶ ordinary │ failed
 *  ``` */
export type Phase = 
/** Looking for a gateway. */
"looking"
/** A question waits for the user: see `State.question`. */
 | "asking"
/** Sealing and handing over; the page must stay. */
 | "handing"
/** The gateway has all of it, on disk: the page may go. */
 | "free"
/** The service has all of it. */
 | "received"
/** The application has accepted it. */
 | "delivered"
/** The service has it, and waits for its owner to sign in again. */
 | "held"
/** It failed: see `State.error`. */
 | "failed"
/** Its owner stopped it. */
 | "stopped"
/** It goes, or went, the ordinary way. */
 | "ordinary";
/** A question to the user. Call one of the functions from within the click that answers it: `proceed` opens a window or
 *  makes the browser ask for permission, and both need a user gesture. */
export interface Question {
    /** `offer`: hand this upload to the gateway? (policy `ask`). `permission`: the browser will ask for permission to reach the local
     *  network. `bridge`: a small window of the gateway will open. `retry`: the gateway has gone; try again, or send the
     *  rest to the service. `bridge` after `permission` means that the permission was not given. */
    kind: "offer" | "permission" | "bridge" | "retry";
    /** Whether a gateway has answered here in the last 30 days. If not, there may be none, and this is asked at most once a day. */
    known: boolean;
    proceed(): void;
    /** The ordinary way instead. */
    decline(): void;
    /** Like `decline`, and this browser asks nothing more until the user saves settings. Absent for `retry`. */
    never?(): void;
}
export interface State {
    phase: Phase;
    way?: Way;
    /** The gateway's name, `hoop.local:4667`. */
    gateway?: string;
    /** Bytes of the upload that the gateway, or the service, has acknowledged or is receiving now. */
    sent: number;
    /** The length of the upload, in bytes. */
    total: number;
    /** Bytes per second, averaged over the last five seconds. */
    rate?: number;
    id?: string;
    /** Whether the user will find this upload under "My uploads". False if the service does not know who the user is. */
    listed?: boolean;
    /** The gateway's page about this upload. */
    monitor?: string;
    question?: Question;
    /** While `handing`: this gateway has everything, and is not relied on. The page stays until the service has it. */
    stranger?: Stranger;
    error?: HoopError;
    /** This upload began before the page was reloaded, and now continues. */
    resumed?: boolean;
    /** While `looking`: the service has given this user, or this address, many tickets, and asks to wait for the next. */
    busy?: boolean;
    /** Once delivered or failed: the application's answer, as it would have given it to the form. */
    answer?: Response;
    /** Where the application's answer points, if it does. */
    location?: string;
}
export interface OffloadOptions {
    /** Default: the user's settings, else `ask`. */
    policy?: Policy;
    /** Aborts the upload. The service then refuses what the gateway already has. */
    signal?: AbortSignal;
    onprogress?(progress: {
        sent: number;
        total: number;
        rate?: number;
    }): void;
    /** Called at each change, with the complete new state. */
    onstate?(state: State): void;
    /** Answers questions instead of the card. Without it, and with `card: false`, nothing is asked: only a gateway that is
     *  permitted already is used. */
    ask?(question: Question): void;
    /** Where the card is shown; default: a corner of the page. false: none. */
    card?: Element | false;
    /** Gateways to look for, in order. Default `["http://hoop.local:4667"]`. */
    gateways?: string[];
    /** Shown in the user's list of uploads. Default: the form's field `caption` or `title`, if it has one. */
    caption?: string;
    /** Whether to send the upload the ordinary way if there is no gateway. Default true. If false, `offload` rejects with `HoopError("no-gateway")`. */
    ordinary?: boolean;
}
/** What `offload` resolves to: the page may go now. A gateway's word is enough only if the page relies on that gateway (`State.stranger`). */
export interface Receipt {
    way: Way;
    /** `free` or further; `ordinary`. */
    phase: Phase;
    id?: string;
    monitor?: string;
    total: number;
    /** The application's answer: at once for the ordinary way, else when the upload is delivered. Rejects with a
     *  `HoopError` that says why there is none (`held`, `rejected`, `stopped`, `expired`, `unknown`). */
    delivered(signal?: AbortSignal): Promise<Response>;
}
/** What to offload: a form, a `Request`, or an object with what you would give to `fetch`. A `Request` is first read into a Blob, so prefer
 *  the object for big files, which are then read piece by piece. POST, PUT or PATCH to this page's own origin. */
export type Offloadable = HTMLFormElement | Request | {
    url: string | URL;
    /** Default POST. */
    method?: string;
    headers?: HeadersInit;
    body: FormData | Blob | URLSearchParams | string;
};
/** What an error's `code` can be, besides the codes of docs/protocol.md. */
export type HoopCode = "no-gateway" | "not-hoop" | "aborted" | "file-changed" | "file-unreadable" | "not-offloadable" | "gateway-lies" | "network" | "not-stopped" | "popup-blocked" | "window-closed" | (string & {});
/** What went wrong. `code` says what, for programs and for texts.ts; `message` is the service's own words where it has some, else the code. */
export declare class HoopError extends Error {
    readonly code: HoopCode;
    name: string;
    /** A module that is loaded later has its own copy of this class, so `instanceof` compares names. */
    static [Symbol.hasInstance]: (value: unknown) => boolean;
    constructor(code: HoopCode, detail?: string, options?: ErrorOptions);
}
