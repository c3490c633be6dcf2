"""redis-py's asyncio as it is: python asyncio_redis_py.py PORT MEANS. See xtask/src/clients/raw.rs."""

import asyncio
import sys
import time

import redis
import redis.asyncio

port, means = int(sys.argv[1]), sys.argv[2]


async def error_of(call):
    try:
        return str(await call)
    except (redis.RedisError, asyncio.TimeoutError) as error:
        return f"{type(error).__name__}: {error}"


async def main():
    print("version", "redis-py", redis.__version__)
    client = redis.asyncio.Redis(port=port, socket_timeout=10)
    token = await client.execute_command("LOCK", "job", "TTL", 60000)
    print("lock", "granted" if token > 0 else token)
    print("try", await client.execute_command("TRYLOCK", "job"))
    print("wait", await client.execute_command("LOCK", "job", "TTL", 60000, "WAIT", 100))
    print("wrong", await error_of(client.execute_command("UNLOCK", "job", token + 1)))
    print("unlock", await client.execute_command("UNLOCK", "job", token))
    for act, transaction in [("pipeline", False), ("multi", True)]:
        pipe = client.pipeline(transaction=transaction)
        for n in range(10):
            pipe.execute_command("LOCK", f"{act}{n}", "TTL", 60000)
        tokens = await pipe.execute()
        print(act, sum(1 for token in tokens if token > 0))
        for n, token in enumerate(tokens):
            await client.execute_command("UNLOCK", f"{act}{n}", token)

    words = ["LOCK", "busy", "TTL", 60000, "WAIT", 5000]
    sent = time.monotonic()
    if means == "wait_for":
        hasty = redis.asyncio.Redis(port=port, socket_timeout=10)
        said = await error_of(asyncio.wait_for(hasty.execute_command(*words), 0.3))
    else:
        hasty = redis.asyncio.Redis(port=port, socket_timeout=0.3)
        said = await error_of(hasty.execute_command(*words))
    print("timeout", round((time.monotonic() - sent) * 1000), said, flush=True)
    await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
