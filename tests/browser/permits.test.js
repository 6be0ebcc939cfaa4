// A service that takes uploads from certain gateways only, and has them take nothing without its permit; and a gateway that is older than permits.

import assert from "node:assert/strict";
import http from "node:http";
import { scenarios } from "./scenarios.js";

const STRANGERS = ["2b".repeat(16), "3c".repeat(16)];
/** Three segments, and where the second is under way. */
const LARGE = 20_000_000;
const HALF = 11_000_000;
const BEHIND = 24667;

/** Starts the service anew: it lists these gateways, and demands permits. */
async function list(house, names) {
  await house.service.stop();
  await house.startService(["--permits", "required", ...names.flatMap((name) => ["--gateway", name])]);
}

/** The gateway's name, as programs are told it. */
async function nameOf(house) {
  const { gateway } = await (await fetch(house.pastLink("/test"))).json();
  assert.match(gateway, /^[\da-f]{32}$/);
  return gateway;
}

async function send(scene, bytes) {
  const photo = await scene.house.photo("a.jpg", bytes);
  await scene.open();
  await scene.choose([photo]);
  await scene.submit();
  return photo;
}

const TICKETS = "POST https://photos.example/hoop/tickets";
const asked = (scene, start) => scene.requests.filter((request) => request.startsWith(start)).length;

/** The gateway as it was before permits: its preflight does not let them through. */
async function startOlder(port) {
  const permits = [];
  const server = http.createServer((request, response) => {
    if (request.method === "PUT") permits.push(request.headers["hoop-permit"]);
    const forward = http.request({ host: "127.0.0.1", port, method: request.method, path: request.url, headers: request.headers }, (answer) => {
      const allowed = answer.headers["access-control-allow-headers"];
      if (allowed) answer.headers["access-control-allow-headers"] = allowed.replace("Hoop-Permit, ", "");
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    forward.on("error", () => response.destroy());
    request.pipe(forward);
  });
  await new Promise((resolve, reject) => server.on("error", reject).listen(4667, "127.0.0.1", resolve));
  const stop = () => new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  });
  return { permits, stop };
}

scenarios(({ test, browser }) => {
  if (browser === "firefox") {
    test("of the gateways that a service lists, the one that is here takes the photo by its window, with a permit in its name", {}, async (scene) => {
      await list(scene.house, [STRANGERS[0], await nameOf(scene.house), STRANGERS[1]]);
      const photo = await send(scene);
      await scene.answer("bridge", "proceed");
      assert.equal((await scene.state("free")).way, "bridge");
      await scene.state("delivered");
      await scene.house.assertArrived(photo);
      assert.equal(asked(scene, TICKETS), 2, "the second ticket is for the gateway that said who it is");
    });
    return;
  }

  test("a gateway gets the photo if the service lists it, with a permit in its name, and nothing if not", { permission: "granted" }, async (scene) => {
    const { house } = scene;
    const name = await nameOf(house);
    const photos = [];
    for (const [listed, way, tickets] of [
      [[STRANGERS[0], name, STRANGERS[1]], "direct", 2], [[name], "direct", 1], [STRANGERS, "ordinary", 1], [STRANGERS.slice(1), "ordinary", 1],
    ]) {
      await list(house, listed);
      scene.states.length = scene.requests.length = 0;
      photos.push(await send(scene));
      await scene.answer("offer", "proceed");
      const over = await scene.state(way === "direct" ? "delivered" : "ordinary");
      assert.deepEqual([over.way, over.error], [way, way === "direct" ? undefined : "gateway-forbidden"], `${listed}`);
      await house.assertArrived(...photos);
      assert.deepEqual([asked(scene, TICKETS), asked(scene, "PUT http://hoop.local")], [tickets, way === "direct" ? 1 : 0], `${listed}`);
    }
  });

  test("when a listed gateway vanishes half-way, the page brings the rest itself, to a service that demands to know who brings it", {
    permission: "granted", hurry: true, house: { links: ["gateway"] },
  }, async (scene) => {
    const { house } = scene;
    await list(house, [STRANGERS[0], await nameOf(house)]);
    const photo = await send(scene, LARGE);
    const half = house.links.gateway.holdAfter(HALF);
    await scene.answer("offer", "proceed");
    await half;
    await house.links.gateway.cut();
    await scene.answer("retry", "decline");
    assert.equal((await scene.state("delivered")).way, "service");
    await house.assertArrived(photo);
    assert.equal(asked(scene, "POST https://photos.example/photos"), 0, "nothing went the ordinary way");
  });

  test("a gateway that is older than permits takes the photos without", { permission: "granted", house: { gateway: false } }, async (scene) => {
    const { house } = scene;
    await house.startGateway({ port: BEHIND });
    const older = await startOlder(BEHIND);
    try {
      const photo = await send(scene, LARGE);
      await scene.answer("offer", "proceed");
      assert.equal((await scene.state("free")).way, "direct");
      await scene.state("delivered");
      await house.assertArrived(photo);
      assert.ok(!scene.states.some(({ question }) => question === "retry"), "nobody was asked");
      assert.deepEqual(older.permits, [undefined, undefined, undefined], "each segment came once");
    } finally {
      await older.stop();
    }
  });
});
