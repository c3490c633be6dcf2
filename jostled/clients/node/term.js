/**
 * How long a lock is surely held, by this machine's monotonic clock (milliseconds).
 *
 * The end of a lease is counted from before the request was sent, so it comes
 * here before it comes at the daemon. Once over, it stays over: an answer that
 * comes too late changes nothing. A lock without a lease has no end of its own.
 */
export class Term {
  #end;
  #ttlMs;
  #over = false;

  /** `ttlMs` is undefined without a lease; `sent` is of `performance.now()`. */
  constructor(ttlMs, timeoutMs, sent) {
    this.#ttlMs = ttlMs ?? Infinity;
    this.#end = sent + this.#ttlMs;
    // How often to renew or to ask for a sign, and how long to wait for it. An
    // attempt that is not answered leaves time for two more.
    this.everyMs = (ttlMs ?? timeoutMs) / 3;
    this.answerMs = ttlMs === undefined ? timeoutMs : Math.min(timeoutMs, ttlMs / 6);
  }

  /** A request sent at `sent` was granted. */
  extend(sent) {
    if (!this.isOver()) this.#end = sent + this.#ttlMs;
  }

  /** Until the end of the lease; Infinity without one. */
  leftMs() {
    return this.#end - performance.now();
  }

  isOver() {
    this.#over ||= this.leftMs() <= 0;
    return this.#over;
  }
}
