// From the page to the gateway, where the browser lets it (Local Network Access).

import { KNOWN_WAIT_MS } from "./belief.ts";
import { overHttp } from "./http.ts";
import { calledOf } from "./way.ts";
import type { Parcel, Way } from "./way.ts";

/** `granted`, `prompt`, `denied` as the Permissions API has it; `unsupported`: this browser never lets an https page talk to an http gateway. */
export type Permission = PermissionState | "unsupported";

/** How long a gateway may take to answer, at all its addresses' spaces together. */
const PROBE_MS = KNOWN_WAIT_MS;
/** How often it is looked whether the browser's question has been answered. */
const ASKED_MS = 50;
/** More than `/test` ever says. */
const TEST_MAX = 4096;

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\]|.*\.localhost)$/;

/** Whether this page may talk to the local network. Pages on loopback are part of it. */
export async function permission(): Promise<Permission> {
  if (LOOPBACK.test(location.hostname)) return location.protocol === "http:" || "targetAddressSpace" in Request.prototype ? "granted" : "unsupported";
  if (!("targetAddressSpace" in Request.prototype)) return "unsupported";
  // Chromium from 145 on, and before.
  for (const name of ["local-network", "local-network-access"]) {
    try {
      return (await navigator.permissions.query({ name: name as PermissionName })).state;
    } catch {}
  }
  return "unsupported";
}

/** What answers at a gateway's address: `gateway`, or a code why it cannot be used. */
export type Probe = "gateway" | "no-gateway" | "not-hoop" | "spool-full";

/** What XHR reaches over plain HTTP from a page over HTTPS: names in `.local` and addresses. Any other would answer here, and take nothing. */
const REACHED = /\.local$|^[\d.]+$|^\[/;

/** Looks whether a gateway is there. */
export const probe = async (gateway: string, signal?: AbortSignal) => (await test(gateway, "", signal))[0];

/** Resolves when the browser asks its user no more. It tells of that by an event, but not always. */
export async function answered(signal?: AbortSignal): Promise<Permission> {
  for (;;) {
    signal?.throwIfAborted();
    const state = await permission();
    if (state !== "prompt") return state;
    await new Promise((resolve) => setTimeout(resolve, ASKED_MS));
  }
}

/** What is there, and as which of the names in `query` it answers. */
async function test(gateway: string, query: string, signal?: AbortSignal): Promise<[Probe, called?: unknown]> {
  const limit = new AbortController();
  const abort = () => limit.abort();
  // While the browser asks, its user may take any time.
  let clock: ReturnType<typeof setTimeout> | undefined;
  answered(limit.signal).then(() => (clock = setTimeout(abort, PROBE_MS)), () => {});
  signal?.addEventListener("abort", abort);
  const attempt = async (space: object): Promise<[Probe, called?: unknown]> => {
    try {
      signal?.throwIfAborted();
      const response = await fetch(`${gateway}/test${query}`, {
        ...space, headers: { "Hoop-Version": "1" }, credentials: "omit", cache: "no-store", redirect: "error", signal: limit.signal,
      });
      if (!(Number(response.headers.get("content-length") ?? 0) <= TEST_MAX)) return ["not-hoop"];
      if (response.status === 503) return ["spool-full"];
      const said = JSON.parse(await short(response)) as { hoop?: unknown; gateway?: unknown } | null;
      return response.ok && said?.hoop === "gateway" ? ["gateway", said.gateway] : ["not-hoop"];
    } catch (error) {
      signal?.throwIfAborted();
      return [error instanceof SyntaxError || error instanceof RangeError ? "not-hoop" : "no-gateway"];
    }
  };
  const { hostname, protocol } = new URL(gateway);
  try {
    const first: Awaited<ReturnType<typeof attempt>> = protocol === "https:" || REACHED.test(hostname) ? await attempt({ targetAddressSpace: "local" }) : ["no-gateway"];
    // Where page and gateway are on one machine, the space is another one, and naming the wrong one fails.
    return first[0] === "no-gateway" && !limit.signal.aborted ? await attempt({}) : first;
  } finally {
    clearTimeout(clock);
    signal?.removeEventListener("abort", abort);
    abort();
  }
}

/** The body, if it is no longer than `/test` ever is. */
async function short(response: Response): Promise<string> {
  let text = "";
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (let next; !(next = await reader.read()).done; ) {
    text += next.value;
    if (text.length > TEST_MAX) throw new RangeError("too long for a gateway");
  }
  return text;
}

export async function direct(gateway: string, parcel: Parcel): Promise<Way | Probe> {
  const { id, dest, gateways } = parcel;
  const way = overHttp("direct", `${gateway}/offload/${id}?dest=${encodeURIComponent(dest)}`, parcel, gateway);
  if (!gateways) return way;
  const [probe, said] = await test(gateway, `?gateways=${gateways.join()}`);
  way.called = calledOf(gateways, said);
  return probe === "gateway" ? way : probe;
}
