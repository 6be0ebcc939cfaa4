// Debian's Chromium and Firefox, headless, driven by puppeteer: Chromium by CDP, Firefox by WebDriver BiDi.
//
// Both know https://photos.example and http://hoop.local:4667 at 127.0.0.1, accept any certificate unless they are given an authority, and block windows that no
// user has asked for. Chromium counts the former as public and the latter as local: without that there is no border between
// them, and whatever a page does about leave to reach the local network is proven by nothing.

import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import puppeteer from "puppeteer-core";

/** `evil.example` is somebody else's site, and `rebound.example` a name of his that points at the gateway. */
export const NAMES = ["photos.example", "hoop.local", "evil.example", "rebound.example"];
export const ADDRESS_SPACES = "127.0.0.1:443=public,127.0.0.1:8443=public,127.0.0.1:8080=public,127.0.0.1:4667=local";

const LAUNCH_MS = 60_000;
/** One command of the driver: a browser that does not answer for so long hangs. */
const COMMAND_MS = 60_000;

const HOW = {
  chromium: ({ addressSpaces = ADDRESS_SPACES, language, proxyPac }) => ({
    browser: "chrome",
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    // The driver would allow every window.
    ignoreDefaultArgs: ["--disable-popup-blocking"],
    args: [
      "--no-sandbox",
      `--host-resolver-rules=${NAMES.map((name) => `MAP ${name} 127.0.0.1`).join(", ")}`,
      ...(language ? [`--accept-lang=${language}`] : []),
      ...(proxyPac ? [`--proxy-pac-url=${proxyPac}`] : []),
      ...(addressSpaces ? [`--ip-address-space-overrides=${addressSpaces}`] : []),
    ],
  }),
  firefox: ({ preferences = {}, language, proxyPac }) => ({
    browser: "firefox",
    executablePath: process.env.FIREFOX ?? "/usr/bin/firefox-esr",
    extraPrefsFirefox: {
      "network.dns.localDomains": NAMES.join(","),
      "dom.disable_open_during_load": true,
      ...(language && { "intl.accept_languages": language }),
      ...(proxyPac && { "network.proxy.type": 2, "network.proxy.autoconfig_url": proxyPac }),
      ...preferences,
    },
  }),
};

/** The names of the browsers to test: both, or what BROWSER says. */
export const BROWSERS = Object.keys(HOW).filter((name) => (process.env.BROWSER ?? name) === name);

/** Starts a browser with an empty profile. `close()` ends it and removes the profile.
 *  `authority`: what they trust, a file in PEM; without it, any certificate. `language`: what the user reads. `proxyPac`: where the browser finds its proxy. `addressSpaces: null` leaves out Chromium's; `preferences` are further ones of Firefox; `commandMs`: for commands that take longer. */
export async function launch(name, more = {}) {
  const folder = await mkdtemp(path.join(tmpdir(), "hoop-browser-"));
  const remove = () => rm(folder, { recursive: true, force: true, maxRetries: 10 });
  try {
    const profile = path.join(folder, "profile");
    if (more.authority) await trust(name === "chromium" ? path.join(folder, ".pki/nssdb") : profile, more.authority);
    const browser = await puppeteer.launch({
      ...HOW[name](more),
      headless: true,
      acceptInsecureCerts: !more.authority,
      userDataDir: profile,
      env: { ...process.env, TMPDIR: folder, HOME: folder },
      timeout: LAUNCH_MS,
      protocolTimeout: more.commandMs ?? COMMAND_MS,
    });
    return { name, browser, close: () => browser.close().finally(remove) };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Has a browser with this database trust an authority, as `hoop agent trust` tells people to. */
async function trust(database, authority) {
  await mkdir(database, { recursive: true });
  const certutil = (...parameters) => promisify(execFile)("certutil", ["-d", `sql:${database}`, ...parameters]);
  await certutil("-N", "--empty-password");
  await certutil("-A", "-t", "C,,", "-n", "hoop agent", "-i", authority);
}

/** What the user has answered to "… wants to access other devices on your local network": `granted` or `denied`, for a page's origin
 *  in a context. Chromium only. */
export async function answerLocalNetwork(running, context, origin, setting) {
  // Chromium forgets the answers of a session that has ended.
  running.session ??= await running.browser.target().createCDPSession();
  await running.session.send("Browser.setPermission", {
    permission: { name: "local-network" }, setting, origin, browserContextId: context.id,
  });
}
