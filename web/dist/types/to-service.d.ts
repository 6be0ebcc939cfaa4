import type { Parcel, Way } from "./way.ts";
/** `token`: T, by which a service that takes uploads from certain gateways only knows the device. */
export declare const toService: (parcel: Parcel, token: string) => Way;
