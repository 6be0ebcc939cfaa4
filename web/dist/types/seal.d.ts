export type Suite = "aes256gcm" | "aes128gcm";
/** Where the records of a sealed body lie, cut into segments of whole records. All numbers are bytes of Z, unless they say otherwise. */
export interface Layout {
    /** The prelude's length: where record 0 begins. */
    start: number;
    /** The record size. */
    rs: number;
    /** The length of Z. */
    total: number;
    /** Records in a segment, except that the last may have fewer. */
    per: number;
    /** How many segments there are. */
    segments: number;
}
/** The layout of `plain` bytes of plaintext behind a prelude of `start` bytes. */
export declare function layout(plain: number, start: number, rs: number, per: number): Layout;
/** The first and last byte of a segment. */
export declare function span({ start, rs, total, per }: Layout, segment: number): [number, number];
export declare function prelude(salt: Uint8Array, rs: number, ticket: Uint8Array): Uint8Array<ArrayBuffer>;
/** Some records, sealed. */
export interface Sealed {
    blob: Blob;
    /** SHA-256 over the records' tags, base64url. A tag depends on all of its record's plaintext, so two plaintexts have two prints. */
    print: string;
}
export interface Sealer {
    layout: Layout;
    prelude: string;
    /** Seals a segment, many of its records in flight, while the next ones are read. One call at a time. Rejects with what
     *  reading rejects with, or with a RangeError if the source is shorter than it was. */
    seal(segment: number): Promise<Sealed>;
}
/** Seals `plain` under K. Bound: two batches' plaintext, a segment's records, and the Blob that they become are in memory at once, and what the
 *  engine has not collected yet. Nothing is detached to free it sooner: that hides it from the collector, and it stays all the longer. */
export declare function sealer(plain: Blob, key: Uint8Array<ArrayBuffer>, suite: Suite, salt: Uint8Array<ArrayBuffer>, rs: number, ticket: Uint8Array, per: number): Promise<Sealer>;
/** Seals whole records, all in flight. `bytes`: their plaintext and one byte more, which keeps its value; `isEnd`: the last of them is the
 *  body's last. Resolves to the records, and their tags one after another. */
export declare function sealRecords(bytes: Uint8Array<ArrayBuffer>, isEnd: boolean, key: CryptoKey, nonce: (slot: number) => Uint8Array<ArrayBuffer>, rs: number): Promise<{
    records: ArrayBuffer[];
    tags: Uint8Array<ArrayBuffer>;
}>;
/** The application's answer, opened with K: bytes of an HTTP response. Rejects if it does not open. */
export declare function openAnswer(answer: string, key: Uint8Array<ArrayBuffer>, id: string): Promise<Uint8Array<ArrayBuffer>>;
/** Statuses that have no body (Fetch, "null body status"), of final answers. */
export declare const BODILESS: number[];
/** The answer as a Response, and what the service took it to mean. Undefined if it is no HTTP response. */
export declare function response(bytes: Uint8Array<ArrayBuffer>): {
    response: Response;
    state: string | null;
} | undefined;
