import type { Parcel, Way } from "./way.ts";
/** A gateway's word on what it has of an upload. */
export interface Stored {
    /** The name that follows from the key which has signed it. */
    gateway: string;
    id: string;
    /** 1: some of it; 2: all; 3: it is on its way. */
    state: number;
    /** Seconds since 1970, by the gateway's clock. */
    time: number;
    total: bigint;
    missing: string;
}
/** Opens a receipt of an upload to the service of `origin`. Rejects what is none with `gateway-lies`, and otherwise with what this browser says that has no Ed25519. */
export declare function openStored(bytes: Uint8Array<ArrayBuffer>, origin: string): Promise<Stored>;
/** The same way, whose answers are a gateway's word only if they are signed as a gateway signs: by a key that the service lists if it lists any. What is not
 *  signed at all may be an older gateway's: it is taken, and not relied on. */
export declare function witnessed(way: Way, { id, dest, gateways }: Parcel): Way;
