// Upgrades forms: `submit` is heard at the window, after all of the application's own listeners, so forms that are added later need
// nothing, and what the application prevents stays prevented. Without a file to hand over nothing is touched.

import { create, native, select } from "./native.ts";
import { attributes, decide, DEFAULTS } from "./policy.ts";
import { present, told } from "./present.ts";
import { askAhead, forgetAhead } from "./service.ts";
import type { Offloadable, OffloadOptions, Policy, Receipt, Settings, State } from "./types.ts";

/** What the core takes from a form besides its options. */
export interface FormHooks {
  decide(files: File[], settings: Settings | undefined): Policy;
  ordinarySubmit(left: number): void;
  submitter: HTMLElement | null;
  entries: FormData;
}

export type Offload = (input: Offloadable, options: OffloadOptions & FormHooks) => Promise<Receipt>;

/** After an ordinary submission the page goes away. If it does not (204, a download, another target), the form is free again. */
const GONE_AFTER_MS = 5000;

/** Forms with an upload that is not yet safe, and its card; false: the browser itself is sending it, in this page's place. */
const busy = new WeakMap<HTMLFormElement, Element | null | false>();
/** The cards of a form's uploads before, and whether anything more comes of them. */
const earlier = new WeakMap<HTMLFormElement, { card: Element; over(): boolean }[]>();
/** Phases in which an upload is safe, and still on its way. */
const UNDER_WAY = ["free", "received", "held"];

/** Begins to upgrade the forms that `selector` names. */
export function startForms(selector: string, offload: Offload): void {
  const hear = (event: SubmitEvent) => {
    const form = event.target;
    if (event.defaultPrevented || !(form instanceof HTMLFormElement) || !native(form, "matches")(selector)) return;
    const card = busy.get(form);
    // If the user presses again, the browser drops its own request and sends a new one. Handing the form to a gateway now would deliver it twice.
    if (card === false) return;
    if (card !== undefined) {
      event.preventDefault();
      card?.scrollIntoView({ block: "nearest" });
      return;
    }
    const button = event.submitter;
    const entries = new FormData(form, button);
    if (!suits(form, button, entries)) return;
    event.preventDefault();
    void hand(form, button, entries, offload);
  };
  // Whoever chooses a file will send it: what the service has to say is here by then.
  addEventListener("change", ({ target }) => {
    if (!(target instanceof HTMLInputElement) || target.type !== "file" || !target.form || !native(target.form, "matches")(selector)) return;
    askAhead();
    import("./hoop-card.ts").catch(() => {});
  });
  native(document, "addEventListener")("visibilitychange", forgetAhead);
  // Each time anew, to be the last of the window's listeners.
  addEventListener("submit", () => {
    removeEventListener("submit", hear);
    addEventListener("submit", hear);
  }, true);
}

/** The value that a button has in its form's stead. */
function effective(form: HTMLFormElement, button: HTMLElement | null, name: string): string | null {
  return button?.getAttribute(`form${name}`) ?? attribute(form, name);
}

/** Whether this is what Hoop carries: a multipart POST in UTF-8 to this origin, with a file that is not empty. */
function suits(form: HTMLFormElement, button: HTMLElement | null, entries: FormData): boolean {
  const of = (name: string) => (effective(form, button, name) ?? "").trim();
  const charset = attribute(form, "accept-charset") || native(document, "characterSet");
  if (of("method").toLowerCase() !== "post" || of("enctype").toLowerCase() !== "multipart/form-data" || !/^utf-?8$/i.test(charset)) return false;
  const action = of("action") || location.href;
  const base = native(document, "baseURI");
  if (!URL.canParse(action, base) || new URL(action, base).origin !== location.origin) return false;
  return [...entries.values()].some((value) => value instanceof File && value.size > 0);
}

async function hand(form: HTMLFormElement, button: HTMLElement | null, entries: FormData, offload: Offload): Promise<void> {
  const said = attributes((name) => attribute(form, name));
  const gateways = attribute(form, "data-hoop-gateway")?.split(/\s+/).filter((url) => URL.canParse(url));
  const twin = copy(form, button, entries);
  const target = effective(form, button, "target") ?? "";
  const ordinarySubmit = async (left: number) => {
    await told(left);
    native(native(document, "documentElement"), "append")(twin);
    native(twin, "submit")();
    // Once the browser has read it; those who come back find the page as it was.
    await gone();
    native(twin, "remove")();
  };
  let phase = "";
  const cards = (earlier.get(form) ?? []).filter(({ card, over }) => card.isConnected && !(over() && (card.remove(), true)));
  earlier.set(form, cards);
  busy.set(form, null);
  let card: Element | undefined;
  const place = (made: Element) => {
    card = made;
    const where = find(attribute(form, "data-hoop-card"));
    if (where) native(where, "append")(card);
    else native(form, "after")(card);
    cards.push({ card, over: () => !UNDER_WAY.includes(phase) });
    // It is loaded when it is needed, and the upload may be over by then.
    if (busy.has(form)) busy.set(form, card);
  };
  const again = () => native(form, "requestSubmit")(button?.isConnected ? button : null);
  const direct = () => {
    cards.pop()?.card.remove();
    void ordinarySubmit(0);
  };
  const options = {
    gateways: gateways?.length ? gateways : undefined,
    decide: (files: File[], settings: Settings | undefined) => decide(settings ?? DEFAULTS, said, files),
    ordinarySubmit: (left: number) => void ordinarySubmit(left),
    submitter: button,
    entries,
    onstate: (state: State) => {
      phase = state.phase;
      native(form, "dispatchEvent")(new CustomEvent("hoop:state", { detail: state, bubbles: true }));
    },
  };
  try {
    const receipt = await offload(form, present(options, place, { again, direct, target }));
    if (receipt.way === "ordinary") {
      // Whoever comes back finds the form, and nothing that says it is being sent.
      addEventListener("pageshow", () => {
        card?.remove();
        busy.delete(form);
      }, { once: true });
      await gone();
      if (/^(_self|_parent|_top)?$/i.test(target) && busy.has(form)) return void busy.set(form, false);
    } else native(form, "reset")();
  } catch {
    // The card has told what came in the way; it makes room when the form is sent again.
  }
  busy.delete(form);
}

const attribute = (form: HTMLFormElement, name: string) => native(form, "getAttribute")(name);

function find(selector: string | null): Element | null {
  try {
    return selector ? (select(selector)[0] ?? null) : null;
  } catch {
    return null;
  }
}

/** What a form's submission goes by, besides its entries. */
const TRAITS = ["action", "method", "enctype", "target", "accept-charset", "rel"];

/** A form of the entries and traits that this one has now, to be sent by the browser later: the form may have changed by then, or gone. Its
 *  `submit()` runs no listeners. */
function copy(form: HTMLFormElement, button: HTMLElement | null, entries: FormData): HTMLFormElement {
  const twin = create("form");
  twin.hidden = true;
  for (const name of TRAITS) {
    const value = effective(form, button, name);
    if (value !== null) twin.setAttribute(name, value);
  }
  for (const [name, value] of entries) {
    const field = create("input");
    field.type = typeof value === "string" ? "hidden" : "file";
    field.name = name;
    if (typeof value === "string") field.value = value;
    else if (value.name || value.size) {
      const files = new DataTransfer();
      files.items.add(value);
      field.files = files.files;
    }
    native(twin, "append")(field);
  }
  return twin;
}

function gone(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, GONE_AFTER_MS);
    addEventListener("pageshow", () => resolve(), { once: true });
  });
}
