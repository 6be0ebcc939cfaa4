// An Uppy uploader that hands sealed files to a Hoop gateway: when Uppy says "complete", the page may go.

import { BasePlugin, EventManager } from "@uppy/core";
import { filterFilesToEmitUploadStarted, filterFilesToUpload, getAllowedMetaFields } from "@uppy/core/utils";
import { HoopError, offload } from "hoop";

const DEFAULTS = { method: "POST", bundle: true, allowedMetaFields: true, headers: {} };

export default class Hoop extends BasePlugin {
  static VERSION = "0.1.0";
  #controllers = new Set();

  constructor(uppy, options) {
    super(uppy, { ...DEFAULTS, fieldName: options?.bundle === false ? "file" : "files[]", ...options });
    if (!this.opts.endpoint) throw new TypeError("@hoop/uppy needs `endpoint`, a URL of this page's own origin");
    this.type = "uploader";
    this.id = this.opts.id ?? "Hoop";
  }

  install() {
    this.uppy.addUploader(this.#upload);
    if (this.opts.bundle) this.#individualCancellation(false);
  }

  uninstall() {
    this.uppy.removeUploader(this.#upload);
    for (const controller of this.#controllers) controller.abort();
    if (this.opts.bundle) this.#individualCancellation(true);
  }

  /** One request has one fate: its files cannot be cancelled one by one. */
  #individualCancellation(individualCancellation) {
    const { capabilities } = this.uppy.getState();
    this.uppy.setState({ capabilities: { ...capabilities, individualCancellation } });
  }

  #upload = async (ids) => {
    const all = filterFilesToUpload(this.uppy.getFilesByIds(ids));
    this.uppy.emit("upload-start", filterFilesToEmitUploadStarted(all));
    const [remote, files] = [all.filter((file) => file.isRemote), all.filter((file) => !file.isRemote)];
    const why = new HoopError("not-offloadable", "@hoop/uppy takes only files from this device");
    for (const file of remote) this.uppy.emit("upload-error", file, why);
    if (files.length === 0) return;
    if (this.opts.bundle) return this.#send(files, this.uppy.getState().meta);
    // One after another: each may have a question for the user, and they share one way out.
    for (const file of files) {
      // Those that were removed while others were sent.
      if (this.uppy.getFile(file.id)) await this.#send([file], file.meta);
    }
  };

  /** Hands over one request with these files, and tells Uppy what becomes of it. */
  async #send(files, meta) {
    const controller = new AbortController();
    const events = new EventManager(this.uppy);
    this.#controllers.add(controller);
    for (const { id } of files) {
      events.onCancelAll(id, () => controller.abort());
      if (!this.opts.bundle) events.onFileRemove(id, () => controller.abort());
    }
    try {
      const receipt = await offload(this.#request(files, meta), {
        ...this.opts.hoop,
        signal: controller.signal,
        onprogress: (progress) => this.#progress(files, progress),
      });
      await this.#stored(files, receipt);
    } catch (error) {
      if (controller.signal.aborted) return;
      for (const { id } of files) this.uppy.emit("upload-error", this.uppy.getFile(id), error);
    } finally {
      this.#controllers.delete(controller);
      events.remove();
    }
  }

  #request(files, meta) {
    const body = new FormData();
    for (const name of getAllowedMetaFields(this.opts.allowedMetaFields, meta)) {
      for (const value of [meta[name]].flat()) body.append(name, value);
    }
    for (const file of files) {
      // Uppy may know the type better than the browser. The date tells the file from another when it is sent again.
      body.append(this.opts.fieldName, new File([file.data], file.name, { type: file.meta.type ?? file.type, lastModified: file.data.lastModified ?? 0 }));
    }
    const headers = typeof this.opts.headers === "function" ? this.opts.headers(files) : this.opts.headers;
    return { url: this.opts.endpoint, method: this.opts.method, headers, body };
  }

  #progress(files, { sent, total }) {
    for (const { id } of files) {
      const file = this.uppy.getFile(id);
      if (!file) continue;
      const bytesUploaded = total > 0 ? Math.round((sent / total) * file.size) : 0;
      const uploadStarted = file.progress.uploadStarted ?? Date.now();
      this.uppy.emit("upload-progress", file, { uploadStarted, bytesUploaded, bytesTotal: file.size });
    }
  }

  /** The files are on the gateway's disk, or went the ordinary way and have their answer. */
  async #stored(files, receipt) {
    const known = () => files.map(({ id }) => this.uppy.getFile(id)).filter(Boolean);
    if (receipt.way === "ordinary") {
      const answer = await receipt.delivered();
      if (!answer.ok) throw new HoopError("rejected", `the application answered ${answer.status}`);
      const response = { status: answer.status, body: await this.#body(answer) };
      return known().forEach((file) => this.uppy.emit("upload-success", file, response));
    }
    const response = { status: 201, body: { hoop: receipt.id, monitor: receipt.monitor }, uploadURL: receipt.monitor };
    known().forEach((file) => this.uppy.emit("upload-success", file, response));
    receipt.delivered().then(
      async (answer) => this.uppy.emit("hoop-delivered", known(), answer),
      (error) => this.uppy.emit("hoop-failed", known(), error),
    );
  }

  /** What the application said: JSON, or its text. */
  async #body(answer) {
    const text = await answer.text();
    try {
      return JSON.parse(text);
    } catch {
      return { text };
    }
  }
}
