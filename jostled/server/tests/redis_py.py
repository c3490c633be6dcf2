"""What people do with redis-py: pools, threads, pipelines, both protocols."""

import sys
import threading

import redis

port = int(sys.argv[1])
protocols = [2, 3] if int(redis.__version__.split(".")[0]) >= 5 else [2]

for protocol in protocols:
    extra = {"protocol": protocol} if len(protocols) > 1 else {}
    pool = redis.ConnectionPool(
        host="127.0.0.1", port=port, max_connections=20, client_name="tester",
        health_check_interval=1, **extra)
    client = redis.Redis(connection_pool=pool)
    assert client.ping() is True
    assert client.echo("x") == b"x"
    assert client.client_getname() in ("tester", b"tester")
    assert client.info()["redis_mode"] == "standalone"
    assert client.info("locks")["holds"] == 0
    assert len(client.client_list()) >= 1
    assert client.config_get("maxclients") == {"maxclients": "10000"}
    assert client.command_count() == 31

    # Leases through a pool: every command may use another connection.
    counter, tokens, errors = [0], [], []

    def work():
        try:
            for _ in range(50):
                token = client.execute_command("LOCK", "shared counter", "TTL", 600000)
                seen = counter[0]
                tokens.append(token)
                counter[0] = seen + 1
                assert client.execute_command("UNLOCK", "shared counter", token) == 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert counter[0] == 500, counter
    assert tokens == sorted(set(tokens)), "tokens grow in the order of the grants"

    # A pipeline.
    pipe = client.pipeline(transaction=False)
    for n in range(100):
        pipe.execute_command("LOCK", f"n{n}", "TTL", 600000)
    granted = pipe.execute()
    assert granted == list(range(granted[0], granted[0] + 100))
    for n in range(100):
        pipe.execute_command("UNLOCK", f"n{n}", granted[n])
    assert pipe.execute() == [1] * 100

    # One as redis-py makes it unless told otherwise: MULTI and EXEC around it.
    pipe = client.pipeline()
    pipe.execute_command("LOCK", "t1", "TTL", 600000)
    pipe.execute_command("LOCK", "t2", "TTL", 600000)
    granted = pipe.execute()
    for n, token in enumerate(granted):
        pipe.execute_command("UNLOCK", f"t{n + 1}", token)
    assert pipe.execute() == [1, 1], granted

    # Errors are ResponseErrors, nil is None.
    held = client.execute_command("LOCK", "x", "TTL", 60000)
    assert client.execute_command("LOCK", "x", "WAIT", 10) is None
    try:
        client.execute_command("UNLOCK", "x", held + 1)
        raise AssertionError("released with a wrong token")
    except redis.ResponseError as error:
        assert str(error).startswith("NOTOWNER"), error
    assert client.execute_command("UNLOCK", "x", held) == 1

    # A read timeout shorter than the wait: no grant leaks.
    owner = redis.Redis(host="127.0.0.1", port=port, single_connection_client=True)
    owner.execute_command("LOCK", "y")
    hasty = redis.Redis(host="127.0.0.1", port=port, socket_timeout=0.05, retry_on_timeout=False)
    try:
        hasty.execute_command("LOCK", "y", "TTL", 600000, "WAIT", 60000)
        raise AssertionError("granted a held lock")
    except redis.TimeoutError:
        pass
    hasty.connection_pool.disconnect()
    owner.execute_command("UNLOCK", "y")
    token = client.execute_command("LOCK", "y", "TTL", 600000, "WAIT", 60000)
    assert token is not None
    client.execute_command("UNLOCK", "y", token)
    owner.close()
    pool.disconnect()

print("ok")
