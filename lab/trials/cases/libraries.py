"""Load generators by Python's libraries: libraries.py aiohttp|httpx|requests PORT CONNECTIONS SECONDS."""
import asyncio
import sys
import threading
import time

URL, CONNECTIONS = f"http://127.0.0.1:{sys.argv[2]}/", int(sys.argv[3])
END = time.monotonic() + float(sys.argv[4])
done = 0


async def each(get):
    global done
    while time.monotonic() < END:
        await get()
        done += 1


async def aiohttp():
    from aiohttp import ClientSession, TCPConnector

    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        async def get():
            async with session.get(URL) as answer:
                await answer.read()

        await asyncio.gather(*(each(get) for _ in range(CONNECTIONS)))


async def httpx():
    from httpx import AsyncClient

    async with AsyncClient() as client:
        await asyncio.gather(*(each(lambda: client.get(URL)) for _ in range(CONNECTIONS)))


def requests():
    from requests import Session

    def one():
        global done
        session = Session()
        while time.monotonic() < END:
            session.get(URL)
            done += 1

    threads = [threading.Thread(target=one) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


match sys.argv[1]:
    case "aiohttp":
        asyncio.run(aiohttp())
    case "httpx":
        asyncio.run(httpx())
    case "requests":
        requests()
print(done, "requests")
