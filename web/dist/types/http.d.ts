import type { Way as Name } from "./types.ts";
import type { Parcel, Way } from "./way.ts";
/** The page's own request, as `fetch` would make it, but one that tells how far it has come. Rejects with `network` or `aborted`. */
export declare function send(method: string, url: string, headers: [string, string][], body: Blob, onsent: (octets: number) => void, signal: AbortSignal): Promise<Response>;
/** Ranges of `parcel` by `PUT {url}`. `token`: T, for the service itself. */
export declare function overHttp(name: Name, url: string, parcel: Parcel, gateway?: string, token?: string): Way;
