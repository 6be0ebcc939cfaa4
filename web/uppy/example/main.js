// A page with Uppy's dashboard. The one line that makes it drop and walk is `.use(Hoop, …)` in place of `.use(XHRUpload, …)`.

import Uppy from "@uppy/core";
import Dashboard from "@uppy/dashboard";
import "@uppy/core/css/style.min.css";
import "@uppy/dashboard/css/style.min.css";
import Hoop from "@hoop/uppy";

const csrf = document.querySelector("meta[name=csrf]")?.content;
const uppy = new Uppy({ meta: csrf ? { csrf } : {} })
  .use(Dashboard, { inline: true, target: "#uppy", width: "100%", theme: "auto", proudlyDisplayPoweredByUppy: false })
  .use(Hoop, { endpoint: "/photos", fieldName: "photo", headers: { accept: "application/json" } });

uppy.on("hoop-delivered", (files) => uppy.info(`${files.length} delivered`, "success", 10_000));
globalThis.uppy = uppy;
