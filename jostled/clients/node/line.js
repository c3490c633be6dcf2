import dns from "node:dns/promises";
import { isIP } from "node:net";
import { Redis, ReplyError } from "ioredis";

/** How long one of several addresses of the daemon's name may take to connect. */
const ADDRESS_MS = 1000;

/** What can go wrong with a lock of jostled. */
export class LockError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Somebody else had the lock for the whole wait. */
export class NotGranted extends LockError {}

/**
 * The daemon did not answer in time, or could not be reached.
 *
 * The connection is closed, which takes the request out of the line. A lock that
 * was granted in that moment ends with the connection; a lease, after four
 * timeouts at most, since it gets its length only when its grant is known.
 */
export class NoAnswer extends LockError {}

/** Somebody else may hold the lock, or may have held it meanwhile. */
export class LockLost extends LockError {}

/** The daemon answered with an error, whose text this is. */
export class Refused extends LockError {}

/** Refused or NoAnswer; names the options where a refusal names commands of the protocol. */
function ours(cause) {
  if (!(cause instanceof ReplyError)) return new NoAnswer(cause.message, { cause });
  const unknown = cause.message.startsWith("NOAUTH");
  const give = "NOAUTH give user and password: `username` and `password` beside `host`";
  return new Refused(unknown ? give : cause.message, { cause });
}

/** A connection of one lock's own; what is not answered in time closes it. */
export class Line {
  #redis;
  #options;
  #timeoutMs;
  #addresses;
  #address;
  #connecting;
  /** The error of a connection that is closed. */
  #ended;
  /** Who is told when it is closed. */
  #waiting = new Set();

  /** `addresses.silent` is the address that was silent last: it is tried last. */
  constructor(options, timeoutMs, addresses) {
    [this.#options, this.#timeoutMs, this.#addresses] = [options, timeoutMs, addresses];
  }

  /** Tries the addresses of the name, each for as long as one may take. */
  async #connect() {
    const { host = "localhost", path, family = 0 } = this.#options;
    const name = path === undefined && isIP(host) === 0;
    const found = name ? await dns.lookup(host, { all: true, family }) : [{ address: host }];
    const silent = ({ address }) => Number(address === this.#addresses.silent);
    found.sort((one, other) => silent(one) - silent(other));
    let why;
    for (const { address } of found) {
      if (this.#ended) throw this.#ended;
      const limitMs = Math.min(this.#timeoutMs, found.length > 1 ? ADDRESS_MS : Infinity);
      const error = await this.#try(address, limitMs, name ? { servername: host } : {});
      if (error === undefined) return;
      why = error;
      if (error.code === "ETIMEDOUT") this.#addresses.silent = address;
    }
    throw why;
  }

  /**
   * ioredis would connect again and send again what was not answered: all of
   * that is off.
   */
  async #try(host, limitMs, names) {
    const tls = this.#options.tls && { ...names, ...this.#options.tls };
    const redis = (this.#redis = new Redis({
      keepAlive: 1000,
      ...this.#options,
      ...(this.#options.path === undefined && { host, tls }),
      lazyConnect: true,
      connectTimeout: limitMs,
      retryStrategy: null,
      reconnectOnError: null,
      maxRetriesPerRequest: 0,
      autoResendUnfulfilledCommands: false,
      autoResubscribe: false,
      enableReadyCheck: false,
      enableOfflineQueue: false,
      enableAutoPipelining: false,
      commandTimeout: undefined,
      socketTimeout: undefined,
      blockingTimeout: undefined,
    }));
    // ioredis awaits the first answers, too.
    this.#address = host;
    let why;
    redis.on("error", (error) => (why = error));
    try {
      await redis.connect();
    } catch (error) {
      redis.disconnect();
      this.#address = undefined;
      return why ?? error;
    }
    const gone = new Error("the connection was closed");
    redis.on("close", () => this.#end(ours(why ?? gone)));
    if (redis.status === "end") this.#end(ours(why ?? gone));
  }

  /** Tells, once, that the connection is closed. */
  #end(error) {
    if (this.#ended) return;
    this.#ended = error;
    for (const call of this.#waiting) queueMicrotask(() => call(error));
  }

  /** Calls back when the connection is closed by whomever. */
  onClose(call) {
    if (this.#ended) queueMicrotask(() => call(this.#ended));
    else this.#waiting.add(call);
  }

  /** The reply, or NoAnswer or Refused; waits for at most `limitMs`, and for `signal`. */
  async ask(words, limitMs, signal) {
    return (await this.askAll([words], limitMs, signal))[0];
  }

  /** The replies to commands that are sent at once; Refused if one of them is. */
  async askAll(commands, limitMs, signal) {
    signal?.throwIfAborted();
    // Each request has its own promise. A promise that lives as long as the connection
    // would keep the memory of every request that raced with it.
    let end;
    const ended = new Promise((_, reject) => (end = reject));
    this.onClose(end);
    const late = `no answer to ${commands[0][0]} within ${Math.round(limitMs)} ms`;
    const timer = limitMs !== undefined && setTimeout(end, limitMs, new NoAnswer(late));
    const aborted = () => end(signal.reason);
    signal?.addEventListener("abort", aborted);
    try {
      return await Promise.race([this.#exchange(commands), ended]);
    } catch (error) {
      if (error instanceof ReplyError) throw ours(error);
      this.close();
      if (!signal?.aborted) this.#addresses.silent = this.#address ?? this.#addresses.silent;
      if (signal?.aborted || error instanceof LockError) throw error;
      throw ours(error);
    } finally {
      this.#waiting.delete(end);
      clearTimeout(timer);
      signal?.removeEventListener("abort", aborted);
    }
  }

  async #exchange(commands) {
    await (this.#connecting ??= this.#connect());
    const sent = commands.map((words) => this.#redis.call(...words));
    const replies = await Promise.allSettled(sent);
    const errors = replies.filter((reply) => reply.status === "rejected").map((reply) => reply.reason);
    // What was not answered says more than what was refused before it.
    const error = errors.find((error) => !(error instanceof ReplyError)) ?? errors[0];
    if (error !== undefined) throw error;
    return replies.map((reply) => reply.value);
  }

  close() {
    this.#end(new NoAnswer("the connection was closed"));
    this.#redis?.disconnect();
  }
}
