import type { Offloadable, OffloadOptions, Policy, Receipt, Settings } from "./types.ts";
/** What form.ts, policy.ts and hoop.ts add. */
export interface Hooks {
    /** What is to be done with these files; default: `options.policy`, else the settings', else `ask`. */
    decide?(files: File[], settings: Settings | undefined): Policy;
    /** Sends the form as if there were no library, within `left` milliseconds. Default: the same request by `fetch`. */
    ordinarySubmit?(left: number): void;
    /** The button that was pressed. */
    submitter?: HTMLElement | null;
    /** The form's entries when it was pressed. */
    entries?: FormData;
}
/** Hands an upload over. Resolves when the page may go: the gateway or the service has all of it, or it went the ordinary way. */
export declare function offload(input: Offloadable, options?: OffloadOptions & Hooks): Promise<Receipt>;
/** Whether this browser has what sealing takes. */
export declare const able: () => boolean;
