// A gateway's key, and what it signs (docs/protocol.md §9): for tests in which a gateway, true or false, is played.

import { createHash, createPrivateKey, createPublicKey, sign } from "node:crypto";

/** PKCS #8 around a seed of 32 bytes (RFC 8410 §7). */
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
const STATES = ["", "receiving", "stored", "delivering"];

/** The key that follows from a number. `receipt` is what such a gateway answers as `Hoop-Receipt`. */
export function gatewayKey(number) {
  const secret = createPrivateKey({ key: Buffer.concat([PKCS8, Buffer.alloc(32, number)]), format: "der", type: "pkcs8" });
  const open = createPublicKey(secret).export({ format: "der", type: "spki" }).subarray(-32);
  const name = createHash("sha256").update(open).digest().subarray(0, 16).toString("hex");
  function receipt({ id, state = "stored", missing = "", total, origin = "https://photos.example" }) {
    const numbers = Buffer.alloc(12);
    numbers.writeUInt32BE(1_795_000_042);
    numbers.writeBigUInt64BE(BigInt(total), 4);
    const body = Buffer.concat([Buffer.of(1), open, Buffer.from(id, "hex"), Buffer.of(STATES.indexOf(state)), numbers, Buffer.from(missing)]);
    const signature = sign(null, Buffer.concat([Buffer.from(`hoop-stored-v1\0${origin}\0`), body]), secret);
    return Buffer.concat([body, signature]).toString("base64url");
  }
  return { name, receipt };
}
