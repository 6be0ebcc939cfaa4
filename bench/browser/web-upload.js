// 200 MB from a page to the gateway, through the library: ticket, sealing, hand-over, synced to disk; beside an XHR of the same file, unsealed, to nginx,
// which writes it to disk and does not sync. They take turns.

import { ROUNDS, judge, median, spread, table } from "./bench.js";
import { Stage } from "./stage.js";

const BYTES = 200e6;
const LIMIT = 0.7;

const stage = await Stage.set();
try {
  const { measure, close } = await stage.open(BYTES);
  const seconds = { library: [], sink: [] };
  for (let round = -1; round < ROUNDS; round++) {
    for (const rival in seconds) {
      const took = await measure(rival, round);
      // The first round warms up.
      if (round >= 0) seconds[rival].push(took);
    }
  }
  await close();
  const ratio = median(seconds.library.map((took, round) => seconds.sink[round] / took));
  const rates = (rival) => seconds[rival].map((took) => BYTES / 1e6 / took);
  table(["what", "MB/s, median", "min-max", "of the XHR", "limit", ""], [
    ["library to hoop gateway, sealed and synced", median(rates("library")).toFixed(0), spread(rates("library")), ratio.toFixed(2), LIMIT, judge(ratio >= LIMIT)],
    ["XHR of the file to nginx, neither", median(rates("sink")).toFixed(0), spread(rates("sink")), "1.00", "", ""],
  ]);
} finally {
  await stage.close();
}
