"""Load generators: client.py asyncio|threads|split|redis PORT CONNECTIONS SECONDS.

`split` writes each request in two parts, without TCP_NODELAY; `redis` sends PING.
"""
import asyncio
import socket
import sys
import threading
import time

MODE, PORT, CONNECTIONS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
END = time.monotonic() + float(sys.argv[4])
HTTP = [b"GET / HTTP/1.1\r\nHost: here\r\n", b"\r\n"]
PARTS = HTTP if MODE == "split" else [b"PING\r\n"] if MODE == "redis" else [b"".join(HTTP)]
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
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        while time.monotonic() < END:
            for part in PARTS:
                connection.sendall(part)
            connection.recv(4096)
            done[nth] += 1


if MODE in ("asyncio", "redis"):
    asyncio.run(all_of_them())
else:
    threads = [threading.Thread(target=thread, args=(nth,)) for nth in range(CONNECTIONS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print(sum(done), "requests")
