// node-redis as it is: node node_redis.mjs PORT MEANS. See xtask/src/clients/raw.rs.
import { createRequire } from "node:module";
import { createClient } from "redis";
import { acts, timeout } from "./acts.mjs";

const [port, means] = [Number(process.argv[2]), process.argv[3]];
const { version } = createRequire(import.meta.url)("redis/package.json");
console.log("version node-redis", version);

async function connected(socket, rest) {
  const client = createClient({ socket: { port, ...socket }, ...rest });
  client.on("error", () => {}); // Told where the command fails.
  await client.connect();
  return client;
}

const client = await connected({}, {});
const several = async (multi, commands) => {
  if (!multi) return Promise.all(commands.map((words) => client.sendCommand(words)));
  const queue = client.multi();
  for (const words of commands) queue.addCommand(words);
  return queue.exec();
};
await acts((words) => client.sendCommand(words), several);

const words = ["LOCK", "busy", "TTL", "60000", "WAIT", "5000"];
const hasty = await connected(means === "socketTimeout" ? { socketTimeout: 300 } : {}, {});
await timeout(() => {
  if (means === "socketTimeout") return hasty.sendCommand(words);
  if (means === "timeout") return hasty.sendCommand(words, { timeout: 300 });
  const call = hasty.withAbortSignal(AbortSignal.timeout(300)).sendCommand(words);
  // The signal only counts until the command is sent: the caller gives up by itself.
  const enough = new Promise((_, no) => setTimeout(no, 600, new Error("given up by the caller")));
  return Promise.race([call, enough]);
});
