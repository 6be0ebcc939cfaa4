import type { Parcel, Way } from "./way.ts";
export declare const own: (parcel: Parcel) => Way;
