// My uploads and settings at a service, on top of pages that are whole without this: rows change where they stand, and buttons
// act without leaving. Every word comes from the server: what is more than progress is drawn there, and taken over from it.

import { forgetKnown } from "./known.ts";
import { quieten } from "./memory.ts";

/** What of an event's status is looked at here (docs/protocol.md §8). */
interface Status {
  id: string;
  state: string;
  total: number;
  received: number;
  paused?: boolean;
  reason?: { code: string } | null;
  next_attempt?: number | null;
  files?: unknown[] | null;
  caption?: string | null;
  path?: string | null;
  monitor?: string | null;
  kept_until?: number | null;
}

/** The least time between two looks at the page: states come in bursts when a gateway delivers. */
const LOOK_MS = 500;
/** How often the words for times are made true again. */
const TIMES_MS = 10_000;
/** How long a broken connection may take to come back before the user is told. */
const OFFLINE_MS = 4_000;
/** Of what changed at once, so many are said; more would be read aloud for minutes. */
const SAID_MAX = 3;

const ENDED = new Set(["accepted", "rejected", "unknown", "stopped", "expired"]);

/** What a row shows besides progress: the same as `Entry::key` of the service. */
function keyOf(status: Status): string {
  const paused = status.paused && ["announced", "receiving", "received"].includes(status.state);
  const noted = [status.caption, status.path, status.monitor].map((member) => (member == null ? 0 : 1)).join("");
  return [status.state, paused ? 1 : 0, status.reason?.code ?? "", status.next_attempt ?? "", status.files?.length ?? 0, noted, status.kept_until ? 1 : 0].join("|");
}

function size(bytes: number, units: string[], decimal: string): string {
  const tenths = (unit: number) => Math.round(bytes / (unit / 10)).toString().padStart(2, "0").replace(/(.)$/, `${decimal}$1`);
  if (bytes < 1e3) return `${bytes}\u00a0${units[0]}`;
  // What would round up to a thousand of one unit is one of the next, as the server writes it.
  if (bytes < 999_500) return `${Math.round(bytes / 1e3)}\u00a0${units[1]}`;
  const prefix = bytes < 999_950_000 ? 2 : bytes < 999_950_000_000 ? 3 : 4;
  return `${tenths(1000 ** prefix)}\u00a0${units[prefix]}`;
}

/** Times that the server wrote as of its own now. */
function tell(within: ParentNode = document): void {
  const format = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" });
  for (const time of within.querySelectorAll<HTMLTimeElement>("time[data-relative]")) {
    const at = Date.parse(time.dateTime);
    const passed = Math.round((at - Date.now()) / 1000);
    // What is due and has not come to pass is due now.
    const secs = time.dataset.relative === "due" ? Math.max(0, passed) : passed;
    const [unit, length] = ([["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1]] as const).find(([, length]) => Math.abs(secs) >= length)
      ?? (["second", 1] as const);
    const text = format.format(Math.trunc(secs / length), unit);
    if (time.textContent !== text) time.textContent = text;
    time.title ||= new Date(at).toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
  }
}

class Uploads {
  #source: EventSource | undefined;
  #looking = false;
  #lookAgain = false;
  #offline: number | undefined;
  #wasOffline = false;
  readonly #says = document.querySelector("[data-say]");
  readonly #live = document.querySelector<HTMLElement>("[data-live]");

  constructor(private root: HTMLElement) {
    document.addEventListener("submit", (event) => void this.#act(event));
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return this.#close();
      this.#open();
      void this.look();
    });
    // A page that the browser had put aside comes back as it was.
    addEventListener("pageshow", (event) => event.persisted && void this.look());
    if (!document.hidden) this.#open();
  }

  /** A hidden page listens to nothing: a service has room for few streams of one user. */
  #close(): void {
    this.#source?.close();
    this.#source = undefined;
    clearTimeout(this.#offline);
    this.#offline = undefined;
  }

  #open(): void {
    if (this.#source) return;
    const source = new EventSource("/hoop/uploads");
    this.#source = source;
    source.addEventListener("open", () => this.#online());
    source.addEventListener("uploads", (event) => {
      this.#online();
      const uploads = (JSON.parse(event.data) as { uploads: Status[] }).uploads;
      for (const status of uploads) this.#take(status);
      const shown = document.querySelectorAll("[data-id]").length;
      if (shown > uploads.length) void this.look();
    });
    source.addEventListener("upload", (event) => this.#take(JSON.parse(event.data) as Status));
    source.addEventListener("end", () => this.#close());
    source.addEventListener("error", () => {
      // Told only if it stays away; a stream ends every few minutes and begins anew.
      this.#offline ??= setTimeout(() => {
        const refused = source.readyState === EventSource.CLOSED;
        // Nobody is signed in, as the page says; whoever comes back from signing in elsewhere is looked for then.
        if (refused && document.querySelector("#sign-in")) return this.#close();
        this.#wasOffline = true;
        if (this.#live) this.#live.textContent = this.#live.dataset.offline ?? "";
        // Refused, so that the browser does not try again: too many streams, or signed out meanwhile, as the page will say.
        if (refused) {
          this.#close();
          setTimeout(() => document.hidden || this.#open(), OFFLINE_MS);
          void this.look();
        }
      }, OFFLINE_MS);
    });
  }

  #online(): void {
    clearTimeout(this.#offline);
    this.#offline = undefined;
    if (!this.#wasOffline) return;
    this.#wasOffline = false;
    if (this.#live) this.#live.textContent = "";
    this.#say([this.#live?.dataset.back ?? ""]);
    void this.look();
  }

  #take(status: Status): void {
    const row = document.getElementById(`u-${status.id}`);
    if (row?.dataset.key !== keyOf(status)) return void this.look();
    const bar = row.querySelector("progress");
    const amount = row.querySelector(".amount");
    if (!bar || !amount || ENDED.has(status.state)) return;
    const { units, decimal, progress } = this.root.dataset;
    const words = [status.received, status.total].map((bytes) => size(bytes, units?.split(" ") ?? [], decimal ?? "."));
    bar.max = Math.max(1, status.total);
    bar.value = Math.min(status.received, status.total);
    amount.textContent = (progress ?? "").replace(/\{([01])\}/g, (_, at: string) => words[Number(at)] ?? "");
  }

  /** Fetches the page and takes over what is different. One look at a time, and one more if something came meanwhile. */
  async look(): Promise<void> {
    this.#lookAgain = true;
    if (this.#looking) return;
    this.#looking = true;
    try {
      while (this.#lookAgain) {
        this.#lookAgain = false;
        const answer = await fetch("/hoop/uploads", { headers: { Accept: "text/html" }, cache: "no-store", signal: AbortSignal.timeout(30_000) });
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (answer.ok || page.querySelector("#sign-in")) this.#takeOver(page);
        await new Promise((done) => setTimeout(done, LOOK_MS));
      }
    } catch {
      // Offline: the stream tells, and looks again when it is back.
    } finally {
      this.#looking = false;
    }
  }

  #takeOver(page: Document): void {
    const fresh = page.querySelector<HTMLElement>("[data-uploads]");
    const signedIn = (document: Document) => !document.querySelector("#sign-in");
    if (!fresh || signedIn(page) !== signedIn(document)) return location.reload();
    const rows = [...fresh.querySelectorAll<HTMLElement>("[data-id]")];
    const list = this.root.querySelector("ol.uploads");
    const first = fresh.querySelector("ol.uploads");
    if (!list || !first) {
      if (list || rows.length > 0) {
        this.root.replaceWith(fresh);
        this.root = fresh;
        tell(fresh);
      }
      return;
    }
    const said: string[] = [];
    const kept = new Set(rows.map((row) => row.id));
    for (const row of this.root.querySelectorAll<HTMLElement>("[data-id]")) if (!kept.has(row.id)) row.remove();
    let before: Element | undefined;
    for (const row of rows) {
      const present = document.getElementById(row.id);
      if (!present) {
        // New ones stand on top; what is folded away elsewhere has been here before.
        if (row.parentElement !== first) continue;
        if (before?.parentElement === list) before.after(row);
        else list.prepend(row);
        said.push(sentence(row));
        before = row;
        continue;
      }
      before = present;
      if (present.dataset.key !== row.dataset.key) {
        if (label(present) !== label(row)) said.push(sentence(row));
        redraw(present, row);
      }
    }
    const [summary, next] = [this.root, fresh].map((part) => part.querySelector(".summary"));
    if (summary && next && summary.innerHTML !== next.innerHTML) summary.replaceChildren(...next.childNodes);
    tell(this.root);
    this.#say(said);
  }

  #say(sentences: string[]): void {
    if (this.#says && sentences.length > 0) this.#says.textContent = sentences.slice(0, SAID_MAX).join(" ");
  }

  async #act(event: SubmitEvent): Promise<void> {
    const form = event.target;
    const button = event.submitter;
    if (!(form instanceof HTMLFormElement) || !(button instanceof HTMLButtonElement) || button.name !== "action") return;
    event.preventDefault();
    // Not `disabled`, which would lose the focus.
    if (form.dataset.busy) return;
    const failure = form.querySelector(".failure");
    form.dataset.busy = "1";
    button.ariaBusy = button.ariaDisabled = "true";
    if (failure) failure.textContent = "";
    this.#say([this.root.dataset.working ?? ""]);
    try {
      const answer = await fetch(form.getAttribute("action") ?? "", {
        method: "POST",
        headers: { "Content-Type": "application/json", "Hoop-Version": "1", Accept: "application/json" },
        body: JSON.stringify({ action: button.value, risk: new FormData(form).get("risk") }),
        signal: AbortSignal.timeout(30_000),
      });
      // Signed out, moved on, gone: the server's own page explains each, and how it stands.
      if (answer.status === 401 || answer.status === 403 || answer.status === 404) {
        const plain = document.createElement("input");
        plain.type = "hidden";
        [plain.name, plain.value] = [button.name, button.value];
        form.append(plain);
        return form.submit();
      }
      if (!answer.ok && answer.status !== 409 && answer.status !== 410) throw new Error(`${answer.status}`);
      await this.look();
    } catch {
      if (failure) failure.textContent = this.root.dataset.failed ?? "";
    } finally {
      delete form.dataset.busy;
      button.ariaBusy = button.ariaDisabled = null;
    }
  }
}

function label(row: Element): string {
  return row.querySelector(".state")?.textContent ?? "";
}

function sentence(row: Element): string {
  return `${row.querySelector("h2")?.textContent ?? ""}: ${label(row)}.`;
}

/** Makes a row what it is now. Whoever stands in it stays: at the same button, at the one in its place, or at the name. */
function redraw(row: HTMLElement, fresh: HTMLElement): void {
  const focused = row.contains(document.activeElement) ? document.activeElement : null;
  const place = focused && [...row.querySelectorAll("button, summary, a")].indexOf(focused);
  const stop = row.querySelector(".stop");
  const open = [...row.querySelectorAll("details")].filter((details) => details.open).map((details) => details.className);
  row.className = fresh.className;
  row.dataset.key = fresh.dataset.key;
  row.replaceChildren(...fresh.childNodes);
  for (const details of row.querySelectorAll("details")) details.open = open.includes(details.className);
  if (!focused) return;
  const acted = focused instanceof HTMLButtonElement && !stop?.contains(focused) ? row.querySelector<HTMLElement>(".actions > button") : null;
  const same = row.querySelectorAll<HTMLElement>("button, summary, a")[place ?? -1];
  const target = acted ?? (same?.tagName === focused.tagName ? same : null) ?? row.querySelector<HTMLElement>("h2");
  target?.focus({ preventScroll: true });
}

/** Settings need no script; a form that was sent is not sent twice. */
function once(form: HTMLFormElement): void {
  form.addEventListener("submit", (event) => {
    if (form.dataset.busy) event.preventDefault();
    // The newer word: who had enough of questions may be asked again, and who has another box meets it anew.
    quieten(false);
    forgetKnown();
    form.dataset.busy = "1";
    const button = form.querySelector("button");
    if (button) button.ariaBusy = "true";
  });
  addEventListener("pageshow", () => {
    delete form.dataset.busy;
    const button = form.querySelector("button");
    if (button) button.ariaBusy = null;
  });
}

tell();
setInterval(() => document.hidden || tell(), TIMES_MS);
const uploads = document.querySelector<HTMLElement>("[data-uploads]");
if (uploads) new Uploads(uploads);
const settings = document.querySelector<HTMLFormElement>("form.settings");
if (settings) once(settings);
