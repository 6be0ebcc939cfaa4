// What the library loads when it first has something to show or to complain of, so that pages where nobody uploads do not carry it.

export { Card } from "./card.ts";
export { diagnose } from "./diagnose.ts";
