// A device whose clock is years off: what the service says of an upload is asked for until its ticket's end, by the service's own time.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const stand = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
stand("location", new URL("https://photos.example/"));
const realTimeout = setTimeout;
stand("setTimeout", (work, _ms, ...how) => realTimeout(work, 0, ...how));

const NOW = Date.now();
const DAY = 86_400_000;
const ticket = { upload_id: "0".repeat(32), key: Buffer.alloc(32, 7).toString("base64url"), expires: Math.ceil(NOW / 1000) + 100 };

/** What is told of an upload, and how often the service is asked, whose states and times these are. */
async function told(off, answers) {
  const { follow } = await load("follow");
  const [phases, asked, real, controller] = [[], [], Date.now, new AbortController()];
  stand("fetch", async (address) => {
    asked.push(address);
    if (asked.length > 9) controller.abort();
    const { state, at } = answers[Math.min(asked.length, answers.length) - 1];
    return new Response(JSON.stringify({ state, answer: null }), { headers: { Date: new Date(at).toUTCString() } });
  });
  Date.now = () => NOW + off;
  try {
    await follow(ticket, location, ({ phase }) => phases.push(phase), controller.signal);
  } finally {
    Date.now = real;
  }
  return { phases, asked: asked.length };
}

test("news is asked for whatever the device's clock says", async () => {
  for (const off of [0, 40 * DAY, 4000 * DAY, -NOW])
    assert.deepEqual(await told(off, [{ state: "received", at: NOW }, { state: "accepted", at: NOW }]), { phases: ["received", "delivered"], asked: 2 });
});

test("nothing more is asked a week after the ticket's end at the service", async () => {
  for (const off of [0, -4000 * DAY])
    assert.deepEqual(await told(off, [{ state: "receiving", at: NOW }, { state: "receiving", at: NOW + 8 * DAY }]), { phases: [], asked: 2 });
});
