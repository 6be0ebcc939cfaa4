// How a segment goes out: the same small interface for the gateway, its window, and the service.

import type { Stranger, Way as Name } from "./types.ts";

/** What came of a `put` or `look`, from a stranger: read only through strict parsers. */
export interface Answer {
  /** HTTP's; 0: nobody answered. */
  status: number;
  /** `Hoop-Upload-Id`; of a `put`, only if the answer's document names the same. */
  id?: string | null;
  /** `Hoop-State`. */
  state?: string | null;
  /** `Hoop-Missing`. */
  missing?: string | null;
  /** `Hoop-Total`. */
  total?: string | null;
  /** `Hoop-Receipt`. */
  receipt?: string | null;
  /** Of a refusal. */
  code?: string;
  /** Nobody answered, and for so long that it was given up. */
  still?: boolean;
  /** `Retry-After` in seconds. */
  retryAfter?: number;
  /** The gateway's page about the upload, of the gateway's own origin. */
  monitor?: string;
}

export interface Way {
  name: Name;
  /** The gateway's origin. */
  gateway?: string;
  /** Which of `Parcel.gateways` the gateway says that it is; null: none of them. Undefined where it does not say. */
  called?: string | null;
  /** How many segments may be under way at once. */
  parallel: number;
  /** Sends bytes `first` to `last` of Z. Never rejects; `onsent` gets bytes that the socket has taken. */
  put(first: number, last: number, blob: Blob, onsent: (bytes: number) => void, signal: AbortSignal): Promise<Answer>;
  /** Asks what is there. */
  look(signal: AbortSignal): Promise<Answer>;
  /** Nothing more comes. */
  close(): void;
  /** Once a gateway has all of it: why it is not relied on, undefined if it is. */
  stranger?(): Promise<Stranger | undefined>;
}

/** An upload, as a way needs to know it. */
export interface Parcel {
  id: string;
  /** The service's post URL. */
  dest: string;
  total: number;
  /** base64url. */
  prelude: string;
  /** The service's consent to a gateway's disk being filled, base64url. */
  permit?: string;
  /** The names of the gateways that may bring it to the service, where only certain ones may: the gateway is asked which it is. */
  gateways?: string[];
}

/** The one of these names that a gateway says is its own; null if it says that none is, undefined if it says nothing of the kind. */
export const calledOf = (names: string[], said: unknown) => (said === null || names.includes(said as string) ? (said as string | null) : undefined);

/** A code of a refusal, if it reads as one: it may be shown, and comes from a stranger. */
export const cleanCode = (code: unknown) => (typeof code === "string" && /^[a-z-]{1,40}$/.test(code) ? code : undefined);

/** `url` if it is a page of `origin`, else undefined. */
export function ownUrl(url: unknown, origin: string): string | undefined {
  if (typeof url !== "string" || !URL.canParse(url, origin)) return undefined;
  const whole = new URL(url, origin);
  return whole.origin === new URL(origin).origin ? whole.href : undefined;
}
