import type { HoopError, Question, State, Stranger } from "./types.ts";
/** A heading and a sentence or two below it. */
export type Text = readonly [title: string, body: string];
export interface Texts {
    /** In all texts, `site` is the host of the service. */
    looking: Text;
    asking: Record<Question["kind"], (site: string) => Text>;
    /** The same where no box is known, and there may be none. */
    whether: Record<"permission" | "bridge", Text>;
    proceed: Record<Question["kind"], string>;
    decline: string;
    never: string;
    settings: string;
    /** `site` is empty when it goes to the Hoop box. */
    handing: (site: string) => Text;
    stranger: Record<Stranger, (site: string) => Text>;
    resumed: string;
    busy: (site: string) => Text;
    free: (site: string) => Text;
    received: (site: string) => Text;
    delivered: (site: string) => Text;
    held: Record<Waiting, (site: string) => Text>;
    stopped: Text;
    ordinary: (site: string) => Text;
    /** By the error's code: what happened, and what to do. */
    failed: Record<Reason, (site: string) => Text>;
    steps: readonly [box: string, site: string, accepted: string];
    of: (sent: string, total: string) => string;
    left: (time: string) => string;
    cancel: string;
    again: string;
    dismiss: string;
    monitor: string;
    location: string;
    uploads: string;
    signIn: string;
    finish: string;
}
/** What a held upload waits for. */
type Waiting = "session" | "token" | "permission" | "failure";
type Reason = "other" | "file" | "full" | "large" | "network" | "refused" | "unknown" | "signedOut" | "lies" | "noBox" | "alive";
declare const LANGUAGES: {
    en: Texts;
    fr: Texts;
};
export type Language = keyof typeof LANGUAGES;
/** The first of these language tags that is spoken here; else English. */
export declare function language(tags: readonly (string | null | undefined)[]): Language;
export declare const texts: (language: Language) => Texts;
/** Whether trying the same once more can help: neither after a refusal, nor with a file that must be chosen again, nor if
 *  it may have arrived. */
export declare function mayHelp(error?: HoopError): boolean;
/** What a held upload waits for, by its error. */
export declare function waiting(error?: HoopError): Waiting;
/** What is said of a state. */
export declare function words(t: Texts, { phase, question, stranger, way, error, busy }: State, site: string): Text;
/** `34 MB`, `34 Mo`: of decimal units, since file managers and phones count so. */
export declare function size(language: Language, bytes: number): string;
/** `7 seconds`, `12 minutes`: coarse, so that it does not flicker. */
export declare function time(language: Language, seconds: number): string;
export {};
