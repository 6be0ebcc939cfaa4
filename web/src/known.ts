// The gateways that this browser knows, for its site alone: whose key it met first at which address (IndexedDB).

const STORE = "gateways";
const NAME = "hoop-known";

/** Who is known at a gateway's origin: `name`, if nobody was met there before. Rejects where nothing can be kept. */
export async function meet(gateway: string, name: string): Promise<string> {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  const db = await new Promise<IDBDatabase>((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  try {
    // One transaction, so that two pages that meet two gateways at once agree on the first.
    const transaction = db.transaction(STORE, "readwrite", { durability: "strict" });
    const store = transaction.objectStore(STORE);
    const known = store.get(gateway);
    known.onsuccess = () => known.result ?? store.put(name, gateway);
    await new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    return (known.result as string | undefined) ?? name;
  } finally {
    db.close();
  }
}

/** From now on whoever is met first is the one that is known. */
export function forgetKnown(): void {
  try {
    indexedDB.deleteDatabase(NAME);
  } catch {}
}
