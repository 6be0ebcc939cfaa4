// The ordinary way of a program: its own request, as `fetch` would make it.

import { BODILESS } from "./seal.ts";
import { HoopError } from "./types.ts";

/** What a page may not say itself. */
const FORBIDDEN = /^(origin|referer|user-agent|sec-.*)$/i;

/** The page's own request, as `fetch` would make it, but one that tells how far it has come. Rejects with `network` or `aborted`. */
export function send(
  method: string, url: string, headers: [string, string][], body: Blob, onsent: (bytes: number) => void, signal: AbortSignal,
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
