/** What of an event's status is looked at here (docs/protocol.md §8). */
interface Status {
    id: string;
    state: string;
    total: number;
    received: number;
    paused?: boolean;
    reason?: {
        code: string;
    } | null;
    next_attempt?: number | null;
    files?: unknown[] | null;
    caption?: string | null;
    path?: string | null;
    monitor?: string | null;
}
/** The least time between two looks at the page: states come in bursts when a gateway delivers. */
declare const LOOK_MS = 500;
/** How often the words for times are made true again. */
declare const TIMES_MS = 10000;
/** How long a broken connection may take to come back before the user is told. */
declare const OFFLINE_MS = 4000;
/** Of what changed at once, so many are said; more would be read aloud for minutes. */
declare const SAID_MAX = 3;
declare const ENDED: Set<string>;
/** What a row shows besides progress: the same as `Entry::key` of the service. */
declare function keyOf(status: Status): string;
declare function size(bytes: number, units: string[], decimal: string): string;
/** Times that the server wrote as of its own now. */
declare function tell(within?: ParentNode): void;
declare class Uploads {
    #private;
    private root;
    constructor(root: HTMLElement);
    /** Fetches the page and takes over what is different. One look at a time, and one more if something came meanwhile. */
    look(): Promise<void>;
}
declare function label(row: Element): string;
declare function sentence(row: Element): string;
/** Makes a row what it is now. Whoever stands in it stays: at the same button, at the one in its place, or at the name. */
declare function redraw(row: HTMLElement, fresh: HTMLElement): void;
/** Settings need no script; a form that was sent is not sent twice. */
declare function once(form: HTMLFormElement): void;
declare const uploads: HTMLElement | null;
declare const settings: HTMLFormElement | null;
