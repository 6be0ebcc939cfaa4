/** What to do with an upload: `always` hand it to the gateway, `never`, or `ask` each time. */
export type Policy = "always" | "never" | "ask";
/** The user's settings, as the service keeps them (`GET /hoop/settings`, docs/protocol.md §7). */
export interface Settings {
    /** For types that `types` does not name. Default `ask`. */
    policy: Policy;
    /** Uploads with fewer bytes of files are sent directly. Default 0. */
    min_bytes: number;
    /** By media type, `image/jpeg` or `image/*`. Of several files' policies the strictest holds: never, ask, always. */
    types: Record<string, Policy>;
    /** Whether the user has saved settings; if not, a form's own attributes hold. */
    saved: boolean;
    /** Who the user is, as an opaque word; null for nobody. What a browser keeps for one user is not used for another. */
    owner: string | null;
}
/** How an upload goes: from the page to the gateway, through the gateway's window, sealed to the service itself, or
 *  as if Hoop were not there. */
export type Way = "direct" | "bridge" | "service" | "ordinary";
/** Why a gateway that has everything is not relied on: it did not show who it is, or this browser cannot tell; or it is another than the one that this browser
 *  knows at that address. */
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
/** It came to nothing: see `State.error`. */
 | "failed"
/** Its owner stopped it. */
 | "stopped"
/** It goes, or went, the ordinary way. */
 | "ordinary";
/** A question to the user. One of the two is called, from within the click that answers: `proceed` opens a window or
 *  lets the browser ask for leave, and both need a user's gesture. */
export interface Question {
    /** `offer`: hand this upload to the gateway? (policy `ask`). `permission`: the browser will ask for leave to reach the local
     *  network. `bridge`: a small window of the gateway will open. `retry`: the gateway has gone; try again, or send the
     *  rest to the service. `bridge` after `permission` means that leave was not given. */
    kind: "offer" | "permission" | "bridge" | "retry";
    /** Whether a gateway has answered here lately. Where not, there may be none: this is asked once a day at the most. */
    known: boolean;
    proceed(): void;
    /** The ordinary way instead. */
    decline(): void;
    /** The same, and nothing is asked any more in this browser until the user saves settings. Not for `retry`. */
    never?(): void;
}
export interface State {
    phase: Phase;
    way?: Way;
    /** The gateway's name, `hoop.local:4667`. */
    gateway?: string;
    /** Octets of the upload that the gateway, or the service, has acknowledged or is taking now. */
    sent: number;
    /** Octets in all. */
    total: number;
    /** Octets a second, over the last seconds. */
    rate?: number;
    id?: string;
    /** Whether the service lists it for its user: it knows who that is. */
    listed?: boolean;
    /** The gateway's page about this upload. */
    monitor?: string;
    question?: Question;
    /** While `handing`: this gateway has everything, and is not relied on. The page stays until the service has it. */
    stranger?: Stranger;
    error?: HoopError;
    /** Continues what was begun before a reload. */
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
    /** Ends it. What the gateway has is stopped at the service. */
    signal?: AbortSignal;
    onprogress?(progress: {
        sent: number;
        total: number;
        rate?: number;
    }): void;
    /** Every change, whole. */
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
    /** Whether the ordinary way is taken where there is no gateway. Default true; false: `HoopError("no-gateway")`. */
    ordinary?: boolean;
}
/** What `offload` resolves to: the page may go now. A gateway's word is enough only if that is relied on (`State.stranger`). */
export interface Receipt {
    way: Way;
    /** `free` or further; `ordinary`. */
    phase: Phase;
    id?: string;
    monitor?: string;
    total: number;
    /** The application's answer: at once for the ordinary way, else when the upload is delivered. Rejects with what came
     *  in the way (`held`, `rejected`, `stopped`, `expired`, `unknown`). */
    delivered(signal?: AbortSignal): Promise<Response>;
}
/** Something to offload: a form, a Request, or what one would give to `fetch`. A `Request` is read into a Blob first, so prefer
 *  the third for big files: there files are read piece by piece. POST, PUT or PATCH to this page's own origin. */
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
    /** What is loaded later brings a class of its own. */
    static [Symbol.hasInstance]: (value: unknown) => boolean;
    constructor(code: HoopCode, detail?: string, options?: ErrorOptions);
}
