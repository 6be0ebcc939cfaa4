// When the straight way to the gateway fails, says in the console, once, which of the page's own headers stand in the way
// and what to write instead (docs/browser.md, "What breaks it").

import { select } from "./native.ts";

/** What is known of the page. */
export interface Page {
  secure: boolean;
  framed: boolean;
  /** A response header, or null. */
  header(name: string): string | null;
  /** `<meta http-equiv=Content-Security-Policy>`. */
  metas: readonly string[];
  /** Addresses that `connect-src` has been seen to block. */
  blocked: readonly string[];
}

let told = false;

/** Looks at the page and says what it found; the second time, nothing. `blocked`: see `Page`. */
export async function diagnose(gateways: readonly string[], blocked: readonly string[]): Promise<void> {
  if (told) return;
  told = true;
  const answer = await fetch(location.href, { method: "HEAD", cache: "no-store" }).catch(() => undefined);
  const metas = select<HTMLMetaElement>("meta[http-equiv=Content-Security-Policy i]").map((meta) => meta.content);
  const page = { secure: isSecureContext, framed: self !== top, header: (name: string) => answer?.headers.get(name) ?? null, metas, blocked };
  for (const finding of findings(page, gateways)) console.warn(`Hoop: ${finding}`);
}

/** What stands in the way, each with its remedy. */
export function findings(page: Page, gateways: readonly string[]): string[] {
  if (!page.secure) return ["this page is not a secure context, so there is no WebCrypto and no leave for the local network. Serve it over https."];
  const found: string[] = [];
  const policies = [page.header("content-security-policy") ?? "", ...page.metas].join(";").toLowerCase();
  for (const gateway of gateways) {
    if (!page.blocked.some((uri) => URL.canParse(uri) && new URL(uri).origin === gateway)) continue;
    found.push(`Content-Security-Policy does not let this page reach the gateway. Add ${gateway} to connect-src.`);
  }
  if (policies.includes("upgrade-insecure-requests")) {
    found.push("Content-Security-Policy: upgrade-insecure-requests makes the gateway's address https. Leave it out of pages with uploads.");
  }
  if (/(^|[;,]) *sandbox/.test(policies)) found.push("Content-Security-Policy: sandbox takes the page's origin or windows. Leave it out, or add allow-same-origin allow-popups.");
  const opener = page.header("cross-origin-opener-policy")?.split(";")[0]!.trim();
  if (opener === "same-origin" || opener === "noopener-allow-popups") {
    found.push(`Cross-Origin-Opener-Policy: ${opener} cuts off the bridge window. Use same-origin-allow-popups.`);
  }
  for (const [, name, allowed] of (page.header("permissions-policy") ?? "").matchAll(/(?<![\w-])(local-network(?:-access)?)=(\([^)]*\)|[^,\s]+)/g)) {
    if (!/\*|self/.test(allowed!)) found.push(`Permissions-Policy: ${name}=${allowed} forbids what the visitor could allow. Use ${name}=(self).`);
  }
  if (page.framed) found.push("this page is in a frame. If that is of another site, it needs <iframe allow=\"local-network\">.");
  return found;
}
