// What a form or a program uploads, as the HTTP request that the browser would have sent (RFC 7578; HTML, "Multipart form data";
// RFC 9112): a head, and a body laid out by us, so that its length is known, files are read piece by piece, and it can be laid
// out again after a reload.

import { native } from "./native.ts";
import { base64url, utf8 } from "./bytes.ts";
import { HoopError } from "./types.ts";
import type { Offloadable } from "./types.ts";

/** Text as it stands, or a file. */
export type Part = string | Blob;

export interface Message {
  method: string;
  url: URL;
  /** Field names as they are sent. */
  fields: [string, string][];
  parts: Part[];
  files: File[];
  /** What the program sets as `Authorization`: goes into the token, not into the seal. */
  authorization?: string;
  /** Says which upload this is to a page that was reloaded: the same form with the same text and files. */
  key: string;
  /** Whether the browser may keep it, to resume it later. False if it holds a password. Also false for a body without a file name, since it could be
   *  mistaken for any other body of the same size. */
  keepable: boolean;
  /** The form's `caption` or `title`, if it has one. */
  caption?: string;
}

const METHODS = ["POST", "PUT", "PATCH"];
/** Fields that are the browser's to say, or the transport's. */
const NOT_OURS = /^(accept-(charset|encoding)|authorization|connection|content-length|cookie2?|date|expect|hoop-.*|host|keep-alive|origin|referer|te|trailer|transfer-encoding|upgrade|user-agent|via|sec-.*|proxy-.*)$/i;
/** What browsers accept for a page. */
const ACCEPT_PAGE = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

const crlf = (text: string) => text.replace(/\r\n?|\n/g, "\r\n");
const quoted = (text: string) => text.replace(/\n/g, "%0A").replace(/\r/g, "%0D").replace(/"/g, "%22");

export function boundary(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `----WebKitFormBoundary${base64url(bytes).replace(/[_-]/g, "A")}`;
}

/** The body that browsers make of a form's entries. */
export function multipart(entries: Iterable<[string, FormDataEntryValue]>, border: string): Part[] {
  const parts: Part[] = [];
  let text = "";
  for (const [name, value] of entries) {
    text += `--${border}\r\nContent-Disposition: form-data; name="${quoted(crlf(name))}"`;
    if (typeof value === "string") text += `\r\n\r\n${crlf(value)}\r\n`;
    else {
      text += `; filename="${quoted(value.webkitRelativePath || value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}\r\n\r\n`;
      parts.push(text, value);
      text = "\r\n";
    }
  }
  parts.push(`${text}--${border}--\r\n`);
  return parts;
}

const isForm = (input: unknown): input is HTMLFormElement => typeof HTMLFormElement !== "undefined" && input instanceof HTMLFormElement;
const isFile = (value: unknown): value is File => typeof value !== "string" && !!value;

/** What a file is known by after a reload. */
export const identity = (blob: Blob) => {
  const { name, lastModified, webkitRelativePath } = blob as File;
  return [webkitRelativePath || name || "", name ? lastModified : 0, blob.size, blob.type] as const;
};

function fromForm(form: HTMLFormElement, submitter: HTMLElement | null | undefined, entries: FormData): { url: string; method: string; type?: string; parts: Part[]; entries: FormData } {
  const attribute = (name: string) => submitter?.getAttribute(`form${name}`) ?? native(form, "getAttribute")(name) ?? "";
  if (native(document, "characterSet") !== "UTF-8" || /^(?!utf-?8$)./i.test((native(form, "getAttribute")("accept-charset") ?? "").trim()))
    throw new HoopError("not-offloadable");
  const enctype = attribute("enctype").toLowerCase();
  const base = { url: attribute("action") || location.href, method: attribute("method") || "GET", entries };
  if (enctype === "multipart/form-data") return { ...base, ...fromEntries(entries) };
  const pairs = [...entries].map(([name, value]) => [crlf(name), crlf(isFile(value) ? value.name : value)]);
  if (enctype === "text/plain") return { ...base, type: enctype, parts: [pairs.map(([name, value]) => `${name}=${value}\r\n`).join("")] };
  return { ...base, type: "application/x-www-form-urlencoded", parts: [String(new URLSearchParams(pairs))] };
}

function fromEntries(entries: FormData): { type: string; parts: Part[] } {
  const border = boundary();
  return { type: `multipart/form-data; boundary=${border}`, parts: multipart(entries, border) };
}

/** Reads what is to be uploaded; of a form, the entries that were `captured`, else those that it has now. Throws `not-offloadable` for what is no upload to this page's own origin. */
export async function message(input: Offloadable, submitter?: HTMLElement | null, captured?: FormData): Promise<Message> {
  let url: string | URL, method: string | undefined, type: string | undefined, parts: Part[], entries: FormData | undefined;
  let headers = new Headers();
  if (isForm(input)) {
    ({ url, method, type, parts, entries } = fromForm(input, submitter, captured ?? new FormData(input, submitter)));
  } else if (input instanceof Request) {
    ({ url, method, headers } = input);
    parts = [await input.blob()];
  } else {
    const { body } = input;
    ({ url, method = "POST" } = input);
    headers = new Headers(input.headers);
    parts = [body as Part];
    if (body instanceof FormData) {
      ({ type, parts } = fromEntries(body));
      entries = body;
      // Only we know the boundary.
      headers.delete("content-type");
    } else if (body instanceof URLSearchParams) {
      [type, parts] = ["application/x-www-form-urlencoded;charset=UTF-8", [String(body)]];
    } else type = typeof body === "string" ? "text/plain;charset=UTF-8" : body.type;
  }
  const target = new URL(url, native(document, "baseURI"));
  target.hash = "";
  method = method.toUpperCase();
  if (target.origin !== location.origin || !METHODS.includes(method))
    throw new HoopError("not-offloadable");

  const form = isForm(input);
  type = headers.get("content-type") ?? type;
  const fields: [string, string][] = [
    ["Accept", headers.get("accept") ?? (form ? ACCEPT_PAGE : "*/*")],
    ["Accept-Language", headers.get("accept-language") ?? languages(navigator.languages)],
    ["Origin", location.origin],
    ["Referer", location.href.replace(/#.*/s, "")],
    ["Sec-Fetch-Dest", form ? "document" : "empty"],
    ["Sec-Fetch-Mode", form ? "navigate" : "cors"],
    ["Sec-Fetch-Site", "same-origin"],
    ["User-Agent", navigator.userAgent],
  ];
  if (type) fields.push(["Content-Type", type]);
  headers.forEach((value, name) => {
    if (!NOT_OURS.test(name) && !/^(accept|accept-language|content-type)$/.test(name)) fields.push([name, value]);
  });
  const pairs = [...(entries ?? [])];
  const caption = pairs.find(([name, value]) => /^(caption|title)$/i.test(name) && value && !isFile(value))?.[1];
  return {
    method, url: target, fields, parts, files: pairs.map(([, value]) => value).filter(isFile).filter((file) => file.name || file.size),
    keepable: form ? !controls(input).some((control) => control.type === "password" && control.value) : !!entries || parts.every((part) => !isFile(part) || part.name),
    authorization: headers.get("authorization") ?? undefined, caption: caption as string | undefined,
    key: JSON.stringify([method, target.href, ...(entries ? signs(pairs, form ? input : undefined) : parts.map(sign))]),
  };
}

const sign = (value: Part) => (isFile(value) ? identity(value) : value);

/** Hidden fields that frameworks fill anew in every page. Any other that changes makes it another upload, which is the safe mistake. */
const ANEW = /csrf|xsrf|token|nonce|viewstate|eventvalidation|form_build_id/i;

/** What tells two uploads of a form apart: all of it, but for tokens. */
function signs(pairs: [string, FormDataEntryValue][], form?: HTMLFormElement): unknown[] {
  const seen = new Set(form && controls(form).filter(({ type }) => type !== "hidden").map(({ name }) => name));
  const isToken = (name: string) => form && ANEW.test(name) && !seen.has(name);
  return pairs.filter(([name, value]) => isFile(value) || !isToken(name)).map(([name, value]) => [name, sign(value)]);
}

const controls = (form: HTMLFormElement) => [...native(form, "elements")] as HTMLInputElement[];

/** As browsers do: the first language without a weight, each other with a tenth less. */
function languages(tags: readonly string[]): string {
  return tags.slice(0, 9).map((tag, index) => (index ? `${tag};q=${(1 - index / 10).toFixed(1)}` : tag)).join(",");
}

/** The request's head with the token T (base64url): `T‖D` without D. Throws `head-invalid` if it would not fit record 0. */
export function head({ method, url, fields, parts }: Message, token: string): string {
  const length = new Blob(parts).size;
  const lines = [
    `${method} ${url.pathname}${url.search} HTTP/1.1`, `Host: ${url.host}`, ...fields.map(([name, value]) => `${name}: ${value}`),
    `Content-Length: ${length}`, `Hoop-Token: ${token}`,
  ];
  const text = `${lines.join("\r\n")}\r\n\r\n`;
  if (lines.length > 101 || utf8(text).length > 60_000) throw new HoopError("head-invalid");
  return text;
}
