import type { Layout } from "./seal.ts";
/** A gateway names this many spans at most (docs/protocol.md §5); what lies behind the last of them is then not known. */
export declare const MAX_SPANS = 32;
/** First and last byte. */
export type Span = [first: number, last: number];
/** The spans of `Hoop-Missing`; undefined unless they are in order, apart, within Z and cut at record borders. */
export declare function parseMissing(text: string | null | undefined, { start, rs, total }: Layout): Span[] | undefined;
/** The least span that has all that both `spans` and `[first, last]` have; undefined for nothing. */
export declare function within(spans: Span[], [first, last]: Span): Span | undefined;
