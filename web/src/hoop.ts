// The library's entry: `<script type="module" src="/hoop/hoop.js" data-hoop>`, or `import { offload } from "hoop"`. See docs/browser.md.

import { startForms } from "./form.ts";
import { create, native, select } from "./native.ts";
import { able, offload as handOver } from "./offload.ts";
import { present, watch, watchPolicy } from "./present.ts";
import type { Offloadable, OffloadOptions, Receipt } from "./types.ts";

export { HoopError } from "./types.ts";
export type { HoopCode, Offloadable, OffloadOptions, Phase, Policy, Question, Receipt, Settings, State, Stranger, Way } from "./types.ts";

/** Hands an upload to a gateway, and shows a card meanwhile (`options.card`). Resolves when the page may go: the gateway or the
 *  service has all of it, or it went the ordinary way. Rejects with a `HoopError`. */
export function offload(input: Offloadable, options: OffloadOptions = {}): Promise<Receipt> {
  const { card, onstate } = options;
  if (card === false) {
    return handOver(input, { ...options, onstate(state) { watch(options, state); onstate?.(state); } });
  }
  return handOver(input, present(options, (element) => {
    native(card ?? corner(), "append")(element);
  }));
}

let shelf: HTMLElement | undefined;

/** Where cards without a place of their own stand, one above the other. */
function corner(): HTMLElement {
  if (shelf?.isConnected) return shelf;
  shelf = create("div");
  Object.assign(shelf.style, {
    position: "fixed", right: "1rem", bottom: "1rem", width: "calc(100vw - 2rem)", maxWidth: "26rem", maxHeight: "calc(100vh - 2rem)", overflowY: "auto", zIndex: "2147483000",
  });
  native(native(document, "body"), "append")(shelf);
  return shelf;
}

/** Forms are upgraded only where a script tag says so, and only where the browser can seal. */
function start(): void {
  const scripts = select<HTMLScriptElement>("script[data-hoop]");
  if (!scripts.length) return;
  if (!able() || !("adoptedStyleSheets" in Document.prototype)) {
    console.info("Hoop: this page has no WebCrypto (serve it over https), or the browser is too old. Forms work as they do without Hoop.");
    return;
  }
  const selectors = scripts.map((script) => script.dataset.hoop || "").filter((selector) => selector && valid(selector));
  watchPolicy();
  look(selectors);
  startForms(["form[data-hoop]", ...selectors].join(), handOver);
}

/** Tells the developer, in the console, which selectors match no form, and which marked forms stay as they are. Forms that are added later are not checked. */
function look(selectors: string[]): void {
  for (const selector of selectors) if (!select(selector).length) console.info(`Hoop: no form matches data-hoop="${selector}" so far.`);
  const marked = select(["form[data-hoop]", ...selectors].join());
  for (const form of marked) {
    const said = native(form, "getAttribute");
    const suits = /^post$/i.test(said("method") ?? "") && /^multipart/i.test(said("enctype") ?? "");
    if (!suits && form instanceof HTMLFormElement) console.warn("Hoop: this form stays as it is: it needs method=\"post\" and enctype=\"multipart/form-data\".", form);
  }
  if (!marked.length && !selectors.length) console.info("Hoop: no form is marked data-hoop so far.");
}

function valid(selector: string): boolean {
  try {
    native(document, "createDocumentFragment")().querySelector(selector);
    return true;
  } catch {
    console.error(`Hoop: data-hoop="${selector}" is not a CSS selector.`);
    return false;
  }
}

if (globalThis.document) start();
