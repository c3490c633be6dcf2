// Several locks at once, places and sessions, with ioredis, against the same faults.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { LockLost, Locks, NoAnswer, NotGranted, Refused } from "../index.js";
import { eventually } from "./service.js";
import { inEach, inWorld } from "./world.js";

const refused = (text) => (error) => error instanceof Refused && error.message.startsWith(text);
const lost = (text) => (error) => error instanceof LockLost && error.message.includes(text);

describe("several locks", { concurrency: 8 }, () => {
  test("all are granted or none, and tokens grow", () =>
    inWorld(async ({ daemon, locks }) => {
      let last = 0;
      for (const ttlMs of [undefined, 60_000]) {
        const held = await locks.acquireAll(["a", "b", "c"], { ttlMs });
        assert.deepEqual([...held.tokens.keys()], ["a", "b", "c"]);
        for (const token of held.tokens.values()) {
          assert(token > last);
          last = token;
        }
        for (const waitMs of [0, 50]) {
          await assert.rejects(locks.acquireAll(["d", "c"], { waitMs }), NotGranted);
        }
        await (await locks.acquire("d", { waitMs: 0 })).release();
        await assert.rejects(locks.acquire("b", { waitMs: 0 }), NotGranted);
        assert.equal(await daemon.info("holds"), 3);
        assert(!held.lost);
        await held.release();
        await held.release(); // Nothing happens.
        await daemon.settles();
      }
    }));

  test("they are taken in any order without a deadlock", () =>
    inWorld(async ({ locks }) => {
      const inside = { a: 0, b: 0, c: 0 };
      let alone = 0;
      const work = async (names) => {
        for (let n = 0; n < 10; n++) {
          await locks.usingAll(names, { ttlMs: 60_000, waitMs: 60_000 }, async () => {
            for (const name of names) inside[name]++;
            await new Promise(setImmediate);
            for (const name of names) if (inside[name]-- === 1) alone++;
          });
        }
      };
      await Promise.all([["a", "b"], ["b", "a"], ["b", "c"], ["c", "a"]].map(work));
      assert.equal(alone, 80);
    }));

  test("every lease is renewed, and all are lost when one is", () =>
    inWorld(async ({ daemon, locks }) => {
      const told = [];
      const held = await locks.acquireAll(["a", "b"], { ttlMs: 3000, onLost: (one) => told.push(one) });
      await eventually("renewals", async () => (await daemon.info("renewals")) >= 6);
      held.check();
      assert.equal(await daemon.info("expirations"), 0);
      await daemon.ask("FORCEUNLOCK b");
      await eventually("told", () => told.length === 1);
      assert.throws(() => held.check(), lost("NOTOWNER"));
      await assert.rejects(held.release(), LockLost);
    }));

  test("a release reports what was taken away, and gives back the rest", () =>
    inWorld(async ({ daemon, locks }) => {
      for (const ttlMs of [undefined, 60_000]) {
        const held = await locks.acquireAll(["a", "b", "c"], { ttlMs });
        await daemon.ask("FORCEUNLOCK a");
        await assert.rejects(held.release(), lost("NOT"));
        await daemon.settles();
      }
    }));

  test("what the daemon does not take is refused", () =>
    inWorld(async ({ daemon, locks }) => {
      const many = Array.from({ length: 65 }, (_, n) => `n${n}`);
      for (const wrong of [[], ["a", "a"], many]) {
        await assert.rejects(locks.acquireAll(wrong), refused("ERR LOCKALL takes"));
      }
      await assert.rejects(locks.acquireAll(["a"], { ttlMs: 1 }), RangeError);
      await daemon.settles();
    }));

  test("a signal leaves all lines", () =>
    inWorld(async ({ locks, is, noneWaits }) => {
      const held = await locks.acquire("b");
      const giveUp = new AbortController();
      const waits = locks.acquireAll(["a", "b"], { waitMs: Infinity, signal: giveUp.signal });
      const ended = assert.rejects(waits, { name: "AbortError" });
      await is("waiters", 2);
      giveUp.abort();
      await ended;
      await noneWaits();
      await held.release();
    }));

  inEach("a holder of several is told that they are lost", ["stopped", "cut off", "killed"], [undefined, 1500],
    async ({ daemon, locks, begin, end }, fault, ttlMs) => {
      const told = [];
      const held = await locks.acquireAll(["a", "b"], { ttlMs, onLost: (one) => told.push(one) });
      begin(fault);
      await eventually("lost", () => held.lost && told.length > 0);
      await assert.rejects(held.release(), LockLost);
      assert.deepEqual(told, [held]);
      if (fault === "killed") return;
      end(fault);
      await daemon.settles();
    });

  inEach("nothing stays behind when several are not answered", ["stopped", "cut off"], [undefined, 600_000],
    async ({ daemon, locks, begin, end }, fault, ttlMs) => {
      begin(fault);
      await assert.rejects(locks.acquireAll(["a", "b"], { ttlMs, waitMs: 100 }), NoAnswer);
      end(fault);
      await daemon.settles();
    });

  inEach("who gives up waiting for several leaves all lines", ["stopped", "cut off"], [undefined, 600_000],
    async ({ daemon, locks, begin, end, is, noneWaits }, fault, ttlMs) => {
      const direct = new Locks({ host: "127.0.0.1", port: daemon.port }, { timeoutMs: 60_000 });
      const first = await direct.acquire("b");
      const ended = assert.rejects(locks.acquireAll(["a", "b"], { ttlMs, waitMs: 1000 }), NoAnswer);
      await is("waiters", 2);
      begin(fault);
      await ended;
      end(fault);
      await noneWaits();
      await first.release();
      await daemon.settles();
    });
});

test("so many get in, and no more", () =>
  inWorld(async ({ locks, is }) => {
    for (const ttlMs of [undefined, 60_000]) {
      let [inside, most] = [0, 0];
      let leave;
      const go = new Promise((done) => (leave = done));
      const work = () =>
        locks.using("seat", { of: 3, ttlMs, waitMs: 60_000 }, async () => {
          most = Math.max(most, ++inside);
          await go;
          inside--;
        });
      const done = Promise.all(Array.from({ length: 8 }, work));
      await eventually("three are in", () => inside === 3);
      await is("waiters", 5);
      await assert.rejects(locks.acquire("seat", { of: 3, waitMs: 0 }), NotGranted);
      await assert.rejects(locks.acquire("seat", { of: 4, waitMs: 0 }), refused("BADLIMIT"));
      leave();
      await done;
      assert.deepEqual([inside, most], [0, 3]);
    }
  }));

describe("sessions", { concurrency: 8 }, () => {
  test("a session owns its locks until it is closed", () =>
    inWorld(async ({ daemon, locks, is }) => {
      const [session, other] = [await locks.session(), await locks.session()];
      const [a, b] = [await session.acquire("a"), await session.acquire("b", { of: 2 })];
      assert(b.token > a.token);
      await a.release();
      await a.release(); // Nothing happens.
      await (await locks.acquire("a", { waitMs: 0 })).release();
      await other.acquire("b", { of: 2 });
      await assert.rejects(locks.acquire("b", { of: 2, waitMs: 0 }), NotGranted);
      await assert.rejects(session.acquire("b", { of: 2, waitMs: 0 }), refused("ALREADYHELD"));
      await session.using("c", {}, async (c) => {
        c.check();
        await assert.rejects(other.acquire("c", { waitMs: 50 }), NotGranted);
      });
      assert(!b.lost);
      assert.equal(await daemon.info("holds"), 2);
      const many = await Promise.all(["d", "e", "f"].map((name) => session.acquire(name)));
      await Promise.all(many.map((one) => one.release()));
      await session.close();
      await session.close(); // Nothing happens.
      assert(b.lost);
      await assert.rejects(session.acquire("g"), lost("was closed"));
      await other.close();
      await is("sessions", 0);
      await daemon.settles();
      await is("connected_clients", 1);
    }));

  test("one renewal is enough for all", () =>
    inWorld(async ({ daemon, locks }) => {
      const session = await locks.session({ ttlMs: 3000 });
      for (let n = 0; n < 20; n++) await session.acquire(`job${n}`);
      const before = await daemon.info("cmd_session");
      await eventually("renewals", async () => (await daemon.info("cmd_session")) >= before + 4);
      session.check();
      assert.equal(await daemon.info("holds"), 20);
      await session.close();
    }));

  test("who waits in the name of a session that ends is told", () =>
    inWorld(async ({ daemon, locks, oneWaits }) => {
      const told = [];
      const session = await locks.session({ ttlMs: 600_000, onLost: (one) => told.push(one) });
      const mine = await session.acquire("other");
      const held = await locks.acquire("job");
      const withoutId = (error) => lost("NOSESSION")(error) && !error.message.includes(session.id);
      const ended = assert.rejects(session.acquire("job", { waitMs: 60_000 }), withoutId);
      await oneWaits();
      await daemon.ask(`SESSION CLOSE ${session.id}`);
      await ended;
      assert.deepEqual(told, [session]);
      await assert.rejects(mine.release(), LockLost);
      await assert.rejects(session.close(), LockLost);
      await held.release();
    }));

  test("a lock that was taken away is reported by its release", () =>
    inWorld(async ({ daemon, locks }) => {
      const session = await locks.session();
      const held = await session.acquire("job");
      await daemon.ask("FORCEUNLOCK job");
      await assert.rejects(held.release(), lost("NOT"));
      assert(held.lost && !session.lost);
      await session.close();
    }));

  test("what makes no sense is told", () =>
    inWorld(async ({ locks }) => {
      await assert.rejects(locks.session({ id: "0".repeat(32) }), lost("NOSESSION"));
      await assert.rejects(locks.session({ ttlMs: 0 }), RangeError);
      const session = await locks.session();
      for (const wrong of [{ ttlMs: 1000 }, { onLost: () => {} }, { waitMs: -1 }]) {
        await assert.rejects(session.acquire("job", wrong), RangeError);
      }
      await session.close();
    }));

  inEach("a session is lost with all its locks", ["stopped", "cut off", "killed"], [1500],
    async ({ daemon, locks, begin, end, is }, fault, ttlMs) => {
      const told = [];
      const session = await locks.session({ ttlMs, onLost: (one) => told.push(one) });
      const held = [await session.acquire("a"), await session.acquire("b")];
      begin(fault);
      await eventually("lost", () => session.lost && told.length > 0);
      for (const one of held) {
        assert(one.lost);
        await assert.rejects(one.release(), LockLost);
      }
      await assert.rejects(session.acquire("c"), LockLost);
      await assert.rejects(session.close(), LockLost);
      assert.deepEqual(told, [session]);
      if (fault === "killed") return;
      end(fault);
      await daemon.settles();
      await is("sessions", 0);
    });

  inEach("who gives up waiting in a session leaves the line", ["stopped", "cut off"], [600_000],
    async ({ daemon, locks, begin, end, oneWaits, noneWaits }, fault, ttlMs) => {
      const direct = new Locks({ host: "127.0.0.1", port: daemon.port }, { timeoutMs: 60_000 });
      const first = await direct.acquire("job");
      const session = await locks.session({ ttlMs });
      const held = await session.acquire("other");
      const ended = assert.rejects(session.acquire("job", { waitMs: 1000 }), NoAnswer);
      await oneWaits();
      begin(fault);
      await ended;
      await assert.rejects(held.release(), NoAnswer); // The session may still have it.
      assert(!held.lost);
      end(fault);
      await noneWaits();
      await first.release();
      await session.close();
      await daemon.settles();
    });

  test("a session outlives a link that is cut for a moment", () =>
    inWorld(async ({ daemon, link, locks }) => {
      const session = await locks.session({ ttlMs: 3000 });
      const held = await session.acquire("job");
      const opened = link.opened;
      link.cut();
      await eventually("another connection", () => link.opened > opened);
      link.mend();
      const before = await daemon.info("cmd_session");
      await eventually("a renewal", async () => (await daemon.info("cmd_session")) > before);
      await held.release();
      await session.close();
      await daemon.settles();
    }));

  test("a request whose answer was lost finds its lock", () =>
    inWorld(async ({ daemon, link, options }) => {
      const locks = new Locks(options, { timeoutMs: 1000 });
      for (const wish of [{}, { shared: true }, { of: 3 }]) {
        const session = await locks.session();
        link.loseAnswerTo("LOCK");
        await assert.rejects(session.acquire("job", wish), NoAnswer);
        const held = await session.acquire("job", wish);
        assert.equal(held.token, await daemon.info("grants"));
        assert.equal(await daemon.info("holds"), 1);
        // It is one lock, held once: who asks beside it is refused.
        await assert.rejects(session.acquire("job", wish), refused("ALREADYHELD"));
        await held.release();
        await daemon.settles();
        assert((await session.acquire("job", wish)).token > held.token);
        await session.close();
      }
    }));

  test("a retry finds the lock of the request that it repeats", () =>
    inWorld(async ({ daemon, link, options }) => {
      const locks = new Locks(options, { timeoutMs: 1000, retries: 1 });
      const session = await locks.session();
      link.loseAnswerTo("LOCK");
      const held = await session.acquire("job");
      assert.deepEqual([held.token, await daemon.info("grants")], [1, 1]);
      // One that is taken up claims nothing that it did not ask for.
      const other = await locks.session({ id: session.id });
      await assert.rejects(other.acquire("job"), refused("ALREADYHELD"));
      await held.release();
      await daemon.settles();
      await session.close();
    }));

  test("a session that is taken up again keeps its locks", () =>
    inWorld(async ({ daemon, link, locks }) => {
      const first = await locks.session({ ttlMs: 3000 });
      const { token } = await first.acquire("job");
      const direct = new Locks({ host: "127.0.0.1", port: daemon.port });
      const session = await direct.session({ ttlMs: 3000, id: first.id });
      link.cut();
      // Renewed over the other connection alone, for longer than it lasts.
      await eventually("the first one is lost", () => first.lost);
      const before = await daemon.info("cmd_session");
      await eventually("renewals", async () => (await daemon.info("cmd_session")) >= before + 3);
      await assert.rejects(direct.acquire("job", { waitMs: 0 }), NotGranted);
      await session.held("job", token).release();
      assert((await session.acquire("job")).token > token);
      await session.close();
      link.mend();
      await daemon.settles();
    }));
});
