import { Redis, ReplyError } from "ioredis";

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
 * was granted in that moment ends with the connection; a lease, after the
 * timeout, since it gets its length only when its grant is known.
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
  #connecting;
  /** The error of a connection that is closed. */
  #ended;
  /** Who is told when it is closed. */
  #waiting = new Set();

  /**
   * ioredis would connect again and send again what was not answered: all of
   * that is off. `connect` is awaited by the first command.
   */
  constructor(options, timeoutMs) {
    this.#redis = new Redis({
      keepAlive: 10_000,
      ...options,
      lazyConnect: true,
      connectTimeout: timeoutMs,
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
    });
    let why = new Error("the connection was closed");
    this.#redis.on("error", (error) => (why = error));
    this.#redis.on("close", () => {
      this.#ended = ours(why);
      for (const call of this.#waiting) queueMicrotask(() => call(this.#ended));
    });
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
      if (signal?.aborted || error instanceof LockError) throw error;
      throw ours(error);
    } finally {
      this.#waiting.delete(end);
      clearTimeout(timer);
      signal?.removeEventListener("abort", aborted);
    }
  }

  async #exchange(commands) {
    await (this.#connecting ??= this.#redis.connect());
    const sent = commands.map((words) => this.#redis.call(...words));
    const replies = await Promise.allSettled(sent);
    const errors = replies.filter((reply) => reply.status === "rejected").map((reply) => reply.reason);
    // What was not answered says more than what was refused before it.
    const error = errors.find((error) => !(error instanceof ReplyError)) ?? errors[0];
    if (error !== undefined) throw error;
    return replies.map((reply) => reply.value);
  }

  close() {
    this.#redis.disconnect();
  }
}
