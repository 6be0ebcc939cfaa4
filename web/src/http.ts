// A way over HTTP: XHR, since only that reports what the socket has taken. One constant URL for an upload, so that one preflight serves it.

import { BODILESS } from "./seal.ts";
import { HoopError } from "./types.ts";
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
  method: string, url: string, headers: Record<string, string>, body: Blob | null, onsent: (octets: number) => void, signal: AbortSignal,
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
      resolve({ ...answer(xhr, url), still });
    };
    xhr.open(method, url);
    for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
    signal.addEventListener("abort", abort);
    alive();
    xhr.send(body);
    if (signal.aborted) abort();
  });
}

function answer(xhr: XMLHttpRequest, url: string): Answer {
  const { status } = xhr;
  if (!status) return { status };
  let code: string | undefined;
  if (status >= 400) {
    try {
      code = cleanCode(JSON.parse(xhr.responseText).code);
    } catch {}
  }
  const header = (name: string) => xhr.getResponseHeader(name);
  const seconds = Number(header("retry-after") ?? NaN);
  return {
    status, code, state: header("hoop-state"), missing: header("hoop-missing"), total: header("hoop-total"),
    retryAfter: seconds >= 0 ? seconds : undefined, monitor: ownUrl(header("location") ?? undefined, new URL(url).origin),
  };
}

/** What a page may not say itself. */
const FORBIDDEN = /^(origin|referer|user-agent|sec-.*)$/i;

/** The page's own request, as `fetch` would make it, but one that tells how far it has come. Rejects with `network` or `aborted`. */
export function send(
  method: string, url: string, headers: [string, string][], body: Blob, onsent: (octets: number) => void, signal: AbortSignal,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    const abort = () => xhr.abort();
    xhr.open(method, url);
    xhr.responseType = "blob";
    for (const [name, value] of headers) if (!FORBIDDEN.test(name)) xhr.setRequestHeader(name, value);
    xhr.upload.onprogress = ({ loaded }) => onsent(loaded);
    xhr.onloadend = () => {
      signal.removeEventListener("abort", abort);
      const { status, statusText } = xhr;
      if (!status) return reject(new HoopError(signal.aborted ? "aborted" : "network"));
      const lines = xhr.getAllResponseHeaders().split("\r\n").filter(Boolean);
      const said = lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)] as [string, string]);
      resolve(new Response(BODILESS.includes(status) ? null : xhr.response, { status, statusText, headers: said }));
    };
    signal.addEventListener("abort", abort);
    xhr.send(body);
    if (signal.aborted) abort();
  });
}

/** Ranges of `parcel` by `PUT {url}`. */
export function overHttp(name: Name, url: string, parcel: Parcel, gateway?: string): Way {
  const headers = { "Hoop-Version": "1" };
  const permit: Record<string, string> = gateway && parcel.permit ? { "Hoop-Permit": parcel.permit } : {};
  return {
    name, gateway, parallel: PARALLEL,
    put: (first, last, blob, onsent, signal) => request("PUT", url, {
      ...headers, ...permit, "Content-Type": "application/octet-stream", "Content-Range": `bytes ${first}-${last}/${parcel.total}`, "Hoop-Prelude": parcel.prelude,
    }, blob, onsent, signal),
    look: (signal) => request("HEAD", url, headers, null, () => {}, signal),
    close() {},
  };
}
