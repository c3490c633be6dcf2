/** When a short first lease is made longer at the latest. */
const SOON_MS = 1000;

/**
 * A member of a group that takes over keeps what connections held for 10 s, in which they
 * are to find out. So without an answer such a lock counts as held for 0.85 of that.
 */
const CONNECTION_MS = 8500;

/**
 * How long a lock is surely held, by this machine's monotonic clock (milliseconds).
 *
 * The end of a lease is counted from before the request was sent, so it comes
 * here before it comes at the daemon. Once over, it stays over: an answer that
 * comes too late changes nothing. A lock without a lease ends with its connection, of
 * which an answer to a PING tells as a renewal does.
 */
export class Term {
  #end;
  #ttlMs;
  #firstMs;
  #over = false;

  /**
   * `ttlMs` is undefined without a lease; `sent` is of `performance.now()`; `firstMs` is
   * the length of a lease that the first renewal makes longer.
   */
  constructor(ttlMs, timeoutMs, sent, firstMs = Infinity) {
    this.#ttlMs = ttlMs ?? CONNECTION_MS;
    this.#firstMs = Math.min(firstMs, this.#ttlMs);
    this.#end = sent + this.#firstMs;
    // How often to renew or to ask for a sign, and how long to wait for it. An
    // attempt that is not answered leaves time for two more.
    this.everyMs = (ttlMs ?? Math.min(timeoutMs, CONNECTION_MS)) / 3;
    this.answerMs = ttlMs === undefined ? timeoutMs : Math.min(timeoutMs, ttlMs / 6);
    // When to do so for the first time, and after an attempt that was not answered. Who
    // holds a lock for less than a second pays no renewal.
    const longer = this.#firstMs < this.#ttlMs;
    this.soonMs = longer ? Math.min(this.#firstMs / 3, SOON_MS) : this.everyMs;
    this.againMs = Math.min(this.everyMs / 4, this.answerMs);
  }

  /** Whether the grant was waited for, so that little may be left of it. */
  isLate() {
    return this.leftMs() < (this.#firstMs * 2) / 3;
  }

  /** A request sent at `sent` was granted. */
  extend(sent) {
    if (!this.isOver()) this.#end = sent + this.#ttlMs;
  }

  /** Until the end, if nothing is answered. */
  leftMs() {
    return this.#end - performance.now();
  }

  isOver() {
    this.#over ||= this.leftMs() <= 0;
    return this.#over;
  }
}
