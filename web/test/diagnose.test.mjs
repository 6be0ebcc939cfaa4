// What the console says of the page's own headers.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./sources.mjs";

const { findings } = await load("diagnose");
const box = "http://hoop.local:4667";
const found = (headers, more = {}) => findings({ secure: true, framed: false, metas: [], blocked: [], header: (name) => headers[name] ?? null, ...more }, [box]);
const csp = (policy) => ({ "content-security-policy": policy });

test("a page without obstacles is told nothing", () => {
  assert.deepEqual(found({ ...csp(`default-src 'self'; connect-src 'self' ${box}`), "cross-origin-opener-policy": "same-origin-allow-popups", "permissions-policy": "local-network=(self), camera=()" }), []);
});

test("each header that breaks it is named with what to write instead", () => {
  assert.match(found({}, { blocked: [`${box}/test`] }).join(), /Add http:\/\/hoop\.local:4667 to connect-src/);
  assert.deepEqual(found({}, { blocked: ["https://elsewhere.example/"] }), []);
  assert.match(found(csp("upgrade-insecure-requests")).join(), /upgrade-insecure-requests/);
  assert.match(found({}, { metas: ["default-src 'self'; Upgrade-Insecure-Requests"] }).join(), /upgrade-insecure-requests/);
  assert.match(found(csp("sandbox allow-scripts")).join(), /sandbox/);
  assert.match(found({ "cross-origin-opener-policy": "same-origin; report-to=\"x\"" }).join(), /same-origin-allow-popups/);
  assert.match(found({ "permissions-policy": "camera=(), local-network=()" }).join(), /local-network=\(self\)/);
  assert.match(found({ "permissions-policy": "local-network=(self), local-network-access=()" }).join(), /^Permissions-Policy: local-network-access=\(\) .* local-network-access=\(self\)\.$/);
  assert.match(found({}, { framed: true }).join(), /allow="local-network"/);
});

test("on an insecure page nothing else matters", () => {
  assert.equal(found(csp("upgrade-insecure-requests"), { secure: false }).length, 1);
});
