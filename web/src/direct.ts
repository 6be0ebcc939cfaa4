// From the page to the gateway, where the browser lets it (Local Network Access).

import { overHttp } from "./http.ts";
import { calledOf } from "./way.ts";
import type { Parcel, Way } from "./way.ts";

/** `granted`, `prompt`, `denied` as the Permissions API has it; `unsupported`: this browser never lets an https page talk to an http gateway. */
export type Permission = PermissionState | "unsupported";

/** How long a gateway may take to answer once no question of the browser is in the way. */
const PROBE_MS = 2500;
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

/** Looks whether a gateway is there. `asked`: the browser may be asking its user, who may take any time. */
export const probe = async (gateway: string, asked: boolean, signal?: AbortSignal) => (await test(gateway, asked, "", signal))[0];

/** What is there, and as which of the names in `query` it answers. */
async function test(gateway: string, asked: boolean, query: string, signal?: AbortSignal): Promise<[Probe, called?: unknown]> {
  const attempt = async (space: object): Promise<[Probe, called?: unknown]> => {
    const limit = new AbortController();
    const abort = () => limit.abort();
    const clock = asked ? undefined : setTimeout(abort, PROBE_MS);
    signal?.addEventListener("abort", abort);
    try {
      signal?.throwIfAborted();
      const response = await fetch(`${gateway}/test${query}`, {
        ...space, headers: { "Hoop-Version": "1" }, credentials: "omit", cache: "no-store", redirect: "error", signal: limit.signal,
      });
      setTimeout(abort, PROBE_MS);
      if (!(Number(response.headers.get("content-length") ?? 0) <= TEST_MAX)) return ["not-hoop"];
      if (response.status === 503) return ["spool-full"];
      const said = JSON.parse(await short(response)) as { hoop?: unknown; gateway?: unknown } | null;
      return response.ok && said?.hoop === "gateway" ? ["gateway", said.gateway] : ["not-hoop"];
    } catch (error) {
      signal?.throwIfAborted();
      return [error instanceof SyntaxError || error instanceof RangeError ? "not-hoop" : "no-gateway"];
    } finally {
      clearTimeout(clock);
      signal?.removeEventListener("abort", abort);
      abort();
    }
  };
  const { hostname, protocol } = new URL(gateway);
  const first: Awaited<ReturnType<typeof attempt>> = protocol === "https:" || REACHED.test(hostname) ? await attempt({ targetAddressSpace: "local" }) : ["no-gateway"];
  // Where page and gateway are on one machine, the space is another one, and naming the wrong one fails.
  return first[0] === "no-gateway" ? attempt({}) : first;
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
  const [probe, said] = await test(gateway, false, `?gateways=${gateways.join()}`);
  way.called = calledOf(gateways, said);
  return probe === "gateway" ? way : probe;
}
