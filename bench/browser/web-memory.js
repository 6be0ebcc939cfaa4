// What Chromium's processes have resident at most while the library hands over files of 1, 2 and 4 GB, over what they had before: a new browser each time.

import { readFileSync, readdirSync } from "node:fs";
import { judge, table } from "./bench.js";
import { Stage } from "./stage.js";

const SIZES = [1e9, 2e9, 4e9];
const LIMIT_MB = 300;
const SAMPLE_MS = 50;

/** Resident bytes of a process; 0 once it has gone. */
function resident(pid) {
  try {
    return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) * 1024;
  } catch {
    return 0;
  }
}

/** The renderers' processes: those below `parent` that say so. */
function renderers(parent) {
  const parents = new Map();
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number)) {
    try {
      parents.set(pid, Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1).split(" ")[1]));
    } catch {
      // It has just ended.
    }
  }
  const below = (pid) => pid === parent || (parents.has(pid) && below(parents.get(pid)));
  return [...parents.keys()].filter((pid) => pid !== parent && below(pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--type=renderer"));
}

/** Samples until told to stop, then says by how much the browser process, and the renderer that grew most, grew at most. */
function watch(browser) {
  const processes = [browser, ...renderers(browser)].map((pid) => ({ pid, start: resident(pid), peak: 0 }));
  const timer = setInterval(() => processes.forEach((process) => (process.peak = Math.max(process.peak, resident(process.pid)))), SAMPLE_MS);
  return () => {
    clearInterval(timer);
    const [main, ...others] = processes.map(({ start, peak }) => (peak - start) / 1e6);
    return { browser: main, renderer: Math.max(...others) };
  };
}

const rows = [];
for (const bytes of SIZES) {
  const stage = await Stage.set();
  try {
    const { running, measure, close } = await stage.open(bytes);
    const stop = watch(running.browser.process().pid);
    const seconds = await measure("library", 0);
    const { browser, renderer } = stop();
    await close();
    const verdict = judge(browser <= LIMIT_MB && renderer <= LIMIT_MB);
    rows.push([bytes / 1e9, renderer.toFixed(0), browser.toFixed(0), LIMIT_MB, verdict, (bytes / 1e6 / seconds).toFixed(0)]);
  } finally {
    await stage.close();
  }
}
table(["file, GB", "renderer, MB over start", "browser process, MB over start", "limit", "", "MB/s"], rows);
