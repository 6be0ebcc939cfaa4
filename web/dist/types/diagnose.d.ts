/** What is known of the page. */
export interface Page {
    secure: boolean;
    framed: boolean;
    /** A response header, or null. */
    header(name: string): string | null;
    /** `<meta http-equiv=Content-Security-Policy>`. */
    metas: readonly string[];
    /** Addresses that `connect-src` has been seen to block. */
    blocked: readonly string[];
}
/** Looks at the page and says what it found; the second time, nothing. `blocked`: see `Page`. */
export declare function diagnose(gateways: readonly string[], blocked: readonly string[]): Promise<void>;
/** What stands in the way, each with its remedy. */
export declare function findings(page: Page, gateways: readonly string[]): string[];
