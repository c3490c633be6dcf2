// ioredis as it is: node ioredis.mjs PORT MEANS. See xtask/src/clients/raw.rs.
import { createRequire } from "node:module";
import { Redis } from "ioredis";
import { acts, follow, timeout } from "./acts.mjs";

const [port, means] = [Number(process.argv[2]), process.argv[3]];
const { version } = createRequire(import.meta.url)("ioredis/package.json");
console.log("version ioredis", version);

if (means === "group") {
  const group = new Redis({ port, host: "locks" });
  group.on("error", () => {}); // Told where the command fails.
  await follow((words) => group.call(...words));
}
const client = new Redis({ port });
const several = async (multi, commands) => {
  const pipe = multi ? client.multi() : client.pipeline();
  for (const words of commands) pipe.call(...words);
  return (await pipe.exec()).map(([, reply]) => reply);
};
await acts((words) => client.call(...words), several);

const hasty = new Redis({ port, [means]: 300 });
hasty.on("error", () => {}); // Told where the command fails.
await timeout(() => hasty.call("LOCK", "busy", "TTL", "60000", "WAIT", "5000"));
