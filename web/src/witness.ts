// Whose word "stored" is. A gateway signs what it has on disk (docs/protocol.md, "Stored receipts"), for one upload: whoever passes the receipt on has passed the
// upload on. So nothing else is asked of it: a page does not see the address that it is connected to, and a signed nonce could come from anywhere.

import { meet } from "./known.ts";
import { concat, unbase64url, utf8 } from "./bytes.ts";
import { HoopError } from "./types.ts";
import type { Stranger } from "./types.ts";
import type { Answer, Parcel, Way } from "./way.ts";

const VERSION = 1;
/** Before `missing`; and behind it. */
const FIXED = 62;
const SIGNATURE = 64;
const MISSING_MAX = 32 * 42;
const RECEIVING = 1;
const DELIVERING = 3;

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

const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Opens a receipt of an upload to the service of `origin`. Rejects what is none with `gateway-lies`, and otherwise with what this browser says that has no Ed25519. */
export async function openStored(bytes: Uint8Array<ArrayBuffer>, origin: string): Promise<Stored> {
  const lies = new HoopError("gateway-lies");
  const end = bytes.length - SIGNATURE;
  if (end < FIXED || end > FIXED + MISSING_MAX || bytes[0] !== VERSION) throw lies;
  const body = bytes.subarray(0, end);
  const signer = body.slice(1, 33);
  const key = await crypto.subtle.importKey("raw", signer, "Ed25519", false, ["verify"]);
  const signed = concat(utf8(`hoop-stored-v1\0${origin}\0`), body);
  if (!(await crypto.subtle.verify("Ed25519", key, bytes.subarray(end), signed))) throw lies;
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const state = view.getUint8(49);
  if (state < RECEIVING || state > DELIVERING) throw lies;
  const name = new Uint8Array(await crypto.subtle.digest("SHA-256", signer)).subarray(0, 16);
  return {
    gateway: hex(name), id: hex(body.subarray(33, 49)), state, time: view.getUint32(50), total: view.getBigUint64(54),
    missing: new TextDecoder("utf-8", { fatal: true }).decode(body.subarray(FIXED)),
  };
}

/** The same way, whose answers are a gateway's word only if they are signed as a gateway signs: by a key that the service lists if it lists any. What is not
 *  signed at all may be an older gateway's: it is taken, and not relied on. */
export function witnessed(way: Way, { id, dest, gateways }: Parcel): Way {
  const { origin } = new URL(dest);
  let signer: string | undefined;
  let whole = false;

  /** Why an answer is nobody's to rely on. */
  async function judge({ receipt, state, missing, total }: Answer): Promise<string | undefined> {
    // What was given up is not signed.
    if (!receipt) return signer && missing != null && !/^(stopped|expired|refused)$/.test(state!) ? "gateway-lies" : undefined;
    let stored;
    try {
      stored = await openStored(unbase64url(receipt), origin);
    } catch (error) {
      return (error as Error).name === "NotSupportedError" ? undefined : "gateway-lies";
    }
    const said = [stored.id, `${stored.total}`, stored.missing];
    const fits = said.join() === [id, total, missing].join() && !(stored.state === RECEIVING && missing === "");
    // Under one name may be two gateways, each with a part; but whoever has all of it stays the one.
    if (!fits || (whole && signer !== stored.gateway)) return "gateway-lies";
    if (gateways && !gateways.includes(stored.gateway)) return "gateway-forbidden";
    signer = stored.gateway;
    whole ||= missing === "";
    return undefined;
  }

  const checked = async (coming: Promise<Answer>): Promise<Answer> => {
    const answer = await coming;
    const code = answer.status >= 200 && answer.status < 300 ? await judge(answer) : undefined;
    return code ? { status: 400, code } : answer;
  };

  return {
    ...way,
    put: (...what) => checked(way.put(...what)),
    look: (signal) => checked(way.look(signal)),
    async stranger(): Promise<Stranger | undefined> {
      if (!whole) return "unproven";
      if (gateways) return undefined;
      // Where nothing can be remembered, nobody is known.
      const known = await meet(way.gateway!, signer!).catch(() => "");
      return known === signer ? undefined : known ? "changed" : "unproven";
    },
  };
}
