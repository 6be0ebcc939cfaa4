import type { Way as Name } from "./types.ts";
import type { Parcel, Way } from "./way.ts";
/** Ranges of `parcel` by `PUT {url}`. `token`: T, for the service itself. */
export declare function overHttp(name: Name, url: string, parcel: Parcel, gateway?: string, token?: string): Way;
