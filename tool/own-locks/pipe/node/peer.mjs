// The loop of a lock that `jostle ... pipe:COMMAND` starts for each worker.

import { createInterface } from "node:readline";

/**
 * Answers requests until they end. `join(worker, keys)` gives the capabilities
 * ("timeout"), then `acquire(key, shared, ms)` and `release(key)`. `acquire` waits for
 * ever at -1 ms and not at all at 0; it gives true or false, or a number: a fencing token.
 */
export async function serve(join) {
  let lock;
  for await (const line of createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(" ");
    let answer;
    try {
      if (verb === "A") {
        const got = await lock.acquire(Number(words[0]), words[1] === "s", Number(words[2]));
        answer = got === false ? "R" : got === true ? "G" : `G ${got}`;
      } else if (verb === "U") {
        await lock.release(Number(words[0]));
        answer = "K";
      } else {
        lock = await join(Number(words[1]), Number(words[2]));
        answer = `READY ${lock.capabilities}`;
      }
    } catch (error) {
      answer = `E ${String(error).replaceAll("\n", " ")}`;
    }
    process.stdout.write(`${answer}\n`);
  }
}
