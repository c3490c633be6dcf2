// The loop of a lock that `jostle ... pipe:COMMAND` starts for each worker.

import { createInterface } from "node:readline";

const answer = (got) => (got === false ? "R" : got === true ? "G" : `G ${got}`);

/**
 * Answers requests until they end. `join(worker, keys)` gives the capabilities and the promise
 * ("timeout lease=2000"), then `acquire(key, shared, ms, signal)` and `release(key)`. `acquire`
 * waits for ever at -1 ms and not at all at 0; it gives true or false, or a number: a fencing
 * token. `release` may give false: the lock was no longer ours.
 *
 * "renew" among the capabilities: there is `renew(key, ms)`, which prolongs the lease to so many
 * ms from now on; false if the lock is no longer ours. "give-up": `acquire` gives false soon
 * after its signal has aborted.
 */
export async function serve(join) {
  const waiting = new Map();
  let lock;

  const outcomes = {
    A: async ([key, mode, ms], number) => {
      const controller = new AbortController();
      waiting.set(number, controller);
      const got = lock.acquire(Number(key), mode === "s", Number(ms), controller.signal);
      return Promise.resolve(got).then(answer).finally(() => waiting.delete(number));
    },
    U: async ([key], number) => {
      if ((await lock.release(Number(key))) !== false) return "K";
      return number ? "R" : "E the lock was no longer ours";
    },
    W: async ([key, ms]) => ((await lock.renew(Number(key), Number(ms))) === false ? "R" : "K"),
    X: async ([request]) => {
      waiting.get(request)?.abort();
      return "K";
    },
    HELLO: async ([, worker, keys]) => {
      lock = await join(Number(worker), Number(keys));
      return `READY jostle/2 ${lock.capabilities}`;
    },
  };

  for await (const line of createInterface({ input: process.stdin })) {
    const words = line.split(" ");
    const number = /^\d+$/.test(words[0]) ? words.shift() : "";
    const [verb, ...rest] = words;
    const done = outcomes[verb](rest, number)
      .catch((error) => `E ${String(error).replaceAll("\n", " ")}`)
      .then((said) => process.stdout.write(`${number}${number && " "}${said}\n`));
    // A wait that can be given up leaves the loop to the request that does so.
    if (verb !== "A" || !number || !lock.capabilities.includes("give-up")) await done;
  }
}
