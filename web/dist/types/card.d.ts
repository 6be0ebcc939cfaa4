import type { State } from "./types.ts";
export interface CardOptions {
    /** Ends the upload. Without it there is no such button. */
    cancel?(): void;
    /** Begins again after a failure. */
    again?(): void;
    /** Sends it the ordinary way after a failure, if nothing was begun: else it could arrive twice. */
    direct?(): void;
    /** The service's origin, if not the page's. */
    site?: string;
    /** Where the application's answer opens: a form's `target`. */
    target?: string;
}
export declare class Card {
    #private;
    /** To be put into the page; a `<hoop-card>`, so that a page can style it. */
    readonly element: HTMLElement;
    constructor(options?: CardOptions);
    /** Shows a state, whole. The element must be in the page for its language and colours to be known. */
    show(state: State): void;
}
