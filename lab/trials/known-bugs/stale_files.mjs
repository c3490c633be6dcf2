// Lock files that are taken over when they are too old, beside peer.mjs and node_modules:
// node stale_files.mjs lockfile|proper-lockfile STEM locks STEM.0, STEM.1, ...
//
// lockfile: after 1 s. It does not renew, so that a hold of more than that is given up unreleased.
// proper-lockfile: after 2 s; it renews by itself. Its file system takes up to 20 ms to remove.

import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { serve } from "./peer.mjs";

const [kind, stem] = process.argv.slice(2);
const library = (await import(kind)).default;
const isPlain = kind === "lockfile";
const LEASE = isPlain ? 1000 : 2000;
const held = new Map();
const slow = {
  ...fs,
  rmdir: (path, done) => setTimeout(() => fs.rmdir(path, done), 20 * Math.random()),
};

const call = (name, ...words) =>
  new Promise((done, failed) => {
    library[name](...words, (error) => (error ? failed(error) : done()));
  });

async function tried(path) {
  const began = Date.now();
  if (isPlain) {
    await call("lock", path, { stale: LEASE });
    return { isLost: () => Date.now() - began >= LEASE, release: () => call("unlock", path) };
  }
  let isLost = false;
  const onCompromised = () => (isLost = true);
  const options = { realpath: false, stale: LEASE, update: LEASE / 2, fs: slow, onCompromised };
  return { release: await library.lock(path, options), isLost: () => isLost };
}

async function acquire(key, shared, ms, signal) {
  const until = performance.now() + ms;
  for (;;) {
    try {
      held.set(key, await tried(`${stem}.${key}`));
      return true;
    } catch (error) {
      if (!["EEXIST", "ELOCKED"].includes(error.code)) throw error;
      if (signal?.aborted || (ms >= 0 && performance.now() >= until)) return false;
      await sleep(1);
    }
  }
}

async function release(key) {
  const lock = held.get(key);
  held.delete(key);
  if (lock.isLost()) return false;
  await lock.release();
}

await serve(() => ({ capabilities: `timeout give-up lease=${LEASE}`, acquire, release }));
