// A jostled of the test's own ($JOSTLED), and a link to it that can be cut.
import { spawn } from "node:child_process";
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Waits for something that must come true soon. */
export async function eventually(what, test) {
  const end = performance.now() + 20_000;
  while (!(await test())) {
    if (performance.now() > end) throw new Error(`not within 20 s: ${what}`);
    await new Promise((go) => setTimeout(go, 5));
  }
}

export class Daemon {
  static async start(env = {}) {
    const built = fileURLToPath(new URL("../../../../target/debug/jostled", import.meta.url));
    const daemon = new Daemon();
    daemon.child = spawn(process.env.JOSTLED ?? built, ["--data", "none", "--listen", "127.0.0.1:0"], {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, ...env },
    });
    daemon.ended = new Promise((end) => daemon.child.on("exit", end));
    for await (const line of createInterface(daemon.child.stderr)) {
      daemon.port ??= line.match(/listening on 127\.0\.0\.1:(\d+)/)?.[1];
      if (line.includes("ready")) return daemon;
    }
    throw new Error("jostled did not start");
  }

  async close() {
    this.child.kill("SIGKILL");
    await this.ended;
  }

  /** The reply to one command, as the text of RESP2. */
  ask(words) {
    return new Promise((done, failed) => {
      let reply = "";
      const plain = connect(this.port, "127.0.0.1", () => plain.write(`${words}\r\nQUIT\r\n`));
      plain.on("data", (part) => (reply += part)).on("end", () => done(reply)).on("error", failed);
    });
  }

  /** A figure of INFO. */
  async info(name) {
    return Number((await this.ask("INFO")).match(new RegExp(`^${name}:(\\d+)`, "m"))[1]);
  }

  /** Waits until nobody holds a lock or waits for one. */
  async settles() {
    await eventually("no holds", async () => (await this.info("holds")) === 0);
    await eventually("no waiters", async () => (await this.info("waiters")) === 0);
  }
}

/** A way to the daemon that stops forwarding when it is cut, as a dead network does. */
export class Link {
  opened = 0;
  #carried = new Set();
  #cut = false;
  #swallow;

  static async start(daemon) {
    const link = new Link();
    link.server = createServer({ pauseOnConnect: true }, (near) => link.#carry(near, daemon));
    await new Promise((ready) => link.server.listen(0, "127.0.0.1", ready));
    link.port = link.server.address().port;
    return link;
  }

  #carry(near, daemon) {
    this.opened++;
    const far = connect(daemon.port, "127.0.0.1");
    far.pause();
    let loses = false;
    for (const [from, to] of [[near, far], [far, near]]) {
      from.on("data", (part) => {
        if (loses) return from.destroy(); // This is the answer.
        if (this.#swallow !== undefined && part.includes(this.#swallow)) {
          [this.#swallow, loses] = [undefined, true];
        }
        to.write(part);
      });
      from.on("close", () => to.destroy());
      from.on("error", () => {});
      this.#carried.add(from);
      if (!this.#cut) from.resume();
    }
  }

  cut() {
    this.#cut = true;
    // What is paused is not read, and so neither its bytes nor its end are forwarded.
    for (const socket of this.#carried) socket.pause();
  }

  mend() {
    this.#cut = false;
    for (const socket of this.#carried) socket.resume();
  }

  /**
   * Once: forwards a request that has this text, and cuts its connection in place of
   * the answer, when there is one.
   */
  loseAnswerTo(request) {
    this.#swallow = request;
  }

  close() {
    this.server.close();
    for (const socket of this.#carried) socket.destroy();
  }
}
