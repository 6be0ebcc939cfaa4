// The form, where Hoop cannot help: it is sent as any form is.

import assert from "node:assert/strict";
import { scenarios } from "./scenarios.js";

scenarios(({ test }) => {
  for (const [claim, options] of [
    ["the form works with script off", { script: false }],
    ["the form works when the library is blocked", { block: ["/hoop/hoop.js"] }],
  ]) {
    test(claim, options, async (scene) => {
      const photos = [await scene.house.photo("a.jpg", 300_000), await scene.house.photo("b.jpg", 1)];
      await scene.open("/");
      await scene.choose(photos);
      await Promise.all([scene.page.waitForNavigation(), scene.submit()]);
      await scene.house.assertArrived(...photos);
      assert.equal(new URL(scene.page.url()).pathname, "/");
      assert.deepEqual(scene.states, [], "nothing of Hoop's has run");
      const asked = scene.requests.some((request) => request.endsWith("/hoop/hoop.js"));
      assert.equal(asked, options.script !== false, "the library is asked for where there is script");
    });
  }
});
