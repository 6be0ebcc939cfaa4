import type { Policy, Settings } from "./types.ts";
/** The settings that apply if neither the user nor the form says anything. */
export declare const DEFAULTS: Readonly<Settings>;
/** What a form's attributes say; what they leave out, or spell wrongly, is undefined. */
export type Attributes = Partial<Pick<Settings, "policy" | "min_bytes" | "types">>;
/** Reads `data-hoop`, `data-hoop-min` and `data-hoop-types`. */
export declare function attributes(of: (name: string) => string | null): Attributes;
/** The policy for these files: settings that the user has saved hold; else the form's attributes; else `ask`. Of several
 *  files' policies the strictest holds. */
export declare function decide(settings: Settings, form: Attributes, files: readonly {
    type: string;
    size: number;
}[]): Policy;
