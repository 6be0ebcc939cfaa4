// Runs the built `hoop`: sealing and opening by RFC 8188 alone, from standard input to standard output.

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { toBase64url, toHex } from "./hoop.js";

const TARGET = process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL("../../../target", import.meta.url));
/** HOOP names another build, for measurements. */
export const HOOP = process.env.HOOP ?? `${TARGET}/debug/hoop`;

/** Runs the program; its output, or an error with what it complained of. */
async function run(parameters, input) {
  const child = spawn(HOOP, parameters, { stdio: ["pipe", "pipe", "pipe"] });
  const ended = new Promise((resolve, reject) => child.on("error", reject).on("close", resolve));
  // A program that refuses its input ends before it has read it all.
  child.stdin.on("error", () => {}).end(input);
  const [output, complaint, status] = await Promise.all([child.stdout.toArray(), child.stderr.toArray(), ended]);
  if (status !== 0) throw new Error(`exit status ${status}: ${Buffer.concat(complaint)}`);
  return new Uint8Array(Buffer.concat(output));
}

export function seal(plaintext, { suite, key, keyId, recordSize }) {
  const options = ["--key-id", toHex(keyId), "--record-size", String(recordSize)];
  return run(["seal", "--raw", "--suite", suite, `--key=${toBase64url(key)}`, ...options], plaintext);
}

export function open(sealed, { suite, key }) {
  return run(["open", "--raw", "--suite", suite, `--key=${toBase64url(key)}`], sealed);
}
