"""A web server for tests: what it answers stands in the path.

/status/N answers with that code, /slow after 60 s, /bytes/N with so many, and
/drop closes the connection. Every path and the number of its connection go to
the log, what a client is authorized by to a file beside it. Usage: server.py LOG [CERTIFICATE KEY]; it prints its port, and ends
when its standard input does.
"""

import http.server
import os
import socketserver
import ssl
import sys
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    connections = 0
    log = open(sys.argv[1], "a", buffering=1)

    def setup(self):
        super().setup()
        Handler.connections += 1
        self.number = Handler.connections

    def do_GET(self):
        Handler.log.write(f"{self.number} {self.path}\n")
        if "Authorization" in self.headers:
            with open(os.path.join(os.path.dirname(sys.argv[1]), "authorization"), "a") as log:
                log.write(self.headers["Authorization"] + "\n")
        kind, _, rest = self.path.lstrip("/").partition("/")
        if kind == "slow":
            time.sleep(60)
        if kind == "drop":
            self.close_connection = True
            return
        code = int(rest) if kind == "status" else 200
        size = int(rest) if kind == "bytes" else 2
        body = b"" if code == 204 else b"x" * size
        self.send_response(code)
        if code != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


server = Server(("127.0.0.1", 0), Handler)
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
