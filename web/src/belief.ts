// Whether a Hoop box may be here: what a browser remembers of a site's looks for one, and what follows from it. Pure: no clock, no storage.
//
//   a box answered                    known for 30 days: waited for a little longer, asked about at each upload as the policy has it
//   nobody answered, or the visitor   not asked about for a day; for an hour where one had answered in the last 30 days,
//   knows of none                     who may have been elsewhere meanwhile
//   "not again"                       nothing is asked any more, until settings are saved

/** The most that an ordinary upload may be delayed where no box is known, from the click on. */
export const DELAY_MS = 300;
/** Of that, for an answer from the box and from the service; the rest is for what the page does itself. */
export const OPEN_WAIT_MS = 250;
/** How long to wait for a box that answered lately: a `.local` name whose first query is lost takes over a second. */
export const KNOWN_WAIT_MS = 2500;
export const KNOWN_MS = 30 * 86_400_000;
export const NONE_MS = 86_400_000;
/** People come home on the day that they left. */
export const AWAY_MS = 3_600_000;
/** The most boxes that are remembered; pages name one or two. */
export const BOXES_MAX = 8;

/** When a gateway answered last, and when it was last looked for in vain, in milliseconds since 1970. */
export interface Box {
  seen?: number;
  none?: number;
}

export interface Memory {
  /** The visitor wants to be asked nothing any more. */
  quiet: boolean;
  /** By the gateway's origin. */
  boxes: Readonly<Record<string, Box>>;
}

export interface Belief {
  /** One answered lately. */
  known: boolean;
  /** How long it may take to answer before the upload goes without it, in milliseconds. */
  wait: number;
  /** Whether the visitor may be asked about it. */
  ask: boolean;
}

export function belief({ quiet, boxes }: Memory, gateway: string, now: number): Belief {
  const { seen, none } = boxes[gateway] ?? {};
  // A clock that was ahead says nothing.
  const ago = (at: number | undefined) => (at === undefined || at > now ? Infinity : now - at);
  const known = ago(seen) < KNOWN_MS;
  const missed = ago(none) < ago(seen);
  return {
    known,
    wait: known && !missed ? KNOWN_WAIT_MS : OPEN_WAIT_MS,
    ask: !quiet && !(missed && ago(none) < (known ? AWAY_MS : NONE_MS)),
  };
}

/** What is remembered after a look. */
export function learn(memory: Memory, gateway: string, what: keyof Box, now: number): Memory {
  const { [gateway]: box, ...others } = memory.boxes;
  const latest = ({ seen = 0, none = 0 }: Box) => Math.max(seen, none);
  const kept = Object.entries(others).sort(([, a], [, b]) => latest(b) - latest(a)).slice(0, BOXES_MAX - 1);
  return { ...memory, boxes: Object.fromEntries([...kept, [gateway, { ...box, [what]: now }]]) };
}

/** What was written down; nothing where it is not as it was written. */
export function recall(text: string | null): Memory {
  const boxes: Record<string, Box> = {};
  let said: { quiet?: unknown; boxes?: unknown } | null = null;
  try {
    said = JSON.parse(text ?? "null");
  } catch {}
  const time = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : undefined);
  for (const [gateway, box] of Object.entries(Object(said?.boxes)).slice(0, BOXES_MAX)) {
    const { seen, none } = Object(box) as Record<string, unknown>;
    if (URL.canParse(gateway)) boxes[gateway] = { seen: time(seen), none: time(none) };
  }
  return { quiet: said?.quiet === true, boxes };
}
