// What both libraries are asked: `ask(words)` is one command, `several(multi, commands)` many.
// See xtask/src/clients/raw.rs.

export async function acts(ask, several) {
  const token = await ask(["LOCK", "job", "TTL", "60000"]);
  console.log("lock", token > 0 ? "granted" : token);
  console.log("try", await ask(["TRYLOCK", "job"]));
  console.log("wait", await ask(["LOCK", "job", "TTL", "60000", "WAIT", "100"]));
  console.log("wrong", await errorOf(ask(["UNLOCK", "job", String(token + 1)])));
  console.log("unlock", await ask(["UNLOCK", "job", String(token)]));
  for (const act of ["pipeline", "multi"]) {
    const names = Array.from({ length: 10 }, (_, n) => act + n);
    const commands = names.map((name) => ["LOCK", name, "TTL", "60000"]);
    const tokens = await several(act === "multi", commands);
    console.log(act, tokens.filter((one) => one > 0).length);
    await Promise.all(names.map((name, n) => ask(["UNLOCK", name, String(tokens[n])])));
  }
}

export async function timeout(call) {
  const sent = performance.now();
  // Some never give up: they send again for as long as they run.
  const never = new Promise((end) => setTimeout(end, 20_000, "does not give up"));
  const said = await errorOf(Promise.race([call(), never]));
  console.log("timeout", Math.round(performance.now() - sent), said);
  process.stdin.resume();
  await new Promise((end) => process.stdin.on("end", end));
  process.exit(0);
}

/** Renews a lease for as long as it runs; see ../groups.py. */
export async function follow(ask) {
  const token = await ask(["LOCK", "job", "TTL", "20000"]);
  console.log("token", token);
  for (let last; ; await new Promise((go) => setTimeout(go, 100))) {
    const sent = performance.now();
    const said = await errorOf(ask(["RENEW", "job", String(token), "TTL", "20000"]));
    const ms = Math.round(performance.now() - sent);
    if (said !== last || ms > 300) console.log(ms, said);
    last = said;
  }
}

async function errorOf(call) {
  try {
    return String(await call);
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}
