// Importing this runs the whole test file again in namespaces of its own: a network with nothing but loopback, so that ports 443
// and 4667 are free and nothing gets out; and processes that all end with it, however it ends.

import { spawnSync } from "node:child_process";

const MARK = "HOOP_BROWSER_NAMESPACE";

if (process.env[MARK] === undefined) {
  const inside = ["sh", "-c", 'ip link set lo up || exit; "$@"; exit $?', "sh", process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  const namespaces = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", ...inside];
  const { status, error } = spawnSync("setpriv", ["--pdeathsig", "KILL", ...namespaces], {
    stdio: "inherit", env: { ...process.env, [MARK]: "1" },
  });
  if (error) console.error(`no namespace: ${error.message}`);
  process.exit(status ?? 1);
}
