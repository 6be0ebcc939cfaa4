import type { Offloadable, OffloadOptions, Receipt } from "./types.ts";
export { HoopError } from "./types.ts";
export type { HoopCode, Offloadable, OffloadOptions, Phase, Policy, Question, Receipt, Settings, State, Stranger, Way } from "./types.ts";
/** Hands an upload to a gateway, and shows a card meanwhile (`options.card`). Resolves when the page may go: the gateway or the
 *  service has all of it, or it went the ordinary way. Rejects with a `HoopError`. */
export declare function offload(input: Offloadable, options?: OffloadOptions): Promise<Receipt>;
