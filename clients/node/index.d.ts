import type { RedisOptions } from "ioredis";

/** What can go wrong with a lock of jostled. */
export class LockError extends Error {}
/** Somebody else had the lock for the whole wait. */
export class NotGranted extends LockError {}
/** The daemon did not answer in time, or could not be reached; the connection is closed. */
export class NoAnswer extends LockError {}
/** Somebody else may hold the lock, or may have held it meanwhile. */
export class LockLost extends LockError {}
/** The daemon answered with an error, whose text this is. */
export class Refused extends LockError {}

export interface Settings {
  /** How long an answer may take, beyond the wait where there is one; 5000. */
  timeoutMs?: number;
  /** How often LOCK is sent again when no answer came; 0. */
  retries?: number;
}

export interface Wish {
  /** How long to wait for the grant; 10000. Infinity: without limit. */
  waitMs?: number;
  /** Makes the lock a lease, renewed at a third of it. */
  ttlMs?: number;
  shared?: boolean;
  /** Asks for one of so many places. */
  of?: number;
  signal?: AbortSignal;
  /** Called once when the lock is lost before it is released. */
  onLost?: (held: Held) => void;
}

export class Locks {
  constructor(options?: RedisOptions, settings?: Settings);
  acquire(name: string, wish?: Wish): Promise<Held>;
  using<T>(name: string, wish: Wish, work: (held: Held) => T | Promise<T>): Promise<T>;
}

export class Held {
  readonly name: string;
  /** The fencing token: larger than that of every earlier grant. */
  readonly token: number;
  /** Whether somebody else may hold the lock by now. */
  readonly lost: boolean;
  /** Throws LockLost if the lock is lost. */
  check(): void;
  /** Rejects with LockLost unless the daemon confirms that the lock was held until now. */
  release(): Promise<void>;
}
