// Where a browser remembers what belief.ts is about: localStorage of the site, or, where that is not to be had, the page itself.

import { learn, recall } from "./belief.ts";
import type { Box, Memory } from "./belief.ts";

const NAME = "hoop-boxes";
let here: string | null = null;

export function remembered(): Memory {
  try {
    return recall(localStorage.getItem(NAME));
  } catch {
    return recall(here);
  }
}

function remember(memory: Memory): void {
  here = JSON.stringify(memory);
  try {
    localStorage.setItem(NAME, here);
  } catch {}
}

/** A gateway has answered, or has not. */
export const learned = (gateway: string, what: keyof Box) => remember(learn(remembered(), gateway, what, Date.now()));

/** Whether the visitor wants to be asked. */
export const quieten = (quiet: boolean) => remember({ ...remembered(), quiet });
