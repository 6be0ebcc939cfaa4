// One upload under one ticket: sealed, handed over by whatever way there is, and never in two plaintexts.

import { head } from "./message.ts";
import type { Message, Part } from "./message.ts";
import { Handover } from "./handover.ts";
import { drop, keep, keepPrint, prints } from "./keep.ts";
import type { Kept } from "./keep.ts";
import { unbase64url } from "./bytes.ts";
import { sealer, span } from "./seal.ts";
import type { Sealed, Sealer } from "./seal.ts";
import { stop } from "./service.ts";
import type { Ticket } from "./service.ts";
import { HoopError } from "./types.ts";
import type { Parcel, Way } from "./way.ts";

/** Of large uploads 16 MiB, so that what each segment costs does not show (browsers make a Blob of it, gateways sync it); of smaller ones half of that, so that less
 *  is sent again after a break. A few of either fit in memory. */
const segmentOf = (total: number) => (total < 64 * 2 ** 20 ? 8 : 16) * 2 ** 20;

export interface Progress {
  sent: number;
  monitor?: string;
}

/** A segment that is under way. */
interface Flight {
  sent: number;
  over: Promise<void>;
}

export interface Upload {
  parcel: Parcel;
  ticket: Ticket;
  /** Whether anybody may have any of it. */
  begun(): boolean;
  /** Hands all of it over. Resolves to undefined, or to a code: why the other side has not got it, perhaps in its own words. Rejects with
   *  what went wrong here. */
  handOver(way: Way, onprogress: (progress: Progress) => void, signal: AbortSignal): Promise<string | undefined>;
  /** Stops it at the service, if it was begun, and forgets it. */
  stop(): Promise<void>;
  /** Forgets what is kept of it. */
  forget(): Promise<void>;
}

/** A reading error of the browser in our words. */
function unread(error: unknown): HoopError {
  if (error instanceof HoopError) return error;
  const gone = (error as Error)?.name === "NotFoundError";
  return new HoopError(gone ? "file-unreadable" : "file-changed", undefined, { cause: error });
}

/** Begins an upload with a new ticket, and keeps it for `owner` (undefined: keeps nothing). */
export async function begin(message: Message, ticket: Ticket, owner?: string): Promise<Upload> {
  const salt = crypto.getRandomValues(new Uint8Array(16));
  const kept: Kept = {
    id: ticket.upload_id, owner: owner ?? "", key: message.key, ticket, salt, head: head(message, ticket.token),
    parts: message.parts.map((part) => (typeof part === "string" ? part : null)),
  };
  const upload = await make(message, kept, new Map(), false);
  if (upload.parcel.total > ticket.max_bytes) throw new HoopError("too-large");
  if (owner !== undefined) await upload.keep();
  return upload;
}

/** Goes on with one that was kept: all that was sent is sealed once more and compared, so that a file that is another one by now ends in
 *  `file-changed` before anything is sent. */
export async function resume(message: Message, kept: Kept): Promise<Upload> {
  const known = await prints(kept.id);
  const upload = await make(message, kept, known, true);
  for (const segment of known.keys()) await upload.seal(segment);
  return upload;
}

async function make(message: Message, kept: Kept, known: Map<number, string>, isKept: boolean): Promise<Upload & { keep(): Promise<void>; seal(segment: number): Promise<Sealed> }> {
  const { ticket, id } = kept;
  const blobs = message.parts.filter((part): part is Blob => typeof part !== "string");
  const parts: Part[] = kept.parts.map((part) => part ?? blobs.shift() ?? "");
  const rs = ticket.record_size;
  const plain = new Blob([kept.head, ...parts]);
  const per = Math.max(1, Math.floor(segmentOf(plain.size) / rs));
  const sealing: Sealer = await sealer(plain, unbase64url(ticket.key), ticket.suite, kept.salt, rs, unbase64url(ticket.ticket), per);
  const { layout, prelude } = sealing;
  const parcel: Parcel = { id, dest: ticket.post, total: layout.total, prelude, permit: ticket.permit ?? undefined, gateways: ticket.gateways ?? undefined };
  let noted = false;

  /** Seals a segment, and has its print on disk before anybody else sees it. */
  async function seal(segment: number): Promise<Sealed> {
    const sealed = await sealing.seal(segment).catch((error) => {
      throw unread(error);
    });
    const before = known.get(segment);
    if (before && before !== sealed.print) throw new HoopError("file-changed");
    if (!before && isKept) {
      await keepPrint(id, segment, sealed.print).catch(async () => {
        await drop(id);
        isKept = false;
      });
    }
    known.set(segment, sealed.print);
    return sealed;
  }

  function tell(monitor?: string): void {
    if (noted) return;
    noted = true;
    const files = message.files.map(({ name, size, type }) => ({ name, size, type }));
    // The list of uploads is a courtesy.
    import("./hoop-card.ts").then(({ note }) => note(id, ticket.token, { total: layout.total, files, caption: message.caption, monitor })).catch(() => {});
  }

  async function handOver(way: Way, onprogress: (progress: Progress) => void, signal: AbortSignal): Promise<string | undefined> {
    const machine = new Handover(id, layout, way.parallel, known.keys());
    const flying = new Map<number, Flight>();
    const sealed = new Map<number, Blob>();
    const ending = new AbortController();
    const end = () => ending.abort();
    signal.addEventListener("abort", end);
    let monitor: string | undefined;
    const progress = () => {
      let sent = machine.bytes;
      for (const flight of flying.values()) sent += flight.sent;
      onprogress({ sent: Math.min(sent, layout.total), monitor });
    };

    async function put(segment: number, first: number, last: number): Promise<void> {
      const [start, stop] = span(layout, segment);
      const blob = sealed.get(segment)!;
      const flight: Flight = { sent: 0, over: Promise.resolve() };
      flying.set(segment, flight);
      const onsent = (bytes: number) => {
        flight.sent = Math.min(bytes, last - first + 1);
        progress();
      };
      const sending = way.put(first, last, first === start && last === stop ? blob : blob.slice(first - start, last - start + 1), onsent, ending.signal);
      flight.over = sending.then((answer) => {
        flying.delete(segment);
        machine.answered(segment, answer);
        if (!machine.wants(segment)) sealed.delete(segment);
        monitor ??= answer.monitor;
        if (answer.status >= 200 && answer.status < 203) tell(monitor);
        progress();
      });
    }

    try {
      for (;;) {
        signal.throwIfAborted();
        const step = machine.step();
        if (step.do === "done") {
          tell(monitor);
          return undefined;
        }
        if (step.do === "fail") return step.code;
        if (step.do === "put") {
          // Kept until acknowledged: a retry sends the same bytes.
          if (!sealed.has(step.segment)) {
            const { blob } = await seal(step.segment);
            // A browser fetches a new Blob's bytes from the page when it likes; once the window has them all the page may close. Reading waits for that.
            if (way.name === "bridge") await blob.slice(-1).arrayBuffer();
            sealed.set(step.segment, blob);
          }
          signal.throwIfAborted();
          put(step.segment, step.first, step.last);
          progress();
        } else if (step.do === "look") machine.answered(undefined, await way.look(ending.signal));
        else if (step.do === "pause") await pause(step.ms, signal);
        else await Promise.race([...flying.values()].map(({ over }) => over));
      }
    } finally {
      end();
      signal.removeEventListener("abort", end);
    }
  }

  return {
    parcel, ticket, seal, handOver,
    begun: () => known.size > 0,
    async keep() {
      isKept = await keep(kept);
    },
    async forget() {
      if (isKept) await drop(id);
    },
    async stop() {
      if (known.size) await stop(id, ticket.token);
      if (isKept) await drop(id);
    },
  };
}

/** Resolves after `ms`; rejects when aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = () => {
      clearTimeout(clock);
      reject(signal!.reason);
    };
    const clock = setTimeout(() => {
      signal?.removeEventListener("abort", over);
      resolve();
    }, ms);
    signal?.addEventListener("abort", over, { once: true });
  });
}
