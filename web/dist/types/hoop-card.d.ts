export { Card } from "./card.ts";
export { diagnose } from "./diagnose.ts";
export { follow } from "./follow.ts";
export { send } from "./send.ts";
export { note } from "./service.ts";
export { openBridge } from "./window.ts";
export { witnessed } from "./witness.ts";
