/** Who is known at a gateway's origin: `name`, if nobody was met there before. Rejects where nothing can be kept. */
export declare function meet(gateway: string, name: string): Promise<string>;
/** From now on whoever is met first is the one that is known. */
export declare function forgetKnown(): void;
