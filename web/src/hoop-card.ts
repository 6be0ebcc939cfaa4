// What the library loads when it first has something to show, to complain of, or to open, so that pages where nobody uploads do not carry it.

export { Card } from "./card.ts";
export { diagnose } from "./diagnose.ts";
export { openBridge } from "./window.ts";
