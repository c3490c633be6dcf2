// Locks with ioredis, against a daemon that is killed, stopped and cut off.
import assert from "node:assert/strict";
import dns from "node:dns/promises";
import { createServer } from "node:net";
import { describe, mock, test } from "node:test";
import { LockLost, Locks, NoAnswer, NotGranted, Refused } from "../index.js";
import { Term } from "../term.js";
import { Daemon, eventually } from "./service.js";
import { inEach, inWorld } from "./world.js";

describe("jostle-lock", { concurrency: 8 }, () => {
  test("a lock excludes and tokens grow", () =>
    inWorld(async ({ daemon, locks }) => {
      let last = 0;
      for (const ttlMs of [undefined, 60_000]) {
        const held = await locks.acquire("job", { ttlMs });
        assert(held.token > last && !held.lost);
        last = held.token;
        await assert.rejects(locks.acquire("job", { waitMs: 0 }), NotGranted);
        await assert.rejects(locks.acquire("job", { waitMs: 50 }), NotGranted);
        await held.release();
        await held.release(); // Nothing happens.
        await daemon.settles();
      }
    }));

  test("without a password it tells what to give", async () => {
    const daemon = await Daemon.start({ JOSTLED_PASSWORD: "secret" });
    try {
      const options = { host: "127.0.0.1", port: daemon.port };
      await assert.rejects(new Locks(options).acquire("job"), (error) =>
        error instanceof Refused && error.message.startsWith("NOAUTH give user and password"));
      await (await new Locks({ ...options, password: "secret" }).acquire("job")).release();
    } finally {
      await daemon.close();
    }
  });

  test("five take turns", () =>
    inWorld(async ({ locks }) => {
      let [inside, most, all] = [0, 0, 0];
      const work = async () => {
        for (let n = 0; n < 10; n++) {
          await locks.using("turn", { ttlMs: 60_000, waitMs: 60_000 }, async () => {
            most = Math.max(most, ++inside);
            await new Promise(setImmediate);
            [inside, all] = [inside - 1, all + 1];
          });
        }
      };
      await Promise.all(Array.from({ length: 5 }, work));
      assert.deepEqual([inside, most, all], [0, 1, 50]);
    }));

  test("readers share and places are counted", () =>
    inWorld(async ({ locks }) => {
      const take = (name, wish) => locks.acquire(name, { waitMs: 0, ...wish });
      const held = [await take("book", { shared: true }), await take("book", { shared: true })];
      await assert.rejects(take("book"), NotGranted);
      held.push(await take("seat", { of: 2 }), await take("seat", { of: 2 }));
      await assert.rejects(take("seat", { of: 2 }), NotGranted);
      await assert.rejects(take("seat", { of: 3 }), (error) =>
        error instanceof Refused && error.message.startsWith("BADLIMIT"));
      await Promise.all(held.map((one) => one.release()));
    }));

  test("a lease is renewed while it is held", () =>
    inWorld(async ({ daemon, locks }) => {
      const held = await locks.acquire("job", { ttlMs: 3000 });
      await eventually("renewals", async () => (await daemon.info("renewals")) >= 3);
      await held.release();
      assert.equal(await daemon.info("expirations"), 0);
    }));

  test("a lock that is taken away is reported", () =>
    inWorld(async ({ daemon, locks }) => {
      const told = [];
      const held = await locks.acquire("job", { ttlMs: 3000, onLost: (one) => told.push(one) });
      await daemon.ask("FORCEUNLOCK job");
      await eventually("told", () => told.length === 1);
      assert.throws(() => held.check(), /NOTOWNER/);
      await assert.rejects(held.release(), LockLost);
      const other = await locks.acquire("job");
      await daemon.ask("FORCEUNLOCK job");
      await assert.rejects(other.release(), LockLost);
    }));

  test("what goes wrong in the work comes first", () =>
    inWorld(async ({ daemon, locks }) => {
      const work = async () => {
        await daemon.ask("FORCEUNLOCK job");
        throw new SyntaxError("mine");
      };
      await assert.rejects(locks.using("job", {}, work), SyntaxError);
    }));

  test("a signal ends the wait", () =>
    inWorld(async ({ locks, oneWaits, noneWaits }) => {
      const held = await locks.acquire("job");
      const giveUp = new AbortController();
      const waits = locks.acquire("job", { waitMs: Infinity, signal: giveUp.signal });
      const refused = assert.rejects(waits, { name: "AbortError" });
      await oneWaits();
      giveUp.abort();
      await refused;
      await noneWaits();
      await held.release();
    }));

  test("wishes that make no sense are told", async () => {
    const locks = new Locks({ port: 1 });
    for (const wrong of [{ waitMs: -1 }, { ttlMs: 1 }, { ttlMs: 10.5 }, { shared: true, of: 2 }]) {
      await assert.rejects(locks.acquire("job", wrong), RangeError);
    }
    assert.throws(() => new Locks({}, { timeoutMs: 0 }), RangeError);
  });

  inEach("a holder is told that its lock is lost", ["stopped", "cut off", "killed"], [undefined, 1500],
    async ({ daemon, locks, begin, end }, fault, ttlMs) => {
      const told = [];
      const held = await locks.acquire("job", { ttlMs, onLost: (one) => told.push(one) });
      assert(!held.lost);
      begin(fault);
      await eventually("lost", () => held.lost && told.length > 0);
      await assert.rejects(held.release(), LockLost);
      assert.deepEqual(told, [held]);
      if (fault === "killed") return;
      end(fault);
      await daemon.settles();
    });

  inEach("nothing stays behind when no answer comes", ["stopped", "cut off"], [undefined, 600_000],
    async ({ daemon, locks, begin, end }, fault, ttlMs) => {
      begin(fault);
      await assert.rejects(locks.acquire("job", { ttlMs, waitMs: 100 }), NoAnswer);
      end(fault);
      await daemon.settles();
    });

  inEach("a waiter that gives up leaves the line", ["stopped", "cut off"], [undefined, 600_000],
    async ({ daemon, locks, begin, end, oneWaits, noneWaits }, fault, ttlMs) => {
      const direct = new Locks({ host: "127.0.0.1", port: daemon.port }, { timeoutMs: 60_000 });
      const first = await direct.acquire("job");
      const refused = assert.rejects(locks.acquire("job", { ttlMs, waitMs: 1000 }), NoAnswer);
      await oneWaits();
      begin(fault);
      await refused;
      end(fault);
      await noneWaits();
      await first.release();
      await daemon.settles();
    });

  test("a killed daemon gives no answer", () =>
    inWorld(async ({ locks, begin }) => {
      begin("killed");
      await assert.rejects(locks.acquire("job"), NoAnswer);
    }));

  test("a lease outlives a link that is cut for a moment", () =>
    inWorld(async ({ daemon, link, locks }) => {
      const held = await locks.acquire("job", { ttlMs: 3000 });
      const before = await daemon.info("renewals");
      link.cut();
      await eventually("another connection", () => link.opened >= 2);
      link.mend();
      await eventually("a renewal", async () => (await daemon.info("renewals")) > before);
      await held.release();
      await daemon.settles();
    }));

  test("a lease is renewed at once when its connection breaks", () =>
    inWorld(async ({ daemon, locks }) => {
      // It would be renewed after 20 minutes.
      const held = await locks.acquire("job", { ttlMs: 3_600_000 });
      const before = await daemon.info("renewals");
      const holder = await daemon.ask("HOLDER job");
      const client = /client\r\n:(\d+)/.exec(holder)[1];
      await daemon.ask(`CLIENT KILL ID ${client}`);
      await eventually("a renewal", async () => (await daemon.info("renewals")) > before);
      await held.release();
    }));

  test("a second attempt gets the lock", () =>
    inWorld(async ({ daemon, link, options, noneWaits }) => {
      link.cut();
      const locks = new Locks(options, { timeoutMs: 1000, retries: 5 });
      const attempts = locks.acquire("job", { waitMs: 500 });
      await eventually("another attempt", () => link.opened >= 2);
      link.mend();
      // The first attempt's lease may be in the way: it ends with the timeout.
      const held = await attempts.catch((error) => {
        assert(error instanceof NotGranted, error);
        return locks.acquire("job", { waitMs: 20_000 });
      });
      await eventually("one hold", async () => (await daemon.info("holds")) === 1);
      await noneWaits();
      await held.release();
      await daemon.settles();
    }));

  test("a lease is counted from before it was sent, and stays over", () => {
    const sent = performance.now() - 5000;
    const late = new Term(4000, 1000, sent);
    late.extend(performance.now());
    assert(late.isOver());
    assert(!new Term(60_000, 1000, sent).isOver() && !new Term(undefined, 1000, sent).isOver());
  });
});

const ttlMs = async (daemon) => Number((await daemon.ask("HOLDER job")).match(/ttl-ms\r\n:(\d+)/)[1]);

test("only what is held for long is renewed", () =>
  inWorld(async ({ daemon, options }) => {
    const held = await new Locks(options, { timeoutMs: 20_000 }).acquire("job", { ttlMs: 60_000 });
    assert((await ttlMs(daemon)) > 30_000);
    await held.release();
    assert.equal(await daemon.info("renewals"), 0);
    // Such a lease is short until the first renewal.
    const longer = await new Locks(options, { timeoutMs: 5000 }).acquire("job", { ttlMs: 60_000 });
    await eventually("longer", async () => (await ttlMs(daemon)) > 30_000);
    await longer.release();
  }));

test("each address of the name is tried and a silent one last", () =>
  inWorld(async ({ daemon }) => {
    const found = ["127.0.0.3", "127.0.0.2", "127.0.0.1"].map((address) => ({ address, family: 4 }));
    mock.method(dns, "lookup", async () => found);
    const silent = createServer();
    await new Promise((ready) => silent.listen(daemon.port, "127.0.0.2", ready));
    try {
      const locks = new Locks({ host: "locks", port: daemon.port }, { timeoutMs: 1000, retries: 20 });
      await (await locks.acquire("job", { waitMs: 0 })).release();
    } finally {
      silent.close();
      mock.restoreAll();
    }
  }));
