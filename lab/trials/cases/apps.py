"""What Python's servers serve for the cases: apps.py tornado|flask|aiohttp PORT, or by gunicorn's relatives
apps:wsgi and apps:asgi. From the environment: US of CPU time, or MS of waiting, for each request;
LOCK, a file of SQLite that is locked for those MS.
"""
import asyncio
import os
import sqlite3
import sys
import time

US, MS = (int(os.environ.get(name, 0)) for name in ("US", "MS"))
LOCK = os.environ.get("LOCK")
HOST = os.environ.get("CASE_HOST", "127.0.0.1")


def work():
    end = time.thread_time() + US / 1e6
    while time.thread_time() < end:
        pass


def locked():
    with sqlite3.connect(LOCK, timeout=60, isolation_level=None) as file:
        file.execute("BEGIN IMMEDIATE")
        time.sleep(MS / 1e3)
        file.execute("COMMIT")
    file.close()


def wsgi(_, start_response):
    work()
    locked() if LOCK else time.sleep(MS / 1e3)
    start_response("200 OK", [("Content-Length", "6")])
    return [b"hello\n"]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    work()
    await asyncio.sleep(MS / 1e3)
    headers = [(b"content-length", b"6")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello\n"})


async def tornado(port):
    from tornado.web import Application, RequestHandler

    class Hello(RequestHandler):
        def get(self):
            work()
            self.write("hello\n")

    Application([("/", Hello)]).listen(port, HOST, backlog=1024)
    await asyncio.Event().wait()


async def aiohttp(port):
    from aiohttp import web

    async def hello(_):
        work()
        return web.Response(text="hello\n")

    application = web.Application()
    application.router.add_get("/", hello)
    await web._run_app(application, host=HOST, port=port, backlog=1024, print=None)


def flask(port):
    from flask import Flask
    from werkzeug.serving import WSGIRequestHandler

    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    WSGIRequestHandler.log_request = lambda *_: None
    application = Flask(__name__)
    application.route("/")(lambda: work() or "hello\n")
    application.run(HOST, port, threaded=True)


if __name__ == "__main__":
    mode, port = sys.argv[1], int(sys.argv[2])
    flask(port) if mode == "flask" else asyncio.run({"tornado": tornado, "aiohttp": aiohttp}[mode](port))
