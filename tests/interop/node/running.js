// A program that runs beside a test: when `start` resolves it is ready, and when `stop` does it is gone.

import { spawn } from "node:child_process";

const READY_MS = 60_000;
/** Of what a program says the newest lines are kept; none of ours says as many in a test. */
const LINES_MAX = 20_000;

/** Starts a program; it is ready once a line of its output contains `ready`. */
export async function start(command, parameters, { ready, environment = {} }) {
  const program = new Running(command, parameters, environment);
  try {
    await program.until(() => program.lines.some((line) => line.includes(ready)), `says "${ready}"`, READY_MS);
  } catch (error) {
    await program.stop();
    throw error;
  }
  return program;
}

export class Running {
  /** What it has said, line by line, on both outputs. */
  lines = [];
  /** Resolves when it has ended, by itself or not. */
  ended;
  #child;
  #over = false;
  #watchers = new Set();

  constructor(command, parameters, environment = {}) {
    this.name = [command.split("/").at(-1), parameters[0]].join(" ");
    this.#child = spawn(command, parameters, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...environment } });
    for (const output of [this.#child.stdout, this.#child.stderr]) this.#read(output);
    this.ended = new Promise((resolve) => {
      const end = (why) => {
        this.#over = true;
        if (why instanceof Error) this.lines.push(why.message);
        this.#changed();
        resolve();
      };
      this.#child.on("error", end).on("exit", end);
    });
  }

  get pid() {
    return this.#child.pid;
  }

  /** Resolves to the first truthy thing that `look` returns: asked now, and whenever the program has said something. */
  until(look, what, within = READY_MS) {
    return new Promise((resolve, reject) => {
      const settle = (act, value) => {
        clearTimeout(timer);
        this.#watchers.delete(watch);
        act(value);
      };
      const fail = (why) => settle(reject, new Error(`${this.name} ${why} before it ${what}; it said:\n${this.lines.slice(-40).join("\n")}`));
      const watch = () => {
        const seen = look();
        if (seen) settle(resolve, seen);
        else if (this.#over) fail("ended");
      };
      const timer = setTimeout(() => fail("took too long"), within);
      this.#watchers.add(watch);
      watch();
    });
  }

  /** Ends it, and resolves when it is gone; a program that is gone already stays so. */
  async stop(signal = "SIGKILL") {
    if (!this.#over) this.#child.kill(signal);
    await this.ended;
  }

  #read(output) {
    let rest = "";
    output.setEncoding("utf8").on("data", (piece) => {
      const lines = (rest + piece).split("\n");
      rest = lines.pop();
      this.lines.push(...lines);
      if (this.lines.length > LINES_MAX) this.lines.splice(0, this.lines.length - LINES_MAX);
      this.#changed();
    });
  }

  #changed() {
    for (const watch of [...this.#watchers]) watch();
  }
}
