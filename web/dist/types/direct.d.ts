import type { Parcel, Way } from "./way.ts";
/** `granted`, `prompt`, `denied` as the Permissions API has it; `unsupported`: this browser never lets an https page talk to an http gateway. */
export type Permission = PermissionState | "unsupported";
/** Whether this page may talk to the local network. Pages on loopback are part of it. */
export declare function permission(): Promise<Permission>;
/** What answers at a gateway's address: `gateway`, or a code why it cannot be used. */
export type Probe = "gateway" | "no-gateway" | "not-hoop" | "spool-full";
/** Looks whether a gateway is there. */
export declare const probe: (gateway: string, signal?: AbortSignal) => Promise<Probe>;
/** Resolves when the browser asks its user no more. It tells of that by an event, but not always. */
export declare function answered(signal?: AbortSignal): Promise<Permission>;
export declare function direct(gateway: string, parcel: Parcel): Promise<Way | Probe>;
