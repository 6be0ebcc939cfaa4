import { type State } from "./types.ts";
/** Every state that looks different, by name. */
export declare const states: Record<string, State>;
declare global {
    interface Window {
        /** The names of all states, for whoever drives the gallery. */
        states: string[];
    }
}
