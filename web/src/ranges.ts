// What is missing of an upload, as a stranger tells it.

import type { Layout } from "./seal.ts";

/** A gateway names this many spans at most (docs/protocol.md §5); what lies behind the last of them is then not known. */
export const MAX_SPANS = 32;
/** Two numbers of up to 16 digits, a hyphen and a comma for each span. */
const MAX_LENGTH = MAX_SPANS * 35;

/** First and last byte. */
export type Span = [first: number, last: number];

/** The spans of `Hoop-Missing`; undefined unless they are in order, apart, within Z and cut at record borders. */
export function parseMissing(text: string | null | undefined, { start, rs, total }: Layout): Span[] | undefined {
  if (text == null || text.length > MAX_LENGTH) return undefined;
  if (text === "") return [];
  const spans: Span[] = [];
  let least = 0;
  for (const part of text.split(",")) {
    const match = /^ ?(\d{1,16})-(\d{1,16})$/.exec(part);
    if (!match) return undefined;
    const [first, last] = [Number(match[1]), Number(match[2])];
    const begins = first === 0 || (first >= start && (first - start) % rs === 0);
    const ends = last === total - 1 || (last >= start && (last + 1 - start) % rs === 0);
    if (!begins || !ends || first < least || last < first || last >= total || spans.length === MAX_SPANS) return undefined;
    // Spans that touch would be one.
    least = last + 2;
    spans.push([first, last]);
  }
  return spans;
}

/** The least span that has all that both `spans` and `[first, last]` have; undefined for nothing. */
export function within(spans: Span[], [first, last]: Span): Span | undefined {
  const hit = spans.filter((span) => span[0] <= last && span[1] >= first);
  if (!hit.length) return undefined;
  return [Math.max(first, hit[0]![0]), Math.min(last, hit.at(-1)![1])];
}
