// A way over HTTP: XHR, since only that reports what the socket has taken. One constant URL for an upload, so that one preflight serves it.

import type { Way as Name } from "./types.ts";
import { cleanCode, ownUrl } from "./way.ts";
import type { Answer, Parcel, Way } from "./way.ts";

/** So long may nothing move before a request is given up. */
const STILL_MS = 30_000;
/** Requests at once: while one is synced at the other side, the next one travels, and one more is ready. */
const PARALLEL = 3;
/** The most that an answer may weigh. */
const ANSWER_MAX = 65_536;

function request(
  method: string, url: string, headers: Record<string, string>, body: Blob | null, onsent: (bytes: number) => void, signal: AbortSignal,
): Promise<Answer> {
  return new Promise((resolve) => {
    const xhr = new XMLHttpRequest();
    const abort = () => xhr.abort();
    let still = false;
    let clock: ReturnType<typeof setTimeout>;
    const alive = () => {
      clearTimeout(clock);
      clock = setTimeout(() => {
        still = true;
        abort();
      }, STILL_MS);
    };
    xhr.upload.onprogress = ({ loaded }) => {
      alive();
      onsent(loaded);
    };
    xhr.upload.onload = alive;
    xhr.onprogress = ({ loaded }) => loaded > ANSWER_MAX && abort();
    xhr.onloadend = () => {
      clearTimeout(clock);
      signal.removeEventListener("abort", abort);
      resolve({ ...answer(xhr, url, method === "HEAD"), still });
    };
    xhr.open(method, url);
    for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
    signal.addEventListener("abort", abort);
    alive();
    xhr.send(body);
    if (signal.aborted) abort();
  });
}

/** `bare`: the answer has no document. */
function answer(xhr: XMLHttpRequest, url: string, bare: boolean): Answer {
  const { status } = xhr;
  if (!status) return { status };
  let said: { code?: unknown; id?: unknown } = {};
  try {
    said = Object(JSON.parse(xhr.responseText));
  } catch {}
  const header = (name: string) => xhr.getResponseHeader(name);
  const seconds = Number(header("retry-after") ?? NaN);
  const id = header("hoop-upload-id");
  return {
    status, code: cleanCode(said.code), id: bare || said.id === id ? id : undefined, state: header("hoop-state"), missing: header("hoop-missing"), total: header("hoop-total"), receipt: header("hoop-receipt"),
    retryAfter: seconds >= 0 ? seconds : undefined, monitor: ownUrl(header("location") ?? undefined, new URL(url).origin),
  };
}

/** Whether a gateway's preflight lets permits through, of those gateways where that has shown. */
const takesPermits = new Map<string, boolean>();

/** Ranges of `parcel` by `PUT {url}`. `token`: T, for the service itself. */
export function overHttp(name: Name, url: string, parcel: Parcel, gateway = "", token?: string): Way {
  const { total, prelude, permit } = parcel;
  const headers: Record<string, string> = { "Hoop-Version": "1", ...(token && { "Hoop-Token": token }) };

  async function put(first: number, last: number, blob: Blob, onsent: (bytes: number) => void, signal: AbortSignal): Promise<Answer> {
    const fields = { ...headers, "Content-Type": "application/octet-stream", "Content-Range": `bytes ${first}-${last}/${total}`, "Hoop-Prelude": prelude };
    let moved = false;
    const sent = (bytes: number) => {
      moved = true;
      onsent(bytes);
    };
    if (gateway && permit && takesPermits.get(gateway) !== false) {
      const answer = await request("PUT", url, { ...fields, "Hoop-Permit": permit }, blob, sent, signal);
      if (answer.status) takesPermits.set(gateway, true);
      if (takesPermits.has(gateway) || moved || answer.still || signal.aborted) return answer;
    }
    // A gateway that is older than permits lets no page send one, which looks like one that is away; and it asks for none.
    const answer = await request("PUT", url, fields, blob, onsent, signal);
    if (!gateway || !permit || !answer.status) return answer;
    // One that asks for a permit was away for a moment, and gets it next.
    const knows = !!answer.code?.startsWith("permit-");
    takesPermits.set(gateway, knows);
    return knows ? { status: 0 } : answer;
  }

  return { name, gateway, parallel: PARALLEL, put, look: (signal) => request("HEAD", url, headers, null, () => {}, signal), close() {} };
}
