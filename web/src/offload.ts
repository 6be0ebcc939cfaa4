// The conductor: which way an upload goes, and what its user is told. It decides nothing about bytes; upload.ts and handover.ts do.

import { belief, DELAY_MS, KNOWN_WAIT_MS } from "./belief.ts";
import type { Belief } from "./belief.ts";
import { answered, direct, permission, probe } from "./direct.ts";
import type { Probe } from "./direct.ts";
import type { News } from "./follow.ts";
import { drop, find } from "./keep.ts";
import type { Kept } from "./keep.ts";
import { learned, quieten, remembered } from "./memory.ts";
import { message as read } from "./message.ts";
import type { Message } from "./message.ts";
import { toService } from "./to-service.ts";
import { decide as decideBy, DEFAULTS } from "./policy.ts";
import { settings, status, stop, ticket, time } from "./service.ts";
import type { Ticket } from "./service.ts";
import { begin, resume } from "./upload.ts";
import type { Progress, Upload } from "./upload.ts";
import { HoopError } from "./types.ts";
import type { Offloadable, OffloadOptions, Policy, Question, Receipt, Settings, State, Stranger } from "./types.ts";
import type { Parcel, Way } from "./way.ts";

const GATEWAYS = ["http://hoop.local:4667"];
/** A rate is an average over so long. */
const RATE_MS = 5000;
/** A gateway that has gone is not waited for to hear what became of an upload. */
const LOOK_MS = 2500;

/** What form.ts, policy.ts and hoop.ts add. */
export interface Hooks {
  /** What is to be done with these files; default: `options.policy`, else the settings', else `ask`. */
  decide?(files: File[], settings: Settings | undefined): Policy;
  /** Sends the form as if there were no library, within `left` milliseconds. Default: the same request by `fetch`. */
  ordinarySubmit?(left: number): void;
  /** The button that was pressed. */
  submitter?: HTMLElement | null;
  /** The form's entries when it was pressed. */
  entries?: FormData;
}

/** A gateway that can be reached, to be told which upload comes. */
interface Opening {
  way(parcel: Parcel): Promise<Way | string>;
  /** Opens it once more, from within a click. */
  again(): Promise<Opening | string>;
  /** It is not needed after all. */
  close(): void;
}

/** States in which the service has all of an upload, and those in which one that was kept is over. */
const WHOLE = ["received", "replaying", "committing", "accepted", "held"];
const OVER = ["stopped", "expired", "rejected", "unknown"];
/** What has not come in time. */
const LATE = Symbol("late");
/** What a gateway that is only away for a while looks like. */
const AWAY = ["network", "no-gateway", "window-closed"];

const coded = (error: unknown) => (error instanceof HoopError ? error : new HoopError("internal", String((error as Error)?.message ?? error), { cause: error }));

/** Hands an upload over. Resolves when the page may go: the gateway or the service has all of it, or it went the ordinary way. */
export function offload(input: Offloadable, options: OffloadOptions & Hooks = {}): Promise<Receipt> {
  return new Conductor(options).run(input);
}

class Conductor {
  #options: OffloadOptions & Hooks;
  #signal: AbortSignal;
  #state: State = { phase: "looking", sent: 0, total: 0 };
  #samples: [at: number, sent: number][] = [];
  #message!: Message;
  #upload: Upload | undefined;
  #unlock = () => {};
  /** The gateway in use: closed when this comes to nothing. */
  #opening: Opening | undefined;
  /** When the user acted last. If no gateway is known, looking for one delays the ordinary way by at most DELAY_MS from this time on. */
  #acted = performance.now();
  /** Has the browser ask before the page is left: while something would be lost. */
  #guard = (event: Event) => event.preventDefault();

  constructor(options: OffloadOptions & Hooks) {
    this.#options = options;
    this.#signal = options.signal ?? new AbortController().signal;
  }

  async run(input: Offloadable): Promise<Receipt> {
    try {
      this.#tell({});
      this.#signal.throwIfAborted();
      this.#message = await read(input, this.#options.submitter, this.#options.entries);
      this.#message.caption = this.#options.caption ?? this.#message.caption;
      this.#tell({ total: this.#message.files.reduce((sum, { size }) => sum + size, 0) });
      if (!able()) throw new HoopError("no-gateway");
      return await this.#offload();
    } catch (error) {
      this.#opening?.close();
      return await this.#fail(error);
    } finally {
      this.#unlock();
      this.#guarded(false);
    }
  }

  #guarded(on: boolean): void {
    if (on) addEventListener("beforeunload", this.#guard);
    else removeEventListener("beforeunload", this.#guard);
  }

  async #offload(): Promise<Receipt> {
    const { decide, policy, gateways = GATEWAYS } = this.#options;
    const asked = settings(this.#signal);
    const begun = this.#message.keepable && !!(await find(undefined, this.#message.key));
    const hope = begun || gateways.some((address) => this.#belief(new URL(address).origin).wait === KNOWN_WAIT_MS);
    // A program has no page to go to, and waits; a form of a visitor without a box does not.
    const mine = await this.#within(asked, hope || !this.#options.ordinarySubmit ? Infinity : DELAY_MS);
    this.#signal.throwIfAborted();
    if (mine === LATE) return this.#ordinary(new HoopError("network"));
    this.#tell({ listed: mine && mine.owner !== null });
    const owner = mine && this.#message.keepable ? (mine.owner ?? "") : undefined;
    const kept = owner === undefined ? undefined : await this.#kept(owner);
    this.#signal.throwIfAborted();
    const { files, parts } = this.#message;
    const wish = decide ? decide(files, mine) : (policy ?? decideBy(mine ?? DEFAULTS, {}, files.length ? files : parts.filter((part) => typeof part !== "string")));
    // What was begun is finished, whatever is wished by now: sent anew, it could arrive twice.
    if (wish === "never" && !kept) return this.#ordinary();
    const opening = wish === "never" ? "declined" : await this.#find(wish === "ask" && !kept, !!kept);
    if (typeof opening === "string" && !kept) return this.#ordinary(opening === "declined" ? undefined : new HoopError(opening));
    if (typeof opening !== "string") this.#opening = opening;
    if (await this.#prepare(kept, owner)) {
      this.#opening?.close();
      return this.#free("service");
    }
    return this.#handOver(this.#opening);
  }

  /** What is kept of this upload, unless another page is at it. */
  async #kept(owner: string): Promise<Kept | undefined> {
    const kept = await find(owner, this.#message.key, time());
    return kept && (await this.#lock(kept.id)) ? kept : undefined;
  }

  #lock(id: string): Promise<boolean> {
    return new Promise((resolve) => {
      if (!navigator.locks) return resolve(true);
      navigator.locks.request(`hoop-${id}`, { ifAvailable: true }, (lock) => {
        resolve(!!lock);
        return lock && new Promise<void>((over) => (this.#unlock = over));
      }).catch(() => resolve(true));
    });
  }

  /** What came within `ms` of its user's last act, or LATE. */
  async #within<T>(coming: Promise<T>, ms: number): Promise<T | typeof LATE> {
    if (ms === Infinity) return coming;
    let clock: ReturnType<typeof setTimeout>;
    const late = new Promise<typeof LATE>((resolve) => (clock = setTimeout(resolve, this.#acted + ms - performance.now(), LATE)));
    return Promise.race([coming, late]).finally(() => clearTimeout(clock));
  }

  #belief(gateway: string): Belief {
    return belief(remembered(), gateway, Date.now());
  }

  /** Looks for a gateway, for a while; one that answers later is remembered. */
  async #look(looking: Promise<Probe>, gateway: string, wait: number): Promise<Probe> {
    const found = looking.then((found) => {
      learned(gateway, found === "gateway" || found === "spool-full" ? "seen" : "none");
      return found;
    });
    found.catch(() => {});
    const soon = await this.#within(found, wait);
    if (soon !== LATE) return soon;
    learned(gateway, "none");
    return "no-gateway";
  }

  /** Looks for a gateway and a way to it; asks where the browser or the user wants to be asked. */
  async #find(offer: boolean, begun: boolean): Promise<Opening | string> {
    const { ask, gateways = GATEWAYS } = this.#options;
    const places = gateways.map((address) => new URL(address).origin);
    if (offer && ask && remembered().quiet) return "declined";
    // All at once: one that keeps silent takes no time from the others.
    let probes: Promise<Probe>[] | undefined;
    let why = "no-gateway";
    for (const [at, gateway] of places.entries()) {
      const state = await permission();
      const believed = this.#belief(gateway);
      // What was begun was begun at a gateway.
      const known = begun || believed.known;
      const wait = begun ? KNOWN_WAIT_MS : believed.wait;
      this.#tell({ phase: "looking", gateway: new URL(gateway).host });
      if (state === "granted") {
        probes ??= places.map((place) => quiet(probe(place, this.#signal)));
        why = await this.#look(probes[at]!, gateway, wait);
        if (why !== "gateway") continue;
        return offer && ask && !(await this.#ask("offer", true, async () => true)) ? "declined" : here(gateway);
      }
      if (!ask || !(begun || believed.ask)) continue;
      if (state === "prompt") {
        const found = await this.#ask("permission", known, async () => {
          const looking = quiet(probe(gateway, this.#signal));
          await Promise.race([looking, answered(this.#signal)]);
          this.#acted = performance.now();
          return this.#look(looking, gateway, wait);
        });
        if (!found) return this.#declined(gateway, known);
        if (found === "gateway") return here(gateway);
        why = found;
        // Either leave was given, and nobody is there; or it was not, and one question is enough where no gateway is known.
        if (!known || why !== "no-gateway" || (await permission()) === "granted") continue;
      }
      // Here before the click, within which a window has to open at once.
      const { openBridge } = await later();
      const opening = await this.#ask("bridge", known, () => openBridge(gateway, known), shut);
      if (!opening) return this.#declined(gateway, known);
      learned(gateway, typeof opening === "string" ? "none" : "seen");
      if (typeof opening !== "string") return opening;
      why = opening;
    }
    return why;
  }

  /** Who knows of no gateway is not asked again soon. */
  #declined(gateway: string, known: boolean): string {
    if (!known) learned(gateway, "none");
    return "declined";
  }

  /** Asks the user; `act` runs once, within their click. Undefined when they decline, even after it has begun: then `undo` gets what came of it. */
  async #ask<T>(kind: Question["kind"], known: boolean, act: () => Promise<T>, undo: (late: T) => void = () => {}): Promise<T | undefined> {
    this.#signal.throwIfAborted();
    const { phase } = this.#state;
    const given = new AbortController();
    try {
      const answer = await new Promise<T | undefined>((resolve, reject) => {
        let begun: Promise<unknown> | undefined;
        const proceed = () => (begun ??= act().then((result) => (given.signal.aborted ? undo(result) : resolve(result)), reject));
        const decline = () => resolve(undefined);
        const never = () => {
          quieten(true);
          decline();
        };
        const question: Question = { kind, known, proceed: () => void proceed(), decline, ...(kind !== "retry" && { never }) };
        this.#signal.addEventListener("abort", () => reject(this.#signal.reason), { signal: given.signal });
        this.#tell({ phase: "asking", question });
        this.#options.ask!(question);
      });
      this.#acted = performance.now();
      this.#tell({ phase, question: undefined });
      return answer;
    } finally {
      given.abort();
    }
  }

  /** Has `#upload` made: kept or new. True if the service has all of it already. */
  async #prepare(kept: Kept | undefined, owner: string | undefined): Promise<boolean> {
    if (kept) {
      const told = await status(kept.id, false, this.#signal).catch(() => undefined);
      if (!OVER.includes(told?.state ?? "")) {
        try {
          this.#upload = await resume(this.#message, kept);
          this.#tell({ resumed: true });
          this.#made();
          return WHOLE.includes(told?.state ?? "");
        } catch (error) {
          if (coded(error).code !== "file-changed") throw error;
        }
        // Other content than before is another upload, and the one before must not arrive as well, unless it has already.
        await stop(kept.id, kept.ticket.token).catch((error) => {
          if (coded(error).code !== "upload-done") throw error;
        });
      }
      await drop(kept.id).catch(() => {});
      this.#unlock();
    }
    const fresh = await this.#ticket();
    // Before it is kept, where another page could find it.
    await this.#lock(fresh.upload_id);
    this.#upload = await begin(this.#message, fresh, owner);
    this.#made();
    return false;
  }

  /** A ticket for this message; `more` as `Wanted` has it. */
  #ticket(more?: { key: string; gateway: string }): Promise<Ticket> {
    const { method, url, authorization } = this.#message;
    return ticket({ method, target: url.pathname + url.search, ...more }, authorization, this.#signal, () => this.#tell({ busy: true }));
  }

  #made(): void {
    const { id, total } = this.#upload!.parcel;
    this.#tell({ id, total });
  }

  async #handOver(opening: Opening | undefined): Promise<Receipt> {
    const upload = this.#upload!;
    for (;;) {
      this.#opening = opening;
      const way = opening ? await this.#way(opening) : toService(upload.parcel, upload.ticket.token);
      const why = typeof way === "string" ? way : await this.#by(way);
      if (why === undefined) {
        this.#opening = undefined;
        return this.#free((way as Way).name, way as Way, await (way as Way).stranger?.());
      }
      if (!opening) return await this.#refused(new HoopError(why));
      opening = await this.#afterGateway(opening, why);
      if (!opening && !upload.begun()) {
        upload.forget().catch(() => {});
        return this.#ordinary(new HoopError(why));
      }
    }
  }

  /** The way to a gateway. If the service takes uploads from certain gateways only: if this is one of them, and with a permit for it, as far as can be known. */
  async #way(opening: Opening): Promise<Way | string> {
    // What follows the upload, and says whom to rely on, has to be here before its user goes out of reach.
    const { witnessed } = await later();
    const { parcel: whole, ticket } = this.#upload!;
    const { gateways, ...parcel } = whole;
    let way = await opening.way(whole);
    if (gateways && typeof way !== "string") {
      const { called } = way;
      // Of several, the ticket came with a permit for none.
      if (called && gateways.length > 1) parcel.permit = (await this.#ticket({ key: ticket.key, gateway: called }).catch(() => undefined))?.permit ?? undefined;
      way = called !== null && parcel.permit ? await opening.way(parcel) : "gateway-forbidden";
    }
    return typeof way === "string" ? way : witnessed(way, whole);
  }

  /** Hands it over by one way: undefined, or a code why the other side has not got it. That is a stranger's word, and stops nothing. */
  async #by(way: Way): Promise<string | undefined> {
    this.#tell({ phase: "handing", way: way.name });
    this.#guarded(true);
    const why = await this.#upload!.handOver(way, (progress) => this.#progress(progress), this.#signal);
    if (why === undefined) way.close();
    // Except that the window has a button for the user.
    if (why === "aborted" && way.name === "bridge") throw new HoopError(why);
    return why;
  }

  /** The gateway has gone, or does not want it: once more there, or undefined for the service itself. */
  async #afterGateway(opening: Opening, code: string): Promise<Opening | undefined> {
    while (this.#options.ask && AWAY.includes(code)) {
      const again = await this.#ask("retry", true, () => opening.again(), shut);
      if (!again) break;
      if (typeof again !== "string") return again;
      code = again;
    }
    opening.close();
    return undefined;
  }

  /** Not even the service takes it sealed. */
  async #refused(error: HoopError): Promise<Receipt> {
    if (error.code === "upload-done") return this.#free("service");
    // Another's prelude or total that the service was told first says nothing of what is the user's.
    if (error.code.startsWith("upload-") && error.code !== "upload-conflict") throw error;
    // Only when it is certain that nothing of this arrives any more may it go once more.
    await this.#upload!.stop().catch(() => {
      throw error;
    });
    this.#upload = undefined;
    return this.#ordinary(error);
  }

  /** The page may go: at once, or where the gateway is a `stranger`, when the service has something to say. `by`: the way that it went by. */
  async #free(way: Way["name"], by?: Way, stranger?: Stranger): Promise<Receipt> {
    this.#signal.throwIfAborted();
    const upload = this.#upload!;
    const { id, total } = upload.parcel;
    const ending = new AbortController();
    this.#tell({ phase: stranger ? "handing" : way === "service" ? "received" : "free", stranger, way, sent: total, rate: undefined });
    let latest: News | undefined;
    let waiting: ((news: News) => void)[] = [];
    const hear = (news: News) => {
      latest = news;
      const { phase, error, answer, location } = news;
      this.#tell({ stranger: undefined, phase, error, answer: answer?.clone(), location });
      for (const wake of waiting.splice(0)) wake(news);
    };
    const carrier = by?.gateway ? { look: by.name === "direct" ? () => by.look(AbortSignal.timeout(LOOK_MS)) : undefined, mend: () => this.#mend(upload, hear), stranger: !!stranger } : undefined;
    later().then(({ follow }) => follow(upload.ticket, this.#message.url, hear, ending.signal, carrier)).catch(() => {});
    if (stranger) {
      await new Promise<unknown>((resolve, reject) => {
        waiting.push(resolve);
        this.#signal.addEventListener("abort", () => {
          if (this.#upload) ending.abort();
          reject();
        });
      });
    }
    upload.forget().catch(() => {});
    this.#upload = undefined;
    this.#guarded(false);
    const { phase, monitor } = this.#state;
    return {
      way, phase, id, monitor, total,
      delivered: (signal) => new Promise((resolve, reject) => {
        const wake = (news: News) => {
          if (news.phase === "delivered") resolve(news.answer!.clone());
          else if (news.error) reject(news.error);
          else waiting.push(wake);
        };
        const abort = () => reject(new HoopError("aborted"));
        if (signal?.aborted) abort();
        signal?.addEventListener("abort", abort, { once: true });
        if (latest) wake(latest);
        else waiting.push(wake);
      }),
    };
  }

  /** The gateway does not deliver: the service gets from here what it lacks. If that does not work either, all stays as it was. */
  async #mend(upload: Upload, hear: (news: News) => void): Promise<void> {
    if (this.#signal.aborted) return;
    const { phase, way, sent, stranger } = this.#state;
    this.#tell({ phase: "handing", way: "service", stranger: undefined });
    this.#guarded(true);
    const why = await upload.handOver(toService(upload.parcel, upload.ticket.token), ({ sent }) => this.#tell({ sent }), this.#signal).catch(coded);
    this.#guarded(!!why && !!stranger);
    if (why) this.#tell({ phase, way, sent, stranger });
    else hear({ phase: "received", final: false });
  }

  /** As if there were no library. Only for what was not begun, or was stopped. */
  async #ordinary(error?: HoopError): Promise<Receipt> {
    this.#signal.throwIfAborted();
    if (this.#options.ordinary === false) throw error ?? new HoopError("no-gateway");
    this.#guarded(false);
    this.#tell({ phase: "ordinary", way: "ordinary", error, gateway: undefined });
    const base = { way: "ordinary", phase: "ordinary", total: this.#state.total } as const;
    if (this.#options.ordinarySubmit) {
      this.#options.ordinarySubmit(this.#acted + DELAY_MS - performance.now());
      return { ...base, delivered: () => new Promise(() => {}) };
    }
    const { url, method, fields, parts, authorization } = this.#message;
    const headers = authorization ? [...fields, ["Authorization", authorization] as [string, string]] : fields;
    const body = new Blob(parts);
    const total = body.size;
    this.#tell({ total });
    const onsent = (sent: number) => this.#progressed({ sent: Math.min(sent, total), total });
    // Without what is loaded later it goes all the same.
    const { send } = await later().catch(() => ({ send: undefined }));
    const response = send ? await send(method, url.href, headers, body, onsent, this.#signal) : await fetch(url, { method, headers, body, signal: this.#signal });
    return { ...base, total, delivered: async () => response.clone() };
  }

  async #fail(error: unknown): Promise<Receipt> {
    const { aborted } = this.#signal;
    const problem = aborted ? new HoopError("aborted", undefined, { cause: error }) : coded(error);
    const { code } = problem;
    const upload = this.#upload;
    const over = /^(upload-|file-|aborted)/.test(code);
    if (!over && !upload?.begun() && this.#state.phase !== "ordinary" && (this.#message || this.#options.ordinarySubmit) && this.#options.ordinary !== false) {
      upload?.forget().catch(() => {});
      return this.#ordinary(problem).catch((worse) => this.#give(coded(worse)));
    }
    try {
      if (over) await upload?.stop();
    } catch (error) {
      // What others have of it may still arrive.
      return this.#give(coded(error).code === "upload-done" ? coded(error) : new HoopError("not-stopped", undefined, { cause: problem }));
    }
    return this.#give(problem);
  }

  #give(error: HoopError): never {
    this.#tell({ phase: /^(aborted|upload-stopped)$/.test(error.code) ? "stopped" : "failed", error, question: undefined });
    throw error;
  }

  #progress({ sent, monitor }: Progress): void {
    const now = performance.now();
    this.#samples = [...this.#samples.filter(([at]) => at > now - RATE_MS), [now, sent]].slice(-200) as [number, number][];
    const [at, before] = this.#samples[0]!;
    const rate = now - at > 250 && sent > before ? ((sent - before) * 1000) / (now - at) : undefined;
    this.#progressed({ sent, rate, monitor });
  }

  #progressed(change: Partial<State> & { sent: number }): void {
    this.#tell(change);
    const { total, rate } = this.#state;
    safely(() => this.#options.onprogress?.({ sent: change.sent, total, rate }));
  }

  #tell(change: Partial<State>): void {
    this.#state = { ...this.#state, ...change };
    safely(() => this.#options.onstate?.(this.#state));
  }
}

/** Whether this browser has what sealing takes. */
export const able = () => !!globalThis.crypto?.subtle && "any" in AbortSignal;

/** The application's own listeners may fail; the upload goes on. */
function safely(call: () => void): void {
  try {
    call();
  } catch (error) {
    reportError(error);
  }
}

/** A promise whose failure is nobody's until it is waited for. */
function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

const shut = (opening: Opening | string) => typeof opening !== "string" && opening.close();

const here = (gateway: string): Opening => ({
  way: (parcel) => direct(gateway, parcel),
  // Leave may have been taken back meanwhile.
  again: async () => ((await permission()) === "granted" ? here(gateway) : (await later()).openBridge(gateway)),
  close() {},
});

/** What is loaded when it is first needed. */
const later = () => import("./hoop-card.ts");
