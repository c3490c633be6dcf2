import { LockLost, NoAnswer, Refused } from "./line.js";

const UNRENEWED = "it ended, and no renewal was answered";

/**
 * Something that a connection owns, or that is renewed until it is given back.
 *
 * `grant` has `title`, for errors, and `renewal` and `ending`, the commands that
 * renew it (or ask whether its connection lives) and end it; `ttlMs` is undefined for what its connection owns.
 */
export class Kept {
  #grant;
  #ttlMs;
  #term;
  #line;
  #newLine;
  #onLost;
  #reason;
  #over = false;
  /** A renewal waits for its answer. */
  #renewing = false;
  #finished;
  #timers = {};
  #confirming = Promise.resolve();

  constructor({ grant, ttlMs, term, line, newLine, onLost }) {
    [this.#grant, this.#ttlMs, this.#term] = [grant, ttlMs, term];
    [this.#line, this.#newLine, this.#onLost] = [line, newLine, onLost];
    this.#later(term.soonMs);
    this.#heed();
    if (ttlMs) this.#watch();
  }

  /** Whether somebody else may hold the lock by now. */
  get lost() {
    return this.#reason !== undefined || (this.#finished === undefined && this.#term.isOver());
  }

  /** Throws LockLost if the lock is lost: call it before what must not happen twice. */
  check() {
    if (this.lost) throw this._error();
  }

  /** Whether it is being given back, or lost. */
  get _over() {
    return this.#over;
  }

  /** Gives it back, once; LockLost unless the daemon confirms that it was held until now. */
  _finish() {
    this.#over = true;
    clearTimeout(this.#timers.renewal);
    clearTimeout(this.#timers.end);
    this.#finished ??= this.#finish();
    return this.#finished;
  }

  async #finish() {
    await this.#confirming;
    try {
      if (this.#reason !== undefined || this.#term.isOver()) throw this._error();
      await this.#end();
    } catch (error) {
      if (error instanceof LockLost) throw error;
      this.#reason = `its release was not confirmed: ${error.message}`;
      throw this._error(error);
    } finally {
      this.#line.close();
    }
  }

  async #end() {
    const { ending } = this.#grant;
    try {
      await this.#line.askAll(ending, this.#term.answerMs);
    } catch (error) {
      // Without a lease the connection is gone, and the lock with it.
      if (!(error instanceof NoAnswer) || !this.#ttlMs) throw error;
      this.#line = this.#newLine();
      await this.#line.askAll(ending, this.#term.answerMs);
    }
  }

  /** Without a lease the connection's end is that of the lock; a lease is renewed at once. */
  #heed() {
    const line = this.#line;
    line.onClose((error) => {
      if (!this.#ttlMs) return this._lose(error.message);
      if (this.#over || this.#renewing || line !== this.#line) return;
      clearTimeout(this.#timers.renewal);
      this.#line = this.#newLine();
      this.#heed();
      this.#later(0);
    });
  }

  #later(pauseMs) {
    this.#timers.renewal = setTimeout(() => (this.#confirming = this.#confirm()), pauseMs);
  }

  /** Renews a lease; without one, asks whether the connection lives. */
  async #confirm() {
    let pauseMs = this.#term.everyMs;
    this.#renewing = true;
    const sent = performance.now();
    try {
      const limitMs = Math.max(0, Math.min(this.#term.answerMs, this.#term.leftMs()));
      await this.#line.askAll(this.#grant.renewal, limitMs);
      this.#term.extend(sent);
    } catch (error) {
      if (!this.#ttlMs || error instanceof Refused) this._lose(error.message);
      else {
        [this.#line, pauseMs] = [this.#newLine(), this.#term.againMs];
        this.#heed();
      }
    }
    this.#renewing = false;
    if (!this.#over) this.#later(pauseMs);
    else if (this.#reason !== undefined) this.#line.close();
  }

  /** A renewal may be waiting for its answer when the lease ends. */
  #watch() {
    const leftMs = this.#term.leftMs();
    if (leftMs <= 0) return this._lose(UNRENEWED);
    // A timer takes 32 bits.
    this.#timers.end = setTimeout(() => this.#watch(), Math.min(leftMs, 2 ** 31 - 1));
  }

  /** Marks it as lost, which is final, and tells once. */
  _lose(reason) {
    if (this.#over) return;
    [this.#over, this.#reason] = [true, reason];
    clearTimeout(this.#timers.renewal);
    clearTimeout(this.#timers.end);
    this.#line.close();
    this.#onLost?.(this);
  }

  _error(cause, reason = this.#reason ?? UNRENEWED) {
    return new LockLost(`${this.#grant.title}: ${reason}`, { cause });
  }
}

/** A lock that was granted; call `release` when done. */
export class Held extends Kept {
  constructor(name, token, kept) {
    super(kept);
    this.name = name;
    /** The fencing token: larger than that of every earlier grant. */
    this.token = token;
  }

  /**
   * Gives the lock back. Rejects with LockLost unless it was held until now: if it
   * resolves, the daemon has confirmed that the lock was held from its grant to
   * this moment. A second call has the first one's outcome.
   */
  release() {
    return this._finish();
  }
}

/** Several locks that were granted in one step, and are released together. */
export class HeldAll extends Kept {
  constructor(tokens, kept) {
    super(kept);
    /** The fencing token of each name, larger than those of every earlier grant; a Map. */
    this.tokens = tokens;
  }

  /** Gives the locks back, as that of Held does. */
  release() {
    return this._finish();
  }
}
