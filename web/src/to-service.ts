// Sealed ranges to the service itself: what was begun at a gateway that has gone is finished there as the same upload, so nothing arrives twice.

import { overHttp } from "./http.ts";
import type { Parcel, Way } from "./way.ts";

/** `token`: T, by which a service that takes uploads from certain gateways only knows the device. */
export const toService = (parcel: Parcel, token: string): Way => overHttp("service", `${parcel.dest}/${parcel.id}`, parcel, "", token);
