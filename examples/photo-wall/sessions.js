// Who is signed in. Sessions and the secret lie in a small file, so that a restart signs nobody out.

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";

/** Beyond so many sessions the oldest ends. */
const SESSIONS_MAX = 10_000;
const COOKIE = "session";
const ATTRIBUTES = "Path=/; HttpOnly; Secure; SameSite=Lax";

export class Sessions {
  #path;
  #secret;
  #users;
  #sessions;

  /** `users` maps names to passwords. In the clear: this is an example. */
  constructor(path, users) {
    this.#path = path;
    this.#users = users;
    const { secret = randomBytes(32).toString("hex"), sessions = [] } = read(path);
    this.#secret = secret;
    this.#sessions = new Map(sessions);
  }

  /** The user of a request, or null. */
  user(request) {
    return this.#sessions.get(cookie(request)) ?? null;
  }

  /** Whether it was the right password; the answer then carries the new session. */
  signIn(response, name, password) {
    if (typeof password !== "string" || !this.#users.has(name) || !same(this.#users.get(name), password)) return false;
    const id = randomBytes(32).toString("base64url");
    this.#sessions.set(id, name);
    if (this.#sessions.size > SESSIONS_MAX) this.#sessions.delete(this.#sessions.keys().next().value);
    this.#save();
    response.append("Set-Cookie", `${COOKIE}=${id}; ${ATTRIBUTES}`);
    return true;
  }

  signOut(request, response) {
    this.#sessions.delete(cookie(request));
    this.#save();
    response.append("Set-Cookie", `${COOKIE}=; Max-Age=0; ${ATTRIBUTES}`);
  }

  /** The token that forms carry. It is the user's and not the session's: a form that was filled in before the session ended, such as
   *  an upload that was held, is still good once the same user has signed in again, and never good for another. */
  csrf(user) {
    return createHmac("sha256", this.#secret).update(`csrf ${user}`).digest("base64url");
  }

  isCsrf(user, token) {
    return typeof token === "string" && same(this.csrf(user), token);
  }

  #save() {
    const fresh = `${this.#path}.new`;
    writeFileSync(fresh, JSON.stringify({ secret: this.#secret, sessions: [...this.#sessions] }), { mode: 0o600 });
    renameSync(fresh, this.#path);
  }
}

function read(path) {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    if (error.code === "ENOENT") return {};
    throw error;
  }
}

function cookie(request) {
  const pairs = (request.get("cookie") ?? "").split(";").map((pair) => pair.trim());
  return pairs.find((pair) => pair.startsWith(`${COOKIE}=`))?.slice(COOKIE.length + 1);
}

function same(one, other) {
  const [left, right] = [one, other].map((text) => createHmac("sha256", "same").update(text).digest());
  return timingSafeEqual(left, right);
}
