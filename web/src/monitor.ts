// The gateway's pages, kept fresh. The page is whole without this: the gateway renders it, and sends the part that changes as
// events named `page`. Here that part is put in the old one's place, and a link is copied or shared.

/** The part of a page that changes (`Live` in crates/gateway/src/web/monitor/html.rs). */
interface Live {
  title: string;
  said: string;
  html: string;
}

/** How long to wait before a refused or broken stream is asked for again, in milliseconds. */
const AGAIN_MS = 5_000;

const main = document.querySelector("main")!;
const said = document.getElementById("said")!;

/** Makes `old` like `fresh`, keeping the elements that are in both: so that what is focused, open or moving stays so. */
function become(old: Element, fresh: Element): void {
  for (const { name } of [...old.attributes]) {
    // Whether details are open is the reader's affair.
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((node, index) => {
    const there = before[index];
    if (!there) old.append(node);
    else if (there instanceof Element && node instanceof Element && there.tagName === node.tagName) become(there, node);
    else if (there instanceof Text && node instanceof Text) there.data = node.data;
    else there.replaceWith(node);
  });
  before.slice(after.length).forEach((node) => node.remove());
}

/** The same times, as this device writes them, for whoever points at them. */
function writeTimes(): void {
  for (const time of main.querySelectorAll("time")) time.title = new Date(time.dateTime).toLocaleString(document.documentElement.lang);
}

function show({ title, said: words, html }: Live): void {
  const fresh = main.cloneNode(false) as Element;
  // An inert document: nothing in it loads or runs before it stands in the page.
  fresh.append(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  become(main, fresh);
  document.title = title;
  say(words);
  writeTimes();
}

/** A live region speaks when its text changes, and only then. */
function say(words: string): void {
  if (said.textContent !== words) said.textContent = words;
}

function setGone(gone: boolean): void {
  document.documentElement.classList.toggle("gone", gone);
  if (gone) say(main.querySelector(".lost")?.textContent ?? "");
}

/** Without a stream (there are only so many), the page is loaded as one without script would be. */
async function load(): Promise<void> {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("main");
  if (fresh) show({ title: page.title, said: page.querySelector("h1")?.textContent ?? "", html: fresh.innerHTML });
  setGone(false);
}

function follow(events: string): void {
  const source = new EventSource(events);
  source.addEventListener("page", (event) => {
    setGone(false);
    show(JSON.parse(event.data) as Live);
  });
  source.addEventListener("end", () => source.close());
  source.addEventListener("error", () => {
    // A stream that ended in due time, or broke, is opened again by the browser; one that was refused is not.
    if (source.readyState !== EventSource.CLOSED) return lookIfGone(source);
    load().catch(() => setGone(true));
    setTimeout(() => follow(events), AGAIN_MS);
  });
}

/** Whether the gateway is out of reach, and not only the stream at its end. */
function lookIfGone(source: EventSource): void {
  setTimeout(() => source.readyState === EventSource.CONNECTING && setGone(true), AGAIN_MS);
}

/** The buttons beside the link. The clipboard's own interface is not there on a page without TLS. */
function link(): void {
  const input = document.querySelector<HTMLInputElement>(".link input");
  const copy = document.querySelector<HTMLButtonElement>("#copy");
  const share = document.querySelector<HTMLButtonElement>("#share");
  if (!input || !copy || !share) return;
  copy.hidden = false;
  copy.addEventListener("click", () => {
    input.select();
    if (!document.execCommand("copy")) return;
    const done = copy.dataset.done ?? "";
    copy.textContent = done;
    say(done);
  });
  share.hidden = !("share" in navigator);
  share.addEventListener("click", () => void navigator.share({ title: document.title, url: input.value }).catch(() => {}));
}

writeTimes();
link();
if (main.dataset.events) follow(main.dataset.events);
