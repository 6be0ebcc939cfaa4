/** The part of a page that changes (`Live` in crates/gateway/src/web/monitor/html.rs). */
interface Live {
    title: string;
    said: string;
    html: string;
}
/** How long to wait before a refused or broken stream is asked for again, in milliseconds. */
declare const AGAIN_MS = 5000;
declare const main: HTMLElement;
declare const said: HTMLElement;
/** Makes `old` like `fresh`, keeping the elements that are in both: so that what is focused, open or moving stays so. */
declare function become(old: Element, fresh: Element): void;
/** The same times, as this device writes them, for whoever points at them. */
declare function writeTimes(): void;
declare function show({ title, said: words, html }: Live): void;
/** A live region speaks when its text changes, and only then. */
declare function say(words: string): void;
declare function setGone(gone: boolean): void;
/** Without a stream (there are only so many), the page is loaded as one without script would be. */
declare function load(): Promise<void>;
declare function follow(events: string): void;
/** Whether the gateway is out of reach, and not only the stream at its end. */
declare function lookIfGone(source: EventSource): void;
/** The buttons beside the link. The clipboard's own interface is not there on a page without TLS. */
declare function link(): void;
