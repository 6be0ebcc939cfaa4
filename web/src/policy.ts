// Whether an upload is offered to a gateway (docs/protocol.md, "Settings"). Pure: no page, no network.

import type { Policy, Settings } from "./types.ts";

/** The settings that apply if neither the user nor the form says anything. */
export const DEFAULTS: Readonly<Settings> = { policy: "ask", min_bytes: 0, types: {}, saved: false, owner: null };

/** The most media types that are named; the service keeps no more either. */
const TYPES_MAX = 32;
const STRICTNESS: readonly Policy[] = ["never", "ask", "always"];
const UNITS: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9, ki: 1024, mi: 1024 ** 2, gi: 1024 ** 3 };

/** What a form's attributes say; what they leave out, or spell wrongly, is undefined. */
export type Attributes = Partial<Pick<Settings, "policy" | "min_bytes" | "types">>;

/** Reads `data-hoop`, `data-hoop-min` and `data-hoop-types`. */
export function attributes(of: (name: string) => string | null): Attributes {
  const types: Record<string, Policy> = {};
  for (const part of (of("data-hoop-types") ?? "").split(",").slice(0, TYPES_MAX)) {
    const [type, word] = part.split(":");
    const policy = asPolicy(word);
    if (type?.includes("/") && policy) types[type.trim().toLowerCase()] = policy;
  }
  return { policy: asPolicy(of("data-hoop")), min_bytes: bytes(of("data-hoop-min")), types };
}

/** The policy for these files: settings that the user has saved hold; else the form's attributes; else `ask`. Of several
 *  files' policies the strictest holds. */
export function decide(settings: Settings, form: Attributes, files: readonly { type: string; size: number }[]): Policy {
  const { policy = DEFAULTS.policy, min_bytes = 0, types = {} } = settings.saved ? settings : form;
  if (files.reduce((sum, file) => sum + file.size, 0) < min_bytes) return "never";
  if (!files.length) return policy;
  return STRICTNESS[Math.min(...files.map((file) => STRICTNESS.indexOf(ofType(types, file.type) ?? policy)))]!;
}

function ofType(types: Record<string, Policy>, type: string): Policy | undefined {
  const full = type.split(";")[0]!.trim().toLowerCase();
  return [full, full.replace(/\/.*/, "/*"), "*/*"].filter((name) => Object.hasOwn(types, name)).map((name) => types[name])[0];
}

function asPolicy(word?: string | null): Policy | undefined {
  return STRICTNESS.find((policy) => policy === word?.trim().toLowerCase());
}

/** `5MB`, `5 MiB`, `5000000`, in bytes. */
function bytes(text: string | null): number | undefined {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([kmg]?i?)b?\s*$/i.exec(text ?? "");
  const unit = found && UNITS[found[2]!.toLowerCase()];
  return unit ? Math.ceil(Number(found[1]) * unit) : undefined;
}
