// What a browser keeps of an upload that is under way, so that it goes on after a reload (IndexedDB). Without IndexedDB (a private window,
// a browser that has it turned off) nothing is kept, and nothing is resumed.
//
// The rule that it guards: no two plaintexts are ever sealed as the same record under one K and salt. So each segment's print is on disk
// before the segment is first sent, and whoever seals it again compares.

import type { Ticket } from "./service.ts";

/** An upload, as it was laid out first. */
export interface Kept {
  /** The upload's id. */
  id: string;
  /** Whose it is: `owner` of the settings; "" for nobody. */
  owner: string;
  /** `Message.key`. */
  key: string;
  ticket: Ticket;
  salt: Uint8Array<ArrayBuffer>;
  /** T's head, as it was sealed. */
  head: string;
  /** The body's parts as they were: text, or null where the next file comes. */
  parts: (string | null)[];
}

/** The most uploads that are kept; beyond that the oldest goes. */
export const KEPT_MAX = 50;

const done = <T>(request: IDBRequest<T>) => new Promise<T>((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

let opened: Promise<IDBDatabase | undefined> | undefined;

function open(): Promise<IDBDatabase | undefined> {
  return (opened ??= (async () => {
    try {
      const request = indexedDB.open("hoop", 1);
      request.onupgradeneeded = () => {
        request.result.createObjectStore("uploads", { keyPath: "id" });
        request.result.createObjectStore("prints");
      };
      const db = await done(request);
      db.onversionchange = () => db.close();
      db.onclose = () => (opened = undefined);
      return db;
    } catch {
      return undefined;
    }
  })());
}

/** Runs `work`; resolves when it is on disk. Rejects when nothing is kept here. */
async function within<T>(work: (uploads: IDBObjectStore, prints: IDBObjectStore) => IDBRequest<T> | void): Promise<T> {
  const db = await open();
  if (!db) throw new TypeError("nothing is kept here");
  const transaction = db.transaction(["uploads", "prints"], "readwrite", { durability: "strict" });
  const request = work(transaction.objectStore("uploads"), transaction.objectStore("prints"));
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  return (request as IDBRequest<T>)?.result;
}

/** All that is kept, those that end first in front. */
const everything = async () => (await within((uploads) => uploads.getAll() as IDBRequest<Kept[]>)).sort((a, b) => a.ticket.expires - b.ticket.expires);

const printsOf = (id: string) => IDBKeyRange.bound([id], [id, []]);

/** Forgets an upload. */
export const drop = (id: string) => within((uploads, prints) => {
  uploads.delete(id);
  prints.delete(printsOf(id));
});

/** Keeps an upload; false if that cannot be. */
export async function keep(kept: Kept): Promise<boolean> {
  try {
    for (const { id } of (await everything()).slice(0, 1 - KEPT_MAX)) await drop(id);
    await within((uploads) => uploads.put(kept));
    return true;
  } catch {
    return false;
  }
}

/** The upload of `owner`, or undefined for whomever's, with this key, if one is kept that has not expired; the newest of several. `now` is the service's
 *  time (`time`); where it has not said, none has expired. */
export async function find(owner: string | undefined, key: string, now?: number): Promise<Kept | undefined> {
  try {
    let newest: Kept | undefined;
    for (const kept of await everything()) {
      if (kept.ticket.expires * 1000 < now!) await drop(kept.id);
      else if ((owner ?? kept.owner) === kept.owner && kept.key === key) newest = kept;
    }
    return newest;
  } catch {
    return undefined;
  }
}

/** Keeps the print of a segment; resolves when it is on disk, rejects if it does not get there: then the segment must not be sent while
 *  the upload is kept. */
export const keepPrint = (id: string, segment: number, print: string) => within((_, prints) => prints.put(print, [id, segment]));

/** The prints of the segments that may have been sent. */
export async function prints(id: string): Promise<Map<number, string>> {
  const found = new Map<number, string>();
  await within((_, store) => {
    store.openCursor(printsOf(id)).onsuccess = ({ target }) => {
      const cursor = (target as IDBRequest<IDBCursorWithValue | null>).result;
      if (!cursor) return;
      found.set((cursor.key as [string, number])[1], cursor.value);
      cursor.continue();
    };
  });
  return found;
}
