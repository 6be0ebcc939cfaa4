import type { BasePlugin, Body, Meta, PluginOpts, Uppy, UppyFile } from "@uppy/core";
import type { OffloadOptions } from "hoop";

export interface HoopOptions<M extends Meta, B extends Body> extends PluginOpts {
  /** Where the application takes uploads: a URL of this page's own origin. */
  endpoint: string;
  /** POST, PUT or PATCH. Default POST. */
  method?: string;
  /** Header fields, or a function that makes them. */
  headers?: Record<string, string> | ((files: UppyFile<M, B>[]) => Record<string, string>);
  /** Whether all files go in one request, which asks the user once. Default true; false: a request each, one after another. */
  bundle?: boolean;
  /** The field of the files. Default `files[]`, or `file` without `bundle`. */
  fieldName?: string;
  /** Metadata that becomes fields: all (the default), none, or those named. */
  allowedMetaFields?: boolean | string[];
  /** Handed to `offload`: policy, gateways, card, caption, … */
  hoop?: Omit<OffloadOptions, "signal" | "onprogress">;
}

/** Uppy's `upload-success` means that the files are on the gateway's disk and the page may go: `body.hoop` is the upload's id,
 *  `uploadURL` the gateway's page about it. Without a gateway the files go the ordinary way, and `body` is what the application
 *  answered. */
export default class Hoop<M extends Meta, B extends Body> extends BasePlugin<HoopOptions<M, B>, M, B> {
  static VERSION: string;
  constructor(uppy: Uppy<M, B>, options: HoopOptions<M, B>);
}

declare module "@uppy/core" {
  interface UppyEventMap<M extends Meta, B extends Body> {
    /** The application has accepted what a gateway delivered, if this page is still there to hear it. */
    "hoop-delivered": (files: UppyFile<M, B>[], answer: Response) => void;
    /** It failed, or waits for the user, after `upload-success`: held, rejected, stopped, expired or unknown. */
    "hoop-failed": (files: UppyFile<M, B>[], error: Error) => void;
  }
}
