import type { Offloadable, OffloadOptions, Policy, Receipt, Settings } from "./types.ts";
/** What the core takes from a form besides its options. */
export interface FormHooks {
    decide(files: File[], settings: Settings | undefined): Policy;
    ordinarySubmit(left: number): void;
    submitter: HTMLElement | null;
    entries: FormData;
}
export type Offload = (input: Offloadable, options: OffloadOptions & FormHooks) => Promise<Receipt>;
/** Begins to upgrade the forms that `selector` names. */
export declare function startForms(selector: string, offload: Offload): void;
