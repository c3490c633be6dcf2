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
  /** How often a request is sent again when no answer came; 0. */
  retries?: number;
}

export interface Wait {
  /** How long to wait for the grant; 10000. Infinity: without limit. */
  waitMs?: number;
  /** Ends the wait. */
  signal?: AbortSignal;
}

export interface Lease<Of> {
  /** Makes the lock a lease, renewed at a third of it. */
  ttlMs?: number;
  /** Called once when the lock is lost before it is released. */
  onLost?: (held: Of) => void;
}

export interface Kind {
  /** Asks for a reader's lock. */
  shared?: boolean;
  /** Asks for one of so many places. */
  of?: number;
}

export type Wish = Wait & Lease<Held> & Kind;
export type WishAll = Wait & Lease<HeldAll>;

export interface SessionWish {
  /** How long it lasts without a renewal; 30000. Renewed at a third of it. */
  ttlMs?: number;
  /** Takes up a session that was opened before with the same ttlMs. */
  id?: string;
  /** Called once when the session is lost before it is closed. */
  onLost?: (session: Session) => void;
  signal?: AbortSignal;
}

export class Locks {
  constructor(options?: RedisOptions, settings?: Settings);
  acquire(name: string, wish?: Wish): Promise<Held>;
  acquireAll(names: string[], wish?: WishAll): Promise<HeldAll>;
  using<T>(name: string, wish: Wish, work: (held: Held) => T | Promise<T>): Promise<T>;
  usingAll<T>(names: string[], wish: WishAll, work: (held: HeldAll) => T | Promise<T>): Promise<T>;
  session(wish?: SessionWish): Promise<Session>;
}

declare class Kept {
  protected constructor();
  /** Whether somebody else may hold the lock by now. */
  readonly lost: boolean;
  /** Throws LockLost if the lock is lost. */
  check(): void;
}

declare class Releasable extends Kept {
  /** Rejects with LockLost unless the daemon confirms that the lock was held until now. */
  release(): Promise<void>;
}

export class Held extends Releasable {
  readonly name: string;
  /** The fencing token: larger than that of every earlier grant. */
  readonly token: number;
}

export class HeldAll extends Releasable {
  /** The fencing token of each name, larger than those of every earlier grant. */
  readonly tokens: ReadonlyMap<string, number>;
}

export class SessionHeld extends Releasable {
  readonly name: string;
  /** The fencing token: larger than that of every earlier grant. */
  readonly token: number;
}

export class Session extends Kept {
  /** Takes the session up again; only the same user can. Keep it secret. */
  readonly id: string;
  acquire(name: string, wish?: Wait & Kind): Promise<SessionHeld>;
  using<T>(name: string, wish: Wait & Kind, work: (held: SessionHeld) => T | Promise<T>): Promise<T>;
  /** A lock that this session was granted before it was taken up by its id. */
  held(name: string, token: number): SessionHeld;
  /** Rejects with LockLost unless the daemon confirms that the session lasted until now. */
  close(): Promise<void>;
}

export {};
