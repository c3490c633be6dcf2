import os from "node:os";
import path from "node:path";
import { Kept } from "./kept.js";
import { Known } from "./known.js";
import { LockLost, NoAnswer, Refused } from "./line.js";

/** Who opens a session, for people. Arguments may be secret. */
export function opener() {
  const user = process.env.LOGNAME ?? "?";
  const program = path.basename(process.argv[1] ?? "node");
  const text = `${user}@${os.hostname()} pid ${process.pid} ${program}`;
  return text.replace(/\p{Cc}/gu, "").slice(0, 80);
}

/**
 * A session that is open: it owns many locks, and is renewed for all of them.
 * `lost`, `check` and `onLost` are for all of its locks alike.
 */
export class Session extends Kept {
  #lock;
  #errands;
  #known = new Known();

  /**
   * `lock(name, wish, session, doubt)` gives the token of a lock that belongs to a
   * session; it calls `doubt` for each request whose answer nobody will read.
   */
  constructor(id, kept, lock) {
    super(kept);
    /** What `Locks.session` takes up again; only the same user can. Keep it secret. */
    this.id = id;
    [this.#lock, this.#errands] = [lock, new Errands(kept.newLine, kept.timeoutMs)];
  }

  /**
   * Waits for a lock of this session, as `Locks.acquire` does; a `SessionHeld`.
   *
   * Rejects with NotGranted, NoAnswer, Refused, the signal's reason, or LockLost if
   * the session is over. After NoAnswer or the signal the session may have the lock.
   * Acquire it again: that gives the lock with its token if the session has it, and
   * waits for it otherwise.
   */
  async acquire(name, wish = {}) {
    this._checkOpen();
    this.#known.ask(name);
    try {
      const held = this.#held(name, await this.#token(name, wish), true);
      held.check();
      return held;
    } finally {
      this.#known.forget(name);
    }
  }

  async #token(name, wish) {
    const mode = modeOf(wish);
    let token;
    try {
      token = await this.#lock(name, wish, this.id, () => this.#known.doubt(name));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const adopted = this.#known.adopt(name, mode, error.message);
      if (adopted !== undefined) return adopted;
      if (!error.message.startsWith("NOSESSION")) throw error;
      this._lose(error.message);
      throw this._error(error, error.message);
    }
    // Another request may be in doubt, and have taken this grant for its own.
    if (this.#known.claim(name, token)) return token;
    throw new Refused(`ALREADYHELD ${token} ${mode} by another part of this program`);
  }

  /** Runs `work(held)` under a lock of this session, and releases it. */
  async using(name, wish, work) {
    return releasing(await this.acquire(name, wish), work);
  }

  /** A lock that this session was granted before it was taken up by its `id`. */
  held(name, token) {
    return this.#held(name, token, this.#known.claim(name, token));
  }

  #held(name, token, claimed) {
    const release = async () => {
      const forget = () => {
        if (claimed) this.#known.forget(name);
        claimed = false;
      };
      try {
        await this.#errands.ask(["UNLOCK", name, String(token)]);
      } catch (error) {
        if (error instanceof Refused) forget(); // Else the session may still have it.
        throw error;
      }
      forget();
    };
    return new SessionHeld(name, token, this, release);
  }

  /**
   * Ends the session, and all locks that it still has. Rejects with LockLost unless
   * the daemon confirms that the session lasted until now.
   */
  async close() {
    try {
      await this._finish();
    } finally {
      this.#errands.close();
    }
  }

  _checkOpen() {
    this.check();
    if (this._over) throw this._error(undefined, "it was closed");
  }
}

/** A lock of a session; call `release` when done. */
export class SessionHeld {
  #session;
  #release;
  #reason;
  #released = false;

  constructor(name, token, session, release) {
    this.name = name;
    /** The fencing token: larger than that of every earlier grant. */
    this.token = token;
    [this.#session, this.#release] = [session, release];
  }

  /** Whether somebody else may hold the lock by now: it is lost with its session. */
  get lost() {
    try {
      this.check();
    } catch {
      return true;
    }
    return false;
  }

  /** Throws LockLost if the lock is lost: call it before what must not happen twice. */
  check() {
    if (this.#reason) throw this.#reason;
    if (!this.#released) this.#session._checkOpen();
  }

  /**
   * Gives the lock back. Rejects with LockLost if it was not held until now. After
   * NoAnswer the session may still have it: release it again.
   */
  async release() {
    if (this.#released) return;
    this.check();
    try {
      await this.#release();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const reason = `${this.name} (token ${this.token}): ${error.message}`;
      this.#reason = new LockLost(reason, { cause: error });
      throw this.#reason;
    }
    this.#released = true;
  }
}

/** A connection for commands that do not wait; opened when needed. */
class Errands {
  #newLine;
  #limitMs;
  #line;

  constructor(newLine, limitMs) {
    [this.#newLine, this.#limitMs] = [newLine, limitMs];
  }

  /** The reply, or NoAnswer or Refused. A connection that has ended is replaced once. */
  async ask(words) {
    const line = (this.#line ??= this.#newLine());
    try {
      return await line.ask(words, this.#limitMs);
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
    }
    // Others may have replaced it meanwhile.
    if (this.#line === line) this.#line = this.#newLine();
    return this.#line.ask(words, this.#limitMs);
  }

  close() {
    this.#line?.close();
  }
}

/** What the daemon calls such a hold. */
function modeOf({ shared = false, of = 1 }) {
  if (shared) return "shared";
  return of === 1 ? "exclusive" : "place";
}

/** Runs `work(held)`, and releases what is held. */
export async function releasing(held, work) {
  let done;
  try {
    done = await work(held);
  } catch (error) {
    await held.release().catch(() => {}); // What went wrong in the work says more.
    throw error;
  }
  await held.release();
  return done;
}
