// Sealed ranges to the service itself: what was begun at a gateway that has gone is finished there as the same upload, so nothing arrives twice.

import { overHttp } from "./http.ts";
import type { Parcel, Way } from "./way.ts";

export const own = (parcel: Parcel): Way => overHttp("service", `${parcel.dest}/${parcel.id}`, parcel);
