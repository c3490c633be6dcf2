// A daemon, a link to it, and its locks for one test.
import { test } from "node:test";
import { Locks } from "../index.js";
import { Daemon, Link, eventually } from "./service.js";

/** A daemon, a link to it, and its locks, for as long as `work` runs. */
export async function inWorld(work) {
  const daemon = await Daemon.start();
  const link = await Link.start(daemon);
  const options = { host: "127.0.0.1", port: link.port };
  const world = {
    daemon,
    link,
    options,
    locks: new Locks(options, { timeoutMs: 1000 }),
    begin: (fault) =>
      fault === "cut off" ? link.cut() : daemon.child.kill(fault === "killed" ? "SIGKILL" : "SIGSTOP"),
    end: (fault) => (fault === "cut off" ? link.mend() : daemon.child.kill("SIGCONT")),
    is: (name, count) => eventually(`${name} ${count}`, async () => (await daemon.info(name)) === count),
    oneWaits: () => world.is("waiters", 1),
    noneWaits: () => world.is("waiters", 0),
  };
  try {
    await work(world);
  } finally {
    link.close();
    await daemon.close();
  }
}

/** Tries all cases in worlds of their own. */
export function inEach(what, faults, ttls, work) {
  for (const fault of faults) {
    for (const ttlMs of ttls) {
      test(`${what}: ${fault}, ${ttlMs ? "lease" : "connection"}`, () =>
        inWorld((world) => work(world, fault, ttlMs)));
    }
  }
}
