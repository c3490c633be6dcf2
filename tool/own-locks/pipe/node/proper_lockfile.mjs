// proper-lockfile: `node proper_lockfile.mjs STEM` makes the directories STEM.0.lock, ...
//
// It renews its lock every 5 s; what a killed worker held is taken over 10 s after it was renewed.

import { setTimeout } from "node:timers/promises";
import lockfile from "proper-lockfile";
import { serve } from "./peer.mjs";

const stem = process.argv[2];
const held = new Map();

async function acquire(key, shared, ms, signal) {
  const until = performance.now() + ms;
  for (;;) {
    try {
      const release = await lockfile.lock(`${stem}.${key}`, { realpath: false });
      held.set(key, release);
      return true;
    } catch (error) {
      if (error.code !== "ELOCKED") throw error;
      if (signal?.aborted || (ms >= 0 && performance.now() >= until)) return false;
      await setTimeout(1);
    }
  }
}

async function release(key) {
  await held.get(key)();
  held.delete(key);
}

await serve(() => ({ capabilities: "timeout give-up lease=10000", acquire, release }));
for (const key of [...held.keys()]) await release(key);
