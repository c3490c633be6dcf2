"""Load generators: client.py MODE PORT CONNECTIONS SECONDS.

asyncio, threads  each connection sends one request after the other
split             the same in two parts, without TCP_NODELAY
fresh             a connection for each request, which the client closes
redis             sends PING, by asyncio; memcached the same with `version`
aiohttp, httpx, requests  by these libraries; the last with a thread for each connection
"""
import asyncio
import os
import socket
import sys
import threading
import time

MODE, PORT, CONNECTIONS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
HOST = os.environ.get("CASE_HOST", "127.0.0.1")
END = time.monotonic() + float(sys.argv[4])
URL = f"http://{HOST}:{PORT}/"
HTTP = [b"GET / HTTP/1.1\r\nHost: here\r\n", b"\r\n"]
WORDS = {"split": HTTP, "redis": [b"PING\r\n"], "memcached": [b"version\r\n"]}
PARTS = WORDS.get(MODE, [b"".join(HTTP)])
done = [0] * CONNECTIONS


async def one(nth):
    reader, writer = await asyncio.open_connection(HOST, PORT)
    while time.monotonic() < END:
        writer.writelines(PARTS)
        await reader.read(4096)
        done[nth] += 1


async def all_of_them():
    await asyncio.gather(*(one(nth) for nth in range(CONNECTIONS)))


async def each(nth, get):
    while time.monotonic() < END:
        await get()
        done[nth] += 1


async def aiohttp():
    from aiohttp import ClientSession, TCPConnector

    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        async def get():
            async with session.get(URL) as answer:
                await answer.read()

        await asyncio.gather(*(each(nth, get) for nth in range(CONNECTIONS)))


async def httpx():
    from httpx import AsyncClient

    async with AsyncClient() as client:
        await asyncio.gather(*(each(nth, lambda: client.get(URL)) for nth in range(CONNECTIONS)))


def requests(nth):
    from requests import Session

    session = Session()
    while time.monotonic() < END:
        session.get(URL)
        done[nth] += 1


def thread(nth):
    while time.monotonic() < END:
        try:
            one_connection(nth)
        except OSError:
            time.sleep(0.001)


def one_connection(nth):
    with socket.create_connection((HOST, PORT)) as connection:
        while time.monotonic() < END:
            for part in PARTS:
                connection.sendall(part)
            connection.recv(4096)
            done[nth] += 1
            if MODE == "fresh":
                break


loops = {"aiohttp": aiohttp, "httpx": httpx, **dict.fromkeys(("asyncio", "redis", "memcached"), all_of_them)}
if MODE in loops:
    asyncio.run(loops[MODE]())
else:
    run = requests if MODE == "requests" else thread
    threads = [threading.Thread(target=run, args=(nth,)) for nth in range(CONNECTIONS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print(sum(done), "requests")
