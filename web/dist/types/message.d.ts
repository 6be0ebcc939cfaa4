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
export declare function boundary(): string;
/** The body that browsers make of a form's entries. */
export declare function multipart(entries: Iterable<[string, FormDataEntryValue]>, border: string): Part[];
/** What a file is known by after a reload. */
export declare const identity: (blob: Blob) => readonly [string, number, number, string];
/** Reads what is to be uploaded; of a form, the entries that were `captured`, else those that it has now. Throws `not-offloadable` for what is no upload to this page's own origin. */
export declare function message(input: Offloadable, submitter?: HTMLElement | null, captured?: FormData): Promise<Message>;
/** The request's head with the token T (base64url): `T‖D` without D. Throws `head-invalid` if it would not fit record 0. */
export declare function head({ method, url, fields, parts }: Message, token: string): string;
