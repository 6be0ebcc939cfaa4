// Shows a State to a person. A shadow tree with a constructed style sheet and no markup from strings, so that neither a
// strict `style-src` nor Trusted Types stands in its way. It knows nothing of how uploads go.

import { CSS } from "./card-css.ts";
import { create, native } from "./native.ts";
import { language, mayHelp, size, texts, time, waiting, words } from "./texts.ts";
import type { Phase, Question, State } from "./types.ts";

export interface CardOptions {
  /** Ends the upload. Without it there is no such button. */
  cancel?(): void;
  /** Begins again after a failure. */
  again?(): void;
  /** Sends it the ordinary way after a failure, if nothing was begun: else it could arrive twice. */
  direct?(): void;
  /** The service's origin, if not the page's. */
  site?: string;
  /** Where the application's answer opens: a form's `target`. */
  target?: string;
}

const INTO_BOX = "M4 12.5V18a1.5 1.5 0 0 0 1.5 1.5h13A1.5 1.5 0 0 0 20 18v-5.5M12 4v10m-4-4 4 4 4-4";
const TICK = "m5 12.5 4.5 4.5L19 7.5";
/** What is drawn in the badge: strokes in a box of 24. */
const ICONS: Record<Phase, string> = {
  looking: "M12 18.5h.01M8.5 15a5 5 0 0 1 7 0M5.5 11.6a9.5 9.5 0 0 1 13 0",
  asking: INTO_BOX,
  handing: INTO_BOX,
  free: TICK,
  received: TICK,
  delivered: "m2.5 13 4 4L15 8m-3 9 .5.5L21.5 8",
  held: "M15 7.5a3 3 0 1 1-6 0 3 3 0 0 1 6 0ZM5.5 19.5c0-3.600 2.900-6 6.5-6s6.5 2.400 6.5 6",
  failed: "M12 6.5V13m0 4h.01",
  stopped: "M8.5 8.5h7v7h-7z",
  ordinary: "M12 19V5m-6 6 6-6 6 6",
};

/** How many of the three steps (on the box, at the site, accepted) are done; phases without steps are left out. */
const STEPS: Partial<Record<Phase, number>> = { handing: 0, free: 1, received: 2, held: 2, delivered: 3 };
/** What may be put away: nothing more is asked of the person. */
const PUT_AWAY: readonly Phase[] = ["free", "received", "delivered", "held", "failed", "stopped", "ordinary"];
/** A live region must have been there a moment before its text changes, or it is not read. */
const ANNOUNCE_AFTER_MS = 100;

let sheet: CSSStyleSheet | undefined;

export class Card {
  /** To be put into the page; a `<hoop-card>`, so that a page can style it. */
  readonly element = make("hoop-card");
  #options: CardOptions;
  #site: string;
  #root = make("section", { part: "card", role: "group", tabindex: "-1", "aria-labelledby": "title", "aria-describedby": "body" });
  #status = make("p", { role: "status" });
  #title = make("p", { id: "title", part: "title" });
  #body = make("p", { id: "body", part: "text" });
  #icon = draw("path");
  #bar = make("progress", { part: "progress", "aria-labelledby": "title" });
  #facts = make("p", { id: "facts", part: "text" });
  #actions = make("nav", { role: "none" });
  #steps = make("ol", { part: "steps" });
  #close = make("button", { class: "close", type: "button", part: "close" }, "×");
  #shown = "";
  #quarter = 0;
  #state?: State;
  /** Whether somebody else has, or had, all of it. */
  #safe = false;

  constructor(options: CardOptions = {}) {
    this.#options = options;
    this.#site = options.site ?? location.origin;
    const svg = draw("svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.ariaHidden = "true";
    svg.append(this.#icon);
    this.#root.append(svg, make("div", {}, this.#title, this.#body, this.#bar, this.#facts, this.#actions, this.#steps), this.#close);
    this.#root.onkeydown = ({ key }) => {
      if (key === "Escape" && this.#state?.question) this.#options.cancel?.();
    };
    this.#close.onclick = () => this.element.remove();
    // At nightfall many pages turn dark.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#root.classList.toggle("dark", darkPage(this.element)));
    const shadow = this.element.attachShadow({ mode: "open" });
    if (!sheet) (sheet = new CSSStyleSheet()).replaceSync(CSS);
    shadow.adoptedStyleSheets = [sheet];
    shadow.append(this.#root, this.#status);
  }

  /** Shows a state, whole. The element must be in the page for its language and colours to be known. */
  show(state: State): void {
    const root = this.#root;
    const { phase, question, sent, total, rate } = state;
    const speaks = this.element.closest("[lang]");
    const lang = language([speaks && native(speaks, "getAttribute")("lang"), ...navigator.languages]);
    const t = texts(lang);
    const [title, body] = words(t, state, new URL(this.#site).hostname);
    const moving = (phase === "handing" && !state.stranger) || (phase === "ordinary" && sent > 0 && sent < total);
    const share = total > 0 ? Math.min(1, sent / total) : 0;
    this.#state = state;
    this.#safe ||= phase === "free" || phase === "received";
    root.lang = lang;
    const go = phase === "free";
    const ok = go || phase === "received" || phase === "delivered";
    root.className = `${phase}${go ? " go" : ""}${ok ? " ok" : ""}${darkPage(this.element) ? " dark" : ""}`;

    this.#bar.hidden = this.#facts.hidden = !moving;
    if (moving) {
      this.#bar.value = share;
      const left = rate && sent < total ? [`${size(lang, rate)}/s`, t.left(time(lang, (total - sent) / rate))] : [];
      // A line breaks between facts, not within one.
      this.#facts.textContent = [t.of(size(lang, sent), size(lang, total)), ...left].map((fact) => fact.replaceAll(" ", "\u00a0")).join(" · ");
    }

    const shown = [lang, phase, question?.kind, question?.known, state.way, state.stranger, state.resumed, state.monitor, state.location, state.error?.code].join();
    const quarter = Math.floor(share * 4);
    if (shown === this.#shown) {
      if (moving && quarter > this.#quarter && quarter < 4) this.#announce(`${quarter * 25} %`);
      this.#quarter = quarter;
      return;
    }
    this.#shown = shown;
    this.#quarter = quarter;
    const hadFocus = root.matches(":focus-within");
    const said = state.resumed && phase === "handing" ? `${t.resumed} ${body}` : body;
    this.#title.textContent = title;
    this.#body.textContent = said;
    this.#icon.setAttribute("d", ICONS[phase]);
    this.#close.hidden = !PUT_AWAY.includes(phase);
    this.#close.ariaLabel = t.dismiss;
    this.#actions.replaceChildren(...this.#offers(state, t));
    this.#showSteps(state, t);
    if (question && (hadFocus || mayTakeFocus(this.element))) root.focus();
    else {
      if (hadFocus) root.focus();
      this.#announce(`${title}. ${said}`);
    }
  }

  #announce(text: string): void {
    setTimeout(() => (this.#status.textContent = text), ANNOUNCE_AFTER_MS);
  }

  /** The buttons and links of a state, the most important first. */
  #offers(state: State, t: ReturnType<typeof texts>): Node[] {
    const { phase, question, error } = state;
    const { cancel, again, direct, target } = this.#options;
    const mine = new URL("/hoop/uploads", this.#site).href;
    const uploads = state.listed === false ? [] : link(t.uploads, mine);
    switch (phase) {
      case "asking":
        if (!question) return [];
        return [
          ...answers(question, t),
          ...(cancel ? [button(t.cancel, cancel)] : []),
          ...(question.never ? link(t.settings, new URL("/hoop/settings", this.#site).href, "_blank") : []),
        ];
      case "looking":
      case "handing":
        return cancel ? [button(t.cancel, cancel)] : [];
      case "free":
      case "received":
        return [...(state.monitor ? link(t.monitor, state.monitor, "_blank") : []), ...uploads];
      case "delivered":
        return state.location ? link(t.location, state.location, target) : [];
      case "held":
        return link(waiting(error) === "session" ? t.signIn : t.finish, mine, "", true);
      case "failed": {
        // What was safe once is no longer the form's to send.
        const retry = mayHelp(error) && !this.#safe ? [again && button(t.again, again), direct && !state.id && button(t.decline, direct)] : [];
        return [...retry.filter((node) => !!node), ...(state.id ? uploads : []), make("code", {}, error?.code ?? "")];
      }
      default:
        return [];
    }
  }

  #showSteps(state: State, t: ReturnType<typeof texts>): void {
    const done = STEPS[state.phase] ?? -1;
    this.#steps.hidden = done < 0;
    const steps = t.steps.map((text, index) => (index < done ? make("li", { class: "done" }, `✓ ${text}`) : make("li", {}, text)));
    this.#steps.replaceChildren(...steps.slice(state.way === "service" ? 1 : 0));
  }
}

function make<Tag extends keyof HTMLElementTagNameMap>(tag: Tag, attributes?: Record<string, string>, ...children: (Node | string)[]): HTMLElementTagNameMap[Tag];
function make(tag: string, attributes?: Record<string, string>): HTMLElement;
function make(tag: string, attributes: Record<string, string> = {}, ...children: (Node | string)[]): HTMLElement {
  const element = native(document, "createElement")(tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]!);
  element.append(...children);
  return element;
}

const draw = (tag: string) => native(document, "createElementNS")("http://www.w3.org/2000/svg", tag);

function button(text: string, act: () => void, main = false): HTMLElement {
  const element = make("button", { type: "button", part: main ? "button primary" : "button", class: main ? "main" : "" }, text);
  element.onclick = act;
  return element;
}

/** The answers to a question, the likeliest first: where no gateway is known, there is likely none. */
function answers(question: Question, t: ReturnType<typeof texts>): HTMLElement[] {
  const answer = (kind: string, text: string, act: () => void, main = false) => Object.assign(button(text, act, main), { id: kind });
  const proceed = answer("proceed", t.proceed[question.kind], () => question.proceed(), question.known);
  const decline = answer("decline", t.decline, () => question.decline(), !question.known);
  const never = question.never && answer("never", t.never, () => question.never!());
  return [...(question.known ? [proceed, decline] : [decline, proceed]), ...(never ? [never] : [])];
}

/** Nothing for an address that is no web page: gateways and applications say what they like. */
function link(text: string, address: string, target = "", main = false): HTMLElement[] {
  if (!/^https?:/.test(address)) return [];
  return [make("a", { href: address, target, rel: "noopener noreferrer", part: main ? "button primary" : "link", class: main ? "main" : "" }, text)];
}

/** Whether the text around is light, however the page came to that: a canvas turns every notation of colours into bytes. */
function darkPage(element: Element): boolean {
  const paint = Object.assign(create("canvas"), { width: 1, height: 1 }).getContext("2d");
  if (!paint) return matchMedia("(prefers-color-scheme: dark)").matches;
  paint.fillStyle = getComputedStyle(element).color;
  paint.fillRect(0, 0, 1, 1);
  const [red, green, blue] = paint.getImageData(0, 0, 1, 1).data;
  return 0.3 * red! + 0.6 * green! + 0.1 * blue! > 140;
}

/** A question does not take the focus from somebody who writes elsewhere in the page. */
function mayTakeFocus(card: Element): boolean {
  const active = native(document, "activeElement");
  if (!active || active === native(document, "body")) return true;
  const form = card.previousElementSibling;
  return (!!form && native(form, "contains")(active)) || !native(active, "matches")("input, textarea, select, [contenteditable], iframe");
}
