export declare const utf8: (text: string) => Uint8Array<ArrayBuffer>;
/** RFC 4648 §5, without padding. */
export declare function base64url(bytes: Uint8Array): string;
/** Throws on anything but base64url. */
export declare function unbase64url(text: string): Uint8Array<ArrayBuffer>;
export declare function unhex(text: string): Uint8Array<ArrayBuffer>;
export declare function concat(...parts: Uint8Array[]): Uint8Array<ArrayBuffer>;
