import type { CardOptions } from "./card.ts";
import type { OffloadOptions, State } from "./types.ts";
/** The options with a card that is put into the page by `place`. Its Cancel button and `options.signal` both end the upload. */
export declare function present<Options extends OffloadOptions>(options: Options, place: (card: Element) => void, buttons?: Omit<CardOptions, "cancel">): Options;
/** Notices what the page's policy blocks, from now on. */
export declare function watchPolicy(): void;
/** Has the console told why, when the straight way to a gateway was not to be had. */
export declare function watch({ gateways }: OffloadOptions, { phase, question, error }: State): void;
/** Resolves when the console has been told, or after `ms`: a page that is left says nothing any more. */
export declare const told: (ms: number) => Promise<void | undefined>;
