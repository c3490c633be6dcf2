"""Load generators: client.py MODE PORT CONNECTIONS SECONDS.

asyncio, threads  each connection sends one request after the other
split             the same in two parts, without TCP_NODELAY
fresh             a connection for each request, which the client closes
redis             sends PING, by asyncio; memcached the same with `version`
"""
import asyncio
import socket
import sys
import threading
import time

MODE, PORT, CONNECTIONS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
END = time.monotonic() + float(sys.argv[4])
HTTP = [b"GET / HTTP/1.1\r\nHost: here\r\n", b"\r\n"]
WORDS = {"split": HTTP, "redis": [b"PING\r\n"], "memcached": [b"version\r\n"]}
PARTS = WORDS.get(MODE, [b"".join(HTTP)])
done = [0] * CONNECTIONS


async def one(nth):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    while time.monotonic() < END:
        writer.writelines(PARTS)
        await reader.read(4096)
        done[nth] += 1


async def all_of_them():
    await asyncio.gather(*(one(nth) for nth in range(CONNECTIONS)))


def thread(nth):
    while time.monotonic() < END:
        try:
            one_connection(nth)
        except OSError:
            time.sleep(0.001)


def one_connection(nth):
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        while time.monotonic() < END:
            for part in PARTS:
                connection.sendall(part)
            connection.recv(4096)
            done[nth] += 1
            if MODE == "fresh":
                break


if MODE in ("asyncio", "redis", "memcached"):
    asyncio.run(all_of_them())
else:
    threads = [threading.Thread(target=thread, args=(nth,)) for nth in range(CONNECTIONS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print(sum(done), "requests")
