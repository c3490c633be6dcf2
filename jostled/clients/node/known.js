/**
 * What this program knows of the locks of a session.
 *
 * A request that got no answer may have been granted. Asked again, the daemon refuses
 * with `ALREADYHELD token mode`. The hold is that of the unanswered request, unless
 * another part of this program has it: each token is given out once. A name is
 * remembered as long as it is held, asked for or in doubt, so that a reply that comes
 * late cannot claim what was released meanwhile.
 */
export class Known {
  #names = new Map();

  /** Begins a request for a name; `forget` ends it. */
  ask(name) {
    this.#entry(name).users++;
  }

  /** A request got no answer; it may be granted at any later time. */
  doubt(name) {
    this.#entry(name).inDoubt = true;
  }

  /** Whether the token is new; then it is this caller's alone, until `forget`. */
  claim(name, token) {
    const [entry, number] = [this.#entry(name), Number(token)];
    if (number <= entry.last) return false;
    entry.last = number;
    entry.users++;
    return true;
  }

  /** The token of an unanswered request that was granted, if a refusal tells of one. */
  adopt(name, mode, refusal) {
    const found = refusal.match(/^ALREADYHELD (\d+) (\w+)/);
    if (!found || found[2] !== mode || !this.#entry(name).inDoubt) return undefined;
    const token = Number(found[1]);
    return this.claim(name, token) ? token : undefined;
  }

  /** A request has ended, or a claimed lock was released. */
  forget(name) {
    const entry = this.#entry(name);
    entry.users--;
    if (entry.users === 0 && !entry.inDoubt) this.#names.delete(name);
  }

  #entry(name) {
    let entry = this.#names.get(name);
    if (!entry) this.#names.set(name, (entry = { last: -1, users: 0, inDoubt: false }));
    return entry;
  }
}
