// The card's looks. Colours and shape can be set by `--hoop-*` on the card or anything around it, all else by `::part`.

export const CSS = `
:host{display:block;grid-column:1/-1;margin:1rem 0;max-width:34rem;min-width:min(100%,15rem)}
[hidden]{display:none!important}
*{box-sizing:border-box;margin:0;padding:0;font:inherit}
section{--bg:var(--hoop-background,#fff);--fg:var(--hoop-text,#1b2232);--accent:var(--hoop-accent,#2457d6);--ok:#0f7a55;--warn:#8f5600;--bad:#b3261e;
--dim:color-mix(in srgb,var(--fg) 72%,var(--bg));--line:color-mix(in srgb,var(--fg) 15%,var(--bg));--r:var(--hoop-radius,14px);--tone:var(--accent);
position:relative;display:flex;gap:.9em;padding:1.1em;border:1px solid var(--line);border-radius:var(--r);background:var(--bg);color:var(--fg);
font:var(--hoop-font,inherit);line-height:1.45;text-align:start;text-transform:none;box-shadow:0 6px 20px #0000000f;overflow-wrap:anywhere}
.dark{--bg:var(--hoop-background,#191d27);--fg:var(--hoop-text,#eef1f7);--accent:var(--hoop-accent,#8fb3ff);--ok:#63d8aa;--warn:#f2bb5e;--bad:#ff938a}
:focus{outline:0}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.ok{--tone:var(--ok)}
.held{--tone:var(--warn)}
.failed{--tone:var(--bad)}
.stopped,.ordinary{--tone:var(--dim)}
svg{flex:none;width:2.5em;height:2.5em;padding:.55em;border-radius:50%;color:var(--tone);background:color-mix(in srgb,var(--tone) 13%,var(--bg));
fill:none;stroke:currentColor;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}
div{flex:1;min-width:0}
#title{font-size:1.0625em;font-weight:650;line-height:1.3;padding:.1em 1.4em .25em 0;text-wrap:balance}
#body{color:var(--dim);font-size:.9375em}
.go{border-color:var(--ok);background:color-mix(in srgb,var(--ok) 7%,var(--bg))}
.go #title{font-size:1.5em;color:var(--ok)}
.go svg{background:var(--ok);color:var(--bg)}
progress{display:block;width:100%;height:.5em;margin-top:.9em;border:0;border-radius:1em;overflow:hidden;appearance:none;background:var(--line)}
::-webkit-progress-bar{background:var(--line)}
::-webkit-progress-value{background:var(--tone)}
::-moz-progress-bar{background:var(--tone)}
#facts,ol{margin-top:.4em;font-size:.8125em;color:var(--dim);font-variant-numeric:tabular-nums}
nav{display:flex;flex-wrap:wrap;align-items:center;gap:.6em 1em;margin-top:.9em;font-size:.9375em}
nav:empty{display:none}
nav button,.main{min-height:2.75em;padding:.55em 1.15em;border:1px solid var(--line);border-radius:calc(var(--r)*.65);background:0 0;color:inherit;font-weight:550;text-align:center;cursor:pointer}
a{color:var(--accent)}
nav .main{border-color:var(--accent);background:var(--accent);color:var(--hoop-accent-text,var(--bg));text-decoration:none}
nav :hover{filter:brightness(.93)}
code{font-size:.8em;color:var(--dim);margin-inline-start:auto}
.close{position:absolute;top:.5em;inset-inline-end:.5em;width:2em;height:2em;border:0;background:0 0;color:var(--dim);font-size:1.25em;line-height:1;cursor:pointer}
ol{display:flex;gap:3px;margin-top:1.1em;list-style:none;line-height:1.3}
li{flex:1;padding:.4em .4em 0 0;border-top:4px solid var(--line)}
.done{border-color:var(--ok);color:var(--fg)}
[role=status]{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
@media(max-width:30rem){nav button,.main{flex:1 0 auto}svg{width:2.1em;height:2.1em;padding:.4em}}
@media(prefers-reduced-motion:no-preference){.looking path,.handing:not(.go) path{animation:a 1.8s ease-in-out infinite}@keyframes a{50%{opacity:.45}}}
@media(forced-colors:active){progress{appearance:auto}}`;
