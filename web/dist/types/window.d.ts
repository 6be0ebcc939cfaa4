import type { Parcel, Way } from "./way.ts";
/** Why there is no window: `popup-blocked`; `window-closed` (by its user, or cut off by `Cross-Origin-Opener-Policy`); `no-gateway`. */
export type NoWindow = "popup-blocked" | "window-closed" | "no-gateway";
export interface Bridge {
    /** Hands it an upload; resolves to a way, or to why not. */
    way(parcel: Parcel): Promise<Way | string>;
    /** Closes it and opens another, from within a click. */
    again(): Promise<Bridge | NoWindow>;
    close(): void;
}
/** Opens the window: within a user's gesture, and at once. Resolves when it has said hello. */
export declare function openBridge(gateway: string, known?: boolean): Promise<Bridge | NoWindow>;
