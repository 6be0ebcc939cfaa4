import type { Box, Memory } from "./belief.ts";
export declare function remembered(): Memory;
/** A gateway has answered, or has not. */
export declare const learned: (gateway: string, what: keyof Box) => void;
/** Whether the visitor wants to be asked. */
export declare const quieten: (quiet: boolean) => void;
