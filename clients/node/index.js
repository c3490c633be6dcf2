import { Line, LockError, LockLost, NoAnswer, NotGranted, Refused } from "./line.js";
import { Term } from "./term.js";

export { LockError, LockLost, NoAnswer, NotGranted, Refused };

const UNRENEWED = "the lease ended, and no renewal was answered";

/** Takes locks at one daemon. */
export class Locks {
  #options;
  #timeoutMs;
  #retries;

  /**
   * `options` are ioredis's, of which what has to do with repeated sending is not
   * used. `timeoutMs` is how long an answer may take, beyond the wait where there
   * is one. `retries` is how often LOCK is sent again when no answer came: on a
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
   * without a lease at most 4/3 of the timeout after the daemon's last sign.
   *
   * Rejects with NotGranted, NoAnswer, Refused, the signal's reason, or LockLost
   * if the lease ended before its grant was known.
   */
  async acquire(name, wish = {}) {
    wish = { waitMs: 10_000, shared: false, of: 1, ...wish };
    check(wish);
    const end = performance.now() + wish.waitMs;
    for (let left = this.#retries; ; left--) {
      const line = this.#line();
      try {
        return await this.#attempt(name, wish, line, end);
      } catch (error) {
        line.close();
        if (left <= 0 || !(error instanceof NoAnswer)) throw error;
      }
      // A daemon that starts again needs a moment.
      await new Promise((go) => setTimeout(go, this.#timeoutMs / 4));
      wish.signal?.throwIfAborted();
    }
  }

  /** Runs `work(held)` under a lock, and releases it. */
  async using(name, wish, work) {
    const held = await this.acquire(name, wish);
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

  #line() {
    return new Line(this.#options, this.#timeoutMs);
  }

  /** One LOCK on a connection of its own, which stays open if it is granted. */
  async #attempt(name, wish, line, end) {
    const sent = performance.now();
    const words = ["LOCK", name];
    // A grant whose answer does not arrive leaves a lease that nobody knows of.
    // Taken for the timeout alone, it does not keep others out for long.
    const firstMs = wish.ttlMs && Math.min(wish.ttlMs, Math.ceil(this.#timeoutMs));
    if (wish.ttlMs) words.push("TTL", String(firstMs));
    let limitMs;
    if (wish.waitMs !== Infinity) {
      const leftMs = Math.max(0, Math.floor(end - sent));
      limitMs = leftMs + this.#timeoutMs;
      words.push("WAIT", String(leftMs));
    }
    if (wish.shared) words.push("SHARED");
    if (wish.of !== 1) words.push("OF", String(wish.of));
    const token = await line.ask(words, limitMs, wish.signal);
    if (token === null) throw new NotGranted(`${name}: taken by others for ${wish.waitMs} ms`);
    let term = new Term(firstMs, this.#timeoutMs, sent);
    if (firstMs !== wish.ttlMs || term.leftMs() < 2 * term.everyMs) {
      term = await this.#begin(name, wish, token, line);
    }
    return new Held(name, wish, token, term, line, () => this.#line());
  }

  /** Gives a lease its whole length, from now on: it began at an unknown time. */
  async #begin(name, wish, token, line) {
    const sent = performance.now();
    try {
      await line.ask(renewal(name, token, wish.ttlMs), this.#timeoutMs, wish.signal);
    } catch (error) {
      if (error instanceof Refused) {
        throw new LockLost(`${name}: the lease ended before it was known`, { cause: error });
      }
      // Spares the next one the rest of a lease that nobody will use; where that
      // fails, it ends by itself after the timeout.
      const other = this.#line();
      await other.ask(release(name, token), this.#timeoutMs).catch(() => {});
      other.close();
      throw error;
    }
    return new Term(wish.ttlMs, this.#timeoutMs, sent);
  }
}

function check({ waitMs, ttlMs, shared, of }) {
  if (!(waitMs >= 0)) throw new RangeError("waitMs is at least 0");
  if (ttlMs !== undefined && !(Number.isInteger(ttlMs) && ttlMs >= 10)) {
    throw new RangeError("ttlMs is a whole number from 10, or undefined for no lease");
  }
  if (shared && of !== 1) throw new RangeError("shared locks have no places: give shared or of");
}

const renewal = (name, token, ttlMs) => ["RENEW", name, String(token), "TTL", String(ttlMs)];
const release = (name, token) => ["UNLOCK", name, String(token)];

/** A lock that was granted; call `release` when done. */
export class Held {
  #wish;
  #term;
  #line;
  #newLine;
  #reason;
  #over = false;
  #released;
  #timers = {};
  #confirming = Promise.resolve();

  constructor(name, wish, token, term, line, newLine) {
    this.name = name;
    /** The fencing token: larger than that of every earlier grant. */
    this.token = token;
    [this.#wish, this.#term, this.#line, this.#newLine] = [wish, term, line, newLine];
    this.#later(term.everyMs);
    if (wish.ttlMs) {
      this.#watch();
    } else {
      line.onClose((error) => this.#lose(error.message));
    }
  }

  /** Whether somebody else may hold the lock by now. */
  get lost() {
    return this.#reason !== undefined || (this.#released === undefined && this.#term.isOver());
  }

  /** Throws LockLost if the lock is lost: call it before what must not happen twice. */
  check() {
    if (this.lost) throw this.#error();
  }

  /**
   * Gives the lock back. Rejects with LockLost unless it was held until now: if it
   * resolves, the daemon has confirmed that the lock was held from its grant to
   * this moment. A second call has the first one's outcome.
   */
  release() {
    this.#over = true;
    clearTimeout(this.#timers.renewal);
    clearTimeout(this.#timers.end);
    this.#released ??= this.#release();
    return this.#released;
  }

  async #release() {
    await this.#confirming;
    try {
      if (this.#reason !== undefined || this.#term.isOver()) throw this.#error();
      await this.#unlock();
    } catch (error) {
      if (error instanceof LockLost) throw error;
      this.#reason = `its release was not confirmed: ${error.message}`;
      throw this.#error(error);
    } finally {
      this.#line.close();
    }
  }

  async #unlock() {
    const words = release(this.name, this.token);
    try {
      await this.#line.ask(words, this.#term.answerMs);
    } catch (error) {
      // Without a lease the connection is gone, and the lock with it.
      if (!(error instanceof NoAnswer) || !this.#wish.ttlMs) throw error;
      this.#line = this.#newLine();
      await this.#line.ask(words, this.#term.answerMs);
    }
  }

  #later(pauseMs) {
    this.#timers.renewal = setTimeout(() => (this.#confirming = this.#confirm()), pauseMs);
  }

  /** Renews a lease; without one, asks whether the connection lives. */
  async #confirm() {
    const { ttlMs } = this.#wish;
    let pauseMs = this.#term.everyMs;
    const sent = performance.now();
    try {
      const words = ttlMs ? renewal(this.name, this.token, ttlMs) : ["PING"];
      await this.#line.ask(words, this.#term.answerMs);
      this.#term.extend(sent);
    } catch (error) {
      if (!ttlMs || error instanceof Refused) this.#lose(error.message);
      else [this.#line, pauseMs] = [this.#newLine(), pauseMs / 4];
    }
    if (!this.#over) this.#later(pauseMs);
    else if (this.#reason !== undefined) this.#line.close();
  }

  /** A renewal may be waiting for its answer when the lease ends. */
  #watch() {
    const leftMs = this.#term.leftMs();
    if (leftMs <= 0) return this.#lose(UNRENEWED);
    // A timer takes 32 bits.
    this.#timers.end = setTimeout(() => this.#watch(), Math.min(leftMs, 2 ** 31 - 1));
  }

  /** Marks it as lost, which is final, and tells once. */
  #lose(reason) {
    if (this.#over) return;
    [this.#over, this.#reason] = [true, reason];
    clearTimeout(this.#timers.renewal);
    clearTimeout(this.#timers.end);
    this.#line.close();
    this.#wish.onLost?.(this);
  }

  #error(cause) {
    const reason = this.#reason ?? UNRENEWED;
    return new LockLost(`${this.name} (token ${this.token}): ${reason}`, { cause });
  }
}
