"""Web servers of reports, on the loopback: found_server.py PORT KIND.

tenth: one answer of ten comes a second later, the others at once.
lengths: bodies of 1 to 50 bytes.
backlog: HTTPServer as it is: one request after the other, and a backlog of 5.
"""

import asyncio
import http.server
import random
import sys

port, kind = int(sys.argv[1]), sys.argv[2]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n"


async def each(reader, writer):
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            if kind == "tenth" and random.random() < 0.1:
                await asyncio.sleep(1)
            length = random.randint(1, 50) if kind == "lengths" else 5
            writer.write(HEAD % length + b"x" * length)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def one_thread():
    server = await asyncio.start_server(each, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


class Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_):
        pass


if kind == "backlog":
    http.server.HTTPServer(("127.0.0.1", port), Quiet).serve_forever()
else:
    asyncio.run(one_thread())
