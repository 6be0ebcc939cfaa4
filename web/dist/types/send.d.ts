/** The page's own request, as `fetch` would make it, but one that tells how far it has come. Rejects with `network` or `aborted`. */
export declare function send(method: string, url: string, headers: [string, string][], body: Blob, onsent: (bytes: number) => void, signal: AbortSignal): Promise<Response>;
