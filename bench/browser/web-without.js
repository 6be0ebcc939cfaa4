// By how much a form is delayed that finds no box: from the visitor's click (on Upload, or on the answer to the one question of the day) to the moment when the
// form is given to the browser. In each state of leave, whatever stands at the box's address. Each figure is of a browser context without any past.

import "../../tests/browser/namespace.js";
import http from "node:http";
import net from "node:net";
import { judge, median, ROUNDS as LEAST, table } from "./bench.js";
import { answerLocalNetwork, BROWSERS, launch } from "../../tests/browser/browsers.js";
import { startApplication } from "../../tests/browser/application.js";
import { House } from "../../tests/browser/house.js";

const LIMIT_MS = 300;
const ROUNDS = Number(process.env.ROUNDS ?? LEAST);
const PAGE = `<!doctype html><html lang="en"><title>A page</title><script type="module" src="/hoop/hoop.js" data-hoop></script>
<form method="post" action="/album" enctype="multipart/form-data" data-hoop="ask"><input type="file" name="photo" required><button>Send</button></form>`;

/** What stands at hoop.local:4667. `name`: whether there is such a name. */
const BOXES = {
  refused: {},
  silent: { server: () => net.createServer((socket) => socket.on("error", () => {})) },
  "other server": { server: () => http.createServer((_, response) => response.end("<!doctype html><title>Router</title>")) },
  portal: { server: () => http.createServer((_, response) => response.writeHead(302, { Location: "/portal", "Access-Control-Allow-Origin": "*" }).end()) },
  "no name": { address: "http://nobody.local:4667" },
};
/** `allowed`: the browser asks, and its user says yes. The driver says it in his stead, while the card asks: nobody can click on a headless browser's own question. */
const LEAVES = { chromium: ["granted", "prompt", "allowed", "denied"], firefox: ["unsupported"] };

/** In a page: when its user clicked last, and when the form was given to the browser. */
function watchClock() {
  let clicked = 0;
  addEventListener("click", ({ timeStamp }) => (clicked = timeStamp), true);
  const { submit } = HTMLFormElement.prototype;
  HTMLFormElement.prototype.submit = function () {
    console.debug(`delay ${performance.now() - clicked}`);
    submit.call(this);
  };
}

/** Milliseconds of delay, and whether a question was asked. `answer`: what the visitor says to it, and `allow` what he says to the browser's. */
async function upload(page, origin, photo, address, answer, allow) {
  const delay = new Promise((resolve) => page.on("console", (message) => message.text().startsWith("delay ") && resolve(Number(message.text().slice(6)))));
  await page.goto(origin);
  if (address) await page.$eval("form", (form, url) => form.setAttribute("data-hoop-gateway", url), address);
  await (await page.$("input[type=file]")).uploadFile(photo.path);
  const gone = page.waitForNavigation();
  await page.click("form button");
  let asked = false;
  const question = page.waitForSelector(`hoop-card >>> nav #${answer}`, { timeout: 60_000 }).then(async (button) => {
    asked = true;
    await allow?.();
    await button.click();
  }).catch(() => {});
  const ms = await delay;
  await gone;
  await Promise.race([question, new Promise((resolve) => setTimeout(resolve, 50))]);
  page.removeAllListeners("console");
  return { ms, asked };
}

const rows = [];
for (const browser of BROWSERS) {
  const running = await launch(browser);
  const house = await House.start({ gateway: false, wall: null });
  const application = await startApplication({ "/": PAGE });
  const photo = await house.photo("a.jpg", 200_000);
  try {
    for (const leave of LEAVES[browser]) {
      for (const [box, { server, address }] of Object.entries(BOXES)) {
        const sockets = new Set();
        const standing = server?.().on("connection", (socket) => sockets.add(socket));
        if (standing) await new Promise((resolve) => standing.listen(4667, "127.0.0.1", resolve));
        // The question is answered either way; then two more uploads, of which nothing is asked.
        const found = { decline: [], proceed: [], later: [] };
        let questions = 0;
        for (let round = 0; round < ROUNDS; round++) {
          for (const answer of { granted: ["decline"], allowed: ["proceed"] }[leave] ?? ["decline", "proceed"]) {
            const context = await running.browser.createBrowserContext();
            if (leave === "granted" || leave === "denied") await answerLocalNetwork(running, context, house.origin, leave);
            const page = await context.newPage();
            await page.evaluateOnNewDocument(watchClock);
            const allow = leave === "allowed" ? () => answerLocalNetwork(running, context, house.origin, "granted") : undefined;
            const first = await upload(page, house.origin, photo, address, answer, allow);
            found[answer].push(first.ms);
            questions = Math.max(questions, Number(first.asked));
            for (let more = 0; more < 2; more++) {
              const next = await upload(page, house.origin, photo, address, answer);
              found.later.push(next.ms);
              if (next.asked) questions = 2;
            }
            await context.close();
          }
        }
        for (const socket of sockets) socket.destroy();
        if (standing) await new Promise((resolve) => standing.close(resolve));
        const all = [...found.decline, ...found.later];
        const verdict = judge(Math.max(...all) <= LIMIT_MS && questions <= 1);
        const show = (values) => (values.length ? `${median(values).toFixed(0)} (${Math.max(...values).toFixed(0)})` : "");
        rows.push([browser, leave, box, questions, show(found.decline), show(found.later), LIMIT_MS, verdict, show(found.proceed)]);
      }
    }
  } finally {
    await application.stop();
    await house.close();
    await running.close();
  }
}
table(["browser", "leave", "at the box's address", "questions in 3 uploads", "first, ms: median (max)", "later two", "limit", "", "first, after a click on “look”"], rows);
