// Upgrades forms: `submit` is heard at the window, after the application's own listeners, so forms that are added later need
// nothing, and what the application prevents stays prevented. Without a file to hand over nothing is touched.

import { attributes, decide, DEFAULTS } from "./policy.ts";
import { present, told } from "./present.ts";
import type { Offloadable, OffloadOptions, Policy, Receipt, Settings, State } from "./types.ts";

/** What the core takes from a form besides its options. */
export interface FormHooks {
  decide(files: File[], settings: Settings | undefined): Policy;
  ordinarySubmit(): void;
  submitter: HTMLElement | null;
}

export type Offload = (input: Offloadable, options: OffloadOptions & FormHooks) => Promise<Receipt>;

/** After an ordinary submission the page goes away. If it does not (204, a download, another target), the form is free again. */
const GONE_AFTER_MS = 5000;

/** Forms with an upload that is not yet safe, and the card's place. */
const busy = new WeakMap<HTMLFormElement, Element | null>();
/** The cards of uploads that came to nothing. */
const stale = new WeakMap<HTMLFormElement, Element>();

/** Begins to upgrade the forms that `selector` names. */
export function startForms(selector: string, offload: Offload): void {
  addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || !(form instanceof HTMLFormElement) || !form.matches(selector)) return;
    if (busy.has(form)) {
      event.preventDefault();
      busy.get(form)?.scrollIntoView({ block: "nearest" });
      return;
    }
    const button = event.submitter;
    if (!suits(form, button)) return;
    event.preventDefault();
    void hand(form, button, offload);
  });
}

/** The value that a button has in its form's stead. Never the form's properties: a field named `action` hides them. */
function effective(form: HTMLFormElement, button: HTMLElement | null, name: string): string | null {
  return button?.getAttribute(`form${name}`) ?? form.getAttribute(name);
}

/** Whether this is what Hoop carries: a multipart POST in UTF-8 to this origin, with a file that is not empty. */
function suits(form: HTMLFormElement, button: HTMLElement | null): boolean {
  const of = (name: string) => (effective(form, button, name) ?? "").trim();
  const charset = form.getAttribute("accept-charset") || document.characterSet;
  if (of("method").toLowerCase() !== "post" || of("enctype").toLowerCase() !== "multipart/form-data" || !/^utf-?8$/i.test(charset)) return false;
  const action = of("action") || document.URL;
  if (!URL.canParse(action, document.baseURI) || new URL(action, document.baseURI).origin !== location.origin) return false;
  return [...new FormData(form, button).values()].some((value) => value instanceof File && value.size > 0);
}

async function hand(form: HTMLFormElement, button: HTMLElement | null, offload: Offload): Promise<void> {
  const said = attributes((name) => form.getAttribute(name));
  const gateways = form.getAttribute("data-hoop-gateway")?.split(/\s+/).filter((url) => URL.canParse(url));
  // What the button adds, kept as it was now: the application may disable it, or the form be changed.
  const added = submitterEntries(form, button);
  const target = effective(form, button, "target") ?? "";
  const ordinarySubmit = () => void told().then(() => submitNatively(form, button, added));
  stale.get(form)?.remove();
  busy.set(form, null);
  let card: Element | undefined;
  let failed = false;
  const place = (made: Element) => {
    card = made;
    const where = find(form.getAttribute("data-hoop-card"));
    if (where) where.append(card);
    else form.after(card);
    // It is loaded when it is needed, and the upload may be over by then.
    if (failed) stale.set(form, card);
    else if (busy.has(form)) busy.set(form, card);
  };
  const again = () => HTMLFormElement.prototype.requestSubmit.call(form, button?.isConnected ? button : null);
  const direct = () => {
    stale.get(form)?.remove();
    ordinarySubmit();
  };
  const options = {
    gateways: gateways?.length ? gateways : undefined,
    decide: (files: File[], settings: Settings | undefined) => decide(settings ?? DEFAULTS, said, files),
    ordinarySubmit,
    submitter: button,
    onstate: (state: State) => void form.dispatchEvent(new CustomEvent("hoop:state", { detail: state, bubbles: true })),
  };
  try {
    const receipt = await offload(form, present(options, place, { again, direct, target }));
    if (receipt.way === "ordinary") {
      // Whoever comes back finds the form, and nothing that says it is being sent.
      addEventListener("pageshow", () => card?.remove(), { once: true });
      await gone();
    } else HTMLFormElement.prototype.reset.call(form);
  } catch {
    // The card has told what came in the way; it makes room when the form is sent again.
    failed = true;
    if (card) stale.set(form, card);
  } finally {
    busy.delete(form);
  }
}

function find(selector: string | null): Element | null {
  try {
    return selector ? document.querySelector(selector) : null;
  } catch {
    return null;
  }
}

/** What the pressed button contributes: its name and value, or the coordinates of an image. */
function submitterEntries(form: HTMLFormElement, button: HTMLElement | null): [string, string][] {
  if (!button) return [];
  const name = button.getAttribute("name");
  const names = button.getAttribute("type") === "image" ? (name ? [`${name}.x`, `${name}.y`] : ["x", "y"]) : name ? [name] : [];
  const data = new FormData(form, button);
  return names.flatMap((name) => data.getAll(name).slice(-1).map((value): [string, string] => [name, String(value)]));
}

/** This very form, by the browser, as the button would have sent it, and only once. `submit()` runs no listeners again. */
function submitNatively(form: HTMLFormElement, button: HTMLElement | null, added: [string, string][]): void {
  const fields = added.map(([name, value]) => {
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = name;
    field.value = value;
    return field;
  });
  if (button && form.contains(button)) button.before(...fields);
  else form.append(...fields);
  const names = ["action", "method", "enctype", "target"];
  const before = names.map((name) => form.getAttribute(name));
  for (const name of names) setOrRemove(form, name, effective(form, button, name));
  HTMLFormElement.prototype.submit.call(form);
  // The browser has read the form; leave it as it was, for those who come back.
  names.forEach((name, index) => setOrRemove(form, name, before[index]!));
  for (const field of fields) field.remove();
}

function setOrRemove(element: Element, name: string, value: string | null): void {
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

function gone(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, GONE_AFTER_MS);
    addEventListener("pageshow", () => resolve(), { once: true });
  });
}
