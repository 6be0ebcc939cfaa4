// Bad weather: leave that is taken back, windows that are blocked, gateways that vanish, change, or have no room. Whatever happens, the
// photos are at the application once, as they were, and the page has said what became of them.

import assert from "node:assert/strict";
import { scenarios } from "./scenarios.js";

/** Three segments of the library's, and where the second is under way. */
const LARGE = 20_000_000;
const HALF = 11_000_000;
/** Two segments, which are under way at once: no answer is needed for all of it to go out. */
const AT_ONCE = 12_000_000;
const SECOND_GATEWAY = 24667;

scenarios(({ test, browser }) => {
  const inChromium = browser === "chromium";
  const question = inChromium ? "offer" : "bridge";
  const helped = inChromium ? "direct" : "bridge";

  /** Chooses a photo, sends it, and waits for the question of the gateway; returns the photo. */
  async function send(scene, bytes = LARGE) {
    scene.states.length = 0;
    const photo = await scene.house.photo(`${bytes}.jpg`, bytes);
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await scene.until(() => scene.states.at(-1)?.question === question, `the question ${question}`);
    return photo;
  }

  /** Accepts the gateway's help, and waits until half of the photo has left the page. What follows is held before the gateway. */
  async function toHalf(scene) {
    const half = scene.house.links.gateway.holdAfter(HALF);
    await scene.answer(question, "proceed");
    await half;
  }

  /** The gateway has gone: its window tries for half a minute, and then the page asks; it is told to send the rest itself. */
  async function onToService(scene) {
    const again = [];
    const window = inChromium ? undefined : await scene.window();
    window?.on("request", (request) => request.method() === "HEAD" && again.push(request.url()));
    await window?.evaluate(hastenClock);
    await scene.answer("retry", "decline");
    assert.deepEqual(again, [], "the window is not sent to try once more");
    assert.equal((await scene.state("delivered")).way, "service");
    assert.ok(!scene.states.some(({ phase }) => phase === "free"), "nobody was told that the gateway has it all");
  }

  test("a gateway that vanishes, whenever it does, costs patience and nothing else", {
    permission: "granted", hurry: true, house: { links: ["gateway"] },
  }, async (scene) => {
    const { house } = scene;
    const wire = house.links.gateway;
    const photos = [];

    // Before anything has reached it; in Chromium it had been found.
    photos.push(await send(scene, 100_000));
    await wire.cut();
    await scene.answer(question, "proceed");
    if (inChromium) await onToService(scene);
    // The browser says in the window that nobody is there.
    else assert.equal((await scene.state("ordinary")).error, "no-gateway");
    await house.assertArrived(...photos);
    // An hour later the window is offered again.
    await scene.page.evaluate(() => localStorage.clear());
    await wire.mend();

    // With half of it: the service gets the rest under the same ticket.
    photos.push(await send(scene));
    await toHalf(scene);
    await wire.cut();
    await onToService(scene);
    await house.assertArrived(...photos);
    await wire.mend();

    // With all of it, while its answers are lost: it delivers, too, and that is no second copy.
    photos.push(await send(scene, AT_ONCE));
    await toHalf(scene);
    const { id } = await scene.state((state) => state.id);
    wire.mute();
    wire.release();
    await house.gatewaySays(id, ["stored", "delivering", "received", "accepted"]);
    await wire.cut();
    await onToService(scene);
    await house.gatewaySays(id, ["accepted"]);
    await house.assertArrived(...photos);
  });

  test("a gateway that dies and starts again loses nothing, neither half-way nor after \"free to leave\"", {
    permission: "granted", house: { links: ["gateway", "delivery"] },
  }, async (scene) => {
    const { house } = scene;
    const delivering = house.links.delivery.holdAfter(0);
    const photo = await send(scene);
    await toHalf(scene);
    await house.gateway.stop("SIGKILL");
    await house.startGateway();
    house.links.gateway.release();
    const free = await scene.state("free");
    assert.equal(free.way, helped);
    assert.ok(!scene.states.some((state) => state.question === "retry"), "nobody was asked");

    await delivering;
    await house.gateway.stop("SIGKILL");
    assert.deepEqual(house.arrived, []);
    house.links.delivery.release();
    await house.startGateway();
    await scene.state("delivered");
    await house.gatewaySays(free.id, ["accepted"]);
    await house.assertArrived(photo);
  });

  test("a gateway without room: the photo goes to the service under the same ticket, once", {
    permission: "granted", house: { gatewayFlags: ["--quota", "4M"] },
  }, async (scene) => {
    const photo = await send(scene);
    await scene.answer(question, "proceed");
    assert.equal((await scene.state("delivered")).way, "service");
    await scene.house.assertArrived(photo);
  });

  test("a window that the browser blocks: the photo goes the ordinary way, once, and the page knows why", {
    permission: "denied",
  }, async (scene) => {
    await scene.page.evaluateOnNewDocument(() => (window.open = () => null));
    const photo = await scene.house.photo("a.jpg");
    await scene.open();
    await scene.choose([photo]);
    await scene.submit();
    await scene.answer("bridge", "proceed");
    assert.equal((await scene.state("ordinary")).error, "popup-blocked");
    await scene.house.assertArrived(photo);
  });

  if (!inChromium) return;

  test("two gateways behind one name, each with a part, deliver the photo once", {
    permission: "granted", house: { links: ["gateway"] },
  }, async (scene) => {
    const { house } = scene;
    await house.startGateway({ spool: "second", port: SECOND_GATEWAY });
    const photo = await send(scene);
    await toHalf(scene);
    await house.links.gateway.turn(SECOND_GATEWAY);
    assert.equal((await scene.state("free")).way, "direct");
    await scene.state("delivered");
    await house.assertArrived(photo);
  });

  test("leave that is taken back in mid-upload: the window takes the rest, and the photo arrives once", {
    permission: "granted", hurry: true, house: { links: ["gateway"] },
  }, async (scene) => {
    const photo = await send(scene);
    await toHalf(scene);
    await scene.answerLocalNetwork("denied");
    await scene.house.links.gateway.cut();
    await scene.house.links.gateway.mend();
    await scene.answer("retry", "proceed");
    assert.equal((await scene.state("free")).way, "bridge");
    await scene.state("delivered");
    await scene.house.assertArrived(photo);
  });
});

/** From now on a page's clock goes ten times as fast. */
function hastenClock() {
  const now = performance.now.bind(performance);
  const from = now();
  performance.now = () => from + 10 * (now() - from);
}
