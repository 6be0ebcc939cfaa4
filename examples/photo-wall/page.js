// The wall's two pages, as text.

const escape = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

/** The one line that makes the wall's form drop and walk, where `hoop service` stands before it; HOOP_INTEGRITY pins the library. */
function hoopLine(environment) {
  if (!environment.HOOP) return "";
  const integrity = environment.HOOP_INTEGRITY ? ` integrity="${escape(environment.HOOP_INTEGRITY)}"` : "";
  return `<script type="module" src="/hoop/hoop.js" data-hoop="form[enctype]"${integrity}></script>\n`;
}

const STYLE = `
:root { color-scheme: light dark; --paper: light-dark(#faf8f5, #16151a); --card: light-dark(#fff, #212026); --ink: light-dark(#23212b, #eceaf2);
  --soft: light-dark(#6a6675, #a5a1b2); --line: light-dark(#e6e1da, #35333d); --accent: light-dark(#b3402a, #ff9b7d); --on-accent: light-dark(#fff, #2a120b); }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
header, main { max-width: 68rem; margin: 0 auto; padding: 0 1.25rem; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem 1rem; padding-block: 1.5rem 1rem; }
h1 { margin: 0 auto 0 0; font-size: 1.6rem; letter-spacing: -.02em; }
h1 a { color: inherit; text-decoration: none; }
header form { display: flex; align-items: center; gap: .75rem; color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 1rem; padding: 1.25rem; margin-bottom: 2rem; }
.card.hang { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(16rem, 100%), 1fr)); align-items: end; }
.card.narrow { max-width: 24rem; margin-inline: auto; display: grid; gap: 1rem; }
h2 { margin: 0; font-size: 1.15rem; }
label { display: grid; gap: .3rem; font-weight: 600; font-size: .9rem; }
input { font: inherit; font-weight: 400; color: inherit; width: 100%; min-height: 2.9rem; padding: .55rem .75rem; border: 1px solid var(--line); border-radius: .6rem; background: var(--paper); }
input[type=file] { border-style: dashed; border-width: 2px; }
input::file-selector-button { font: inherit; font-weight: 600; border: 0; border-radius: .4rem; padding: .15rem .7rem; margin-right: .75rem; background: var(--line); color: inherit; }
button { font: inherit; font-weight: 600; min-height: 2.9rem; padding: .5rem 1.25rem; border: 0; border-radius: .6rem; background: var(--accent); color: var(--on-accent); cursor: pointer; }
button.quiet { background: none; color: inherit; border: 1px solid var(--line); min-height: 2.4rem; padding: .25rem .9rem; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.wall { columns: 16rem; column-gap: 1rem; padding-bottom: 2rem; }
figure { margin: 0 0 1rem; break-inside: avoid; background: var(--card); border: 1px solid var(--line); border-radius: .8rem; overflow: hidden; }
figure img { display: block; width: 100%; min-height: 4rem; }
figcaption { padding: .5rem .8rem; font-size: .9rem; overflow-wrap: anywhere; }
figcaption small, .empty, .hint { color: var(--soft); }
.empty { text-align: center; padding: 3rem 0; }
.wrong { color: var(--accent); font-weight: 600; margin: 0; }
.hint { margin: 0; font-size: .9rem; }`;

function page(title, { extra = "", user = "", body }) {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escape(title)}</title>
<link rel="icon" href="data:,">
${extra}<style>${STYLE}
</style>
</head>
<body>
<header><h1><a href="/">Photo wall</a></h1>${user}</header>
<main>
${body}
</main>
</body>
</html>
`;
}

/** The wall: `pictures` are `{ file, caption, by }`, the newest first; `user` and `csrf` are there if somebody is signed in. */
export function wallPage({ pictures, user, csrf, environment }) {
  const gateway = environment.HOOP_GATEWAY ? ` data-hoop-gateway="${escape(environment.HOOP_GATEWAY)}"` : "";
  const hidden = csrf ? `<input type="hidden" name="csrf" value="${escape(csrf)}">\n` : "";
  const signedIn = user ? `\n<form method="post" action="/logout">${hidden.trim()}<span>${escape(user)}</span><button class="quiet">Sign out</button></form>` : "";
  const figures = pictures.map(({ file, caption, by }) => {
    const text = [caption && escape(caption), by && `<small>by ${escape(by)}</small>`].filter(Boolean).join(" ");
    return `<figure><img src="/photos/${escape(file)}" alt="${escape(caption ?? "")}" loading="lazy">${text && `<figcaption>${text}</figcaption>`}</figure>`;
  });
  return page("Photo wall", {
    extra: hoopLine(environment),
    user: signedIn,
    body: `<form class="card hang" method="post" action="/photos" enctype="multipart/form-data"${gateway}>
${hidden}<label>Photos <input type="file" name="photo" accept="image/*" multiple required></label>
<label>Caption <input name="caption" maxlength="200" placeholder="Optional"></label>
<button>Hang them up</button>
</form>
${figures.length ? `<div class="wall">\n${figures.join("\n")}\n</div>` : '<p class="empty">Nothing hangs here yet. Yours can be the first.</p>'}`,
  });
}

/** A page of somebody else's, whose script finds the form's token in its head. */
export function withCsrf(page, csrf) {
  return csrf ? page.replace("<title>", () => `<meta name="csrf" content="${escape(csrf)}">\n  <title>`) : page;
}

/** Sign-in; `hint` says who can, where everybody may know. */
export function loginPage({ next, wrong, hint }) {
  return page("Sign in · Photo wall", {
    body: `<form class="card narrow" method="post" action="/login">
<h2>Sign in</h2>
${wrong ? '<p class="wrong" role="alert">That name and password do not fit.</p>\n' : ""}<input type="hidden" name="next" value="${escape(next)}">
<label>Name <input name="name" autocomplete="username" autocapitalize="none" required autofocus></label>
<label>Password <input type="password" name="password" autocomplete="current-password" required></label>
<button>Sign in</button>
${hint ? `<p class="hint">${escape(hint)}</p>` : ""}
</form>`,
  });
}
