import { Held, HeldAll } from "./kept.js";
import { Line, LockError, LockLost, NoAnswer, NotGranted, Refused } from "./line.js";
import { opener, releasing, Session, SessionHeld } from "./session.js";
import { Term } from "./term.js";

export { Held, HeldAll, LockError, LockLost, NoAnswer, NotGranted, Refused, Session, SessionHeld };

/** Asks whether a connection lives. */
const PING = [["PING"]];

/** Takes locks at one daemon. */
export class Locks {
  #options;
  #timeoutMs;
  #retries;
  #addresses = {};

  /**
   * `options` are ioredis's, of which what has to do with repeated sending is not
   * used. `timeoutMs` is how long an answer may take, beyond the wait where there
   * is one. `retries` is how often a request is sent again when no answer came: on a
   * new connection, after the old one was closed.
   */
  constructor(options = {}, { timeoutMs = 5000, retries = 0 } = {}) {
    if (!(timeoutMs > 0)) throw new RangeError("timeoutMs is more than 0");
    [this.#options, this.#timeoutMs, this.#retries] = [options, timeoutMs, retries];
  }

  /**
   * Waits for a lock; a `Held`.
   *
   * `waitMs` is how long to wait for the grant: 0 to take it or leave it, Infinity
   * without limit. With `ttlMs` the lock is a lease, renewed at a third of it;
   * without, it belongs to a connection that is opened for it. `shared` for a
   * reader's lock, `of` for one of so many places. `signal` ends the wait.
   *
   * `onLost(held)` is called once when the lock is lost before it is released:
   * for a lease at its end at the latest, also when the daemon does not answer;
   * without a lease at most 4/3 of the timeout after the daemon's last sign, and 8.5 s
   * after the request for it.
   *
   * Rejects with NotGranted, NoAnswer, Refused, the signal's reason, or LockLost
   * if the lease ended before its grant was known.
   */
  async acquire(name, wish = {}) {
    wish = { waitMs: 10_000, shared: false, of: 1, ...wish };
    check(wish);
    let token;
    const kept = await this.#take(lockWords(name, wish), name, wish, (reply) => {
      token = reply;
      return {
        title: `${name} (token ${token})`,
        renewal: wish.ttlMs ? [["RENEW", name, String(token), "TTL", String(wish.ttlMs)]] : PING,
        ending: [["UNLOCK", name, String(token)]],
      };
    });
    return new Held(name, token, kept);
  }

  /**
   * Waits for several exclusive locks, all or none; a `HeldAll`. Two programs that
   * both use it do not block each other, in whatever order they name the locks.
   * Everything else is as `acquire` has it. All are lost as soon as one is.
   */
  async acquireAll(names, wish = {}) {
    wish = { waitMs: 10_000, ...wish };
    check(wish);
    const tokens = new Map();
    const words = ["LOCKALL", String(names.length), ...names];
    const kept = await this.#take(words, names.join(", "), wish, (reply) => {
      reply.forEach((token, at) => tokens.set(names[at], token));
      return {
        title: `${names.join(", ")} (tokens ${reply.join(", ")})`,
        renewal: wish.ttlMs
          ? names.map((name, at) => ["RENEW", name, String(reply[at]), "TTL", String(wish.ttlMs)])
          : PING,
        ending: names.map((name, at) => ["UNLOCK", name, String(reply[at])]),
      };
    });
    return new HeldAll(tokens, kept);
  }

  /** Runs `work(held)` under a lock, and releases it. */
  async using(name, wish, work) {
    return releasing(await this.acquire(name, wish), work);
  }

  /** Runs `work(held)` under several locks, and releases them. */
  async usingAll(names, wish, work) {
    return releasing(await this.acquireAll(names, wish), work);
  }

  /**
   * Opens a session, which owns many locks and is renewed for all of them, at a
   * third of `ttlMs`; it is lost as a lease is. With `id` it takes up a session that
   * was opened before, by this program or by one that has ended, with the same
   * `ttlMs`: LockLost if it is over.
   */
  async session({ ttlMs = 30_000, id, onLost, signal } = {}) {
    check({ waitMs: 0, ttlMs });
    const words = id === undefined
      ? ["SESSION", "OPEN", "TTL", String(ttlMs), "AS", opener()]
      : ["SESSION", "RENEW", id];
    return this.#tryOften(signal, async (line) => {
      const sent = performance.now();
      let reply;
      try {
        reply = await line.ask(words, this.#timeoutMs, signal);
      } catch (error) {
        if (id === undefined || !(error instanceof Refused)) throw error;
        throw new LockLost(`${titleOf(id)}: ${error.message}`, { cause: error });
      }
      const opened = id ?? reply;
      const grant = {
        title: titleOf(opened),
        renewal: [["SESSION", "RENEW", opened]],
        ending: [["SESSION", "CLOSE", opened]],
      };
      const kept = this.#kept(grant, { ttlMs, onLost }, new Term(ttlMs, this.#timeoutMs, sent), line);
      return new Session(opened, kept, (...lock) => this.#lockInSession(...lock));
    });
  }

  #line() {
    return new Line(this.#options, this.#timeoutMs, this.#addresses);
  }

  #kept(grant, { ttlMs, onLost }, term, line) {
    const newLine = () => this.#line();
    return { grant, ttlMs, onLost, term, line, newLine, timeoutMs: this.#timeoutMs };
  }

  /** What `attempt` makes of a connection of its own, which is closed if it fails. */
  async #tryOften(signal, attempt) {
    for (let left = this.#retries; ; left--) {
      const line = this.#line();
      try {
        return await attempt(line);
      } catch (error) {
        line.close();
        if (left <= 0 || !(error instanceof NoAnswer)) throw error;
      }
      // A daemon that starts again needs a moment.
      await new Promise((go) => setTimeout(go, this.#timeoutMs / 4));
      signal?.throwIfAborted();
    }
  }

  /** Sends a request on a connection of its own, which stays open if it is granted. */
  #take(words, name, wish, granted) {
    const end = performance.now() + wish.waitMs;
    return this.#tryOften(wish.signal, async (line) => {
      const sent = performance.now();
      // A grant whose answer does not arrive leaves a lease that nobody knows of.
      // Taken for four timeouts at most, it does not keep others out for long; by default
      // it survives a change of the member that serves.
      const firstMs = wish.ttlMs && Math.min(wish.ttlMs, Math.ceil(4 * this.#timeoutMs));
      const lease = firstMs ? ["TTL", String(firstMs)] : [];
      const grant = granted(await this.#wait([...words, ...lease], name, wish, line, end));
      let term = new Term(wish.ttlMs, this.#timeoutMs, sent, firstMs);
      if (term.isLate()) {
        term = await this.#begin(grant, wish, line);
      }
      return this.#kept(grant, wish, term, line);
    });
  }

  /** Sends a request with its wait; the reply, once it is granted. */
  async #wait(words, name, { waitMs, signal }, line, end) {
    let limitMs;
    if (waitMs !== Infinity) {
      const leftMs = Math.max(0, Math.floor(end - performance.now()));
      limitMs = leftMs + this.#timeoutMs;
      words = [...words, "WAIT", String(leftMs)];
    }
    const reply = await line.ask(words, limitMs, signal);
    if (reply === null) throw new NotGranted(`${name}: taken by others for ${waitMs} ms`);
    return reply;
  }

  /** Gives it its whole length, from now on: it began at an unknown time. */
  async #begin(grant, wish, line) {
    const sent = performance.now();
    try {
      await line.askAll(grant.renewal, this.#timeoutMs, wish.signal);
    } catch (error) {
      if (error instanceof Refused) {
        throw new LockLost(`${grant.title}: the lease ended before it was known`, { cause: error });
      }
      if (!wish.ttlMs) throw error;
      // Spares the next one the rest of a lease that nobody will use; where that
      // fails, it ends by itself, after four timeouts at most.
      const other = this.#line();
      await other.askAll(grant.ending, this.#timeoutMs).catch(() => {});
      other.close();
      throw error;
    }
    return new Term(wish.ttlMs, this.#timeoutMs, sent);
  }

  /** The token of a lock that belongs to a session. */
  #lockInSession(name, wish, session, doubt) {
    wish = { waitMs: 10_000, shared: false, of: 1, ...wish };
    if (wish.ttlMs !== undefined || wish.onLost !== undefined) {
      throw new RangeError("a lock of a session has no ttlMs and no onLost: the session has");
    }
    check(wish);
    const end = performance.now() + wish.waitMs;
    const words = [...lockWords(name, wish), "SESSION", session];
    return this.#tryOften(wish.signal, async (line) => {
      try {
        return await this.#wait(words, name, wish, line, end);
      } catch (error) {
        if (!(error instanceof NotGranted || error instanceof Refused)) doubt();
        throw error;
      } finally {
        line.close(); // The session owns the lock.
      }
    });
  }
}

function check({ waitMs, ttlMs, shared, of }) {
  if (!(waitMs >= 0)) throw new RangeError("waitMs is at least 0");
  if (ttlMs !== undefined && !(Number.isInteger(ttlMs) && ttlMs >= 10)) {
    throw new RangeError("ttlMs is a whole number from 10, or undefined for no lease");
  }
  if (shared && of !== 1) throw new RangeError("shared locks have no places: give shared or of");
}

function lockWords(name, { shared, of }) {
  const words = ["LOCK", name];
  if (shared) words.push("SHARED");
  if (of !== 1) words.push("OF", String(of));
  return words;
}

/** Does not let the readers of a log take the session up. */
const titleOf = (session) => `session ${session.slice(0, 8)}...`;
