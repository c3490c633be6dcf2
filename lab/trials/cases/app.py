"""A WSGI application for gunicorn, which takes 20 ms for a request."""
import time


def application(_, start_response):
    time.sleep(0.02)
    start_response("200 OK", [("Content-Length", "6")])
    return [b"hello\n"]
