export { Card } from "./card.ts";
export { diagnose } from "./diagnose.ts";
export { openBridge } from "./window.ts";
