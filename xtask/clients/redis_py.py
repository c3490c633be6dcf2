"""redis-py as it is: python redis_py.py PORT MEANS. See xtask/src/clients/raw.rs."""

import sys
import time

import redis

port, means = int(sys.argv[1]), sys.argv[2]
print("version", "redis-py", redis.__version__)
client = redis.Redis(port=port, socket_timeout=10)


def error_of(call):
    try:
        return str(call())
    except redis.RedisError as error:
        return f"{type(error).__name__}: {error}"


def group():
    """Renews a lease for as long as it runs; see groups.py."""
    client, last = redis.Redis("locks", port), None
    token = client.execute_command("LOCK", "job", "TTL", 20000)
    print("token", token, flush=True)
    while True:
        sent = time.monotonic()
        said = error_of(lambda: client.execute_command("RENEW", "job", token, "TTL", 20000))
        ms = round((time.monotonic() - sent) * 1000)
        if said != last or ms > 300:
            print(ms, said, flush=True)
        last = said
        time.sleep(0.1)


if means == "group":
    group()

token = client.execute_command("LOCK", "job", "TTL", 60000)
print("lock", "granted" if token > 0 else token)
print("try", client.execute_command("TRYLOCK", "job"))
print("wait", client.execute_command("LOCK", "job", "TTL", 60000, "WAIT", 100))
print("wrong", error_of(lambda: client.execute_command("UNLOCK", "job", token + 1)))
print("unlock", client.execute_command("UNLOCK", "job", token))
for act, transaction in [("pipeline", False), ("multi", True)]:
    pipe = client.pipeline(transaction=transaction)
    for n in range(10):
        pipe.execute_command("LOCK", f"{act}{n}", "TTL", 60000)
    tokens = pipe.execute()
    print(act, sum(1 for token in tokens if token > 0))
    for n, token in enumerate(tokens):
        client.execute_command("UNLOCK", f"{act}{n}", token)

once = {"retry": None} if means == "retry off" else {}
if once:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    once = {"retry": Retry(NoBackoff(), 0)}
hasty = redis.Redis(port=port, socket_timeout=0.3, **once)
sent = time.monotonic()
said = error_of(lambda: hasty.execute_command("LOCK", "busy", "TTL", 60000, "WAIT", 5000))
print("timeout", round((time.monotonic() - sent) * 1000), said, flush=True)
sys.stdin.read()
