"""fake_consul.py PORT [CERTIFICATE KEY]: answers as Consul does where locks are concerned, on the loopback
address. A test changes and reads what it has below /test/."""

import json
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

# For all that follows; notified whenever a key may have changed.
changed = threading.Condition()
keys, sessions = {}, {}
delays = {}  # keys that are granted to nobody until then
test = {"requests": 0, "token": None, "leader": "127.0.0.1:8300"}
index = 0


def seconds(text):
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


def end(ident):
    """Frees what a session has, with its lock-delay."""
    global index
    session = sessions.pop(ident, None)
    if session is None:
        return
    index += 1
    for name, key in keys.items():
        if key.get("Session") == ident:
            del key["Session"]
            key["ModifyIndex"] = index
            delays[name] = time.monotonic() + session["delay"]


def end_lapsed():
    # A real one takes up to twice as long.
    now = time.monotonic()
    for ident in [one for one, session in sessions.items() if now > session["renewed"] + session["ttl"]]:
        end(ident)


def create(body):
    global index
    wanted = json.loads(body)
    ttl = seconds(wanted.get("TTL", "0s"))
    if ttl < 10:
        return 400, f"Invalid Session TTL '{ttl * 1e9:.0f}', must be between [10s=24h0m0s]"
    index += 1
    ident = f"00000000-0000-0000-0000-{index:012x}"
    delay = seconds(wanted.get("LockDelay", "15s"))
    sessions[ident] = {"name": wanted.get("Name", ""), "ttl": ttl, "delay": delay, "renewed": time.monotonic()}
    return 200, {"ID": ident}


def renew(ident):
    end_lapsed()
    if ident not in sessions:
        return 404, f"Session id '{ident}' not found"
    sessions[ident]["renewed"] = time.monotonic()
    return 200, [{"ID": ident}]


def put(name, query):
    global index
    end_lapsed()
    acquire, release = query.get("acquire"), query.get("release")
    if acquire and acquire not in sessions:
        return 500, f'invalid session "{acquire}"'
    key = dict(keys.get(name, {"Key": name, "Value": None, "LockIndex": 0}))
    owner = key.pop("Session", None)
    if acquire:
        is_granted = time.monotonic() >= delays.get(name, 0) and owner in (None, acquire)
        key["LockIndex"] += owner is None
        key["Session"] = acquire
    else:
        is_granted = release is None or owner == release
    if is_granted:
        index += 1
        key.update(Flags=int(query.get("flags", 0)), ModifyIndex=index)
        key.setdefault("CreateIndex", index)
        keys[name] = key
    return 200, is_granted


def look(name, query):
    """Answers at once, or when the index of the key exceeds that of the query."""
    wait = seconds(query.get("wait", "300s"))
    until = time.monotonic() + wait * 17 / 16
    while True:
        end_lapsed()
        key = keys.get(name)
        now = key["ModifyIndex"] if key else max(index, 1)
        left = until - time.monotonic()
        if now > int(query.get("index", 0)) or left <= 0:
            return (200, [key], now) if key else (404, "", now)
        # Sessions end while nobody asks.
        changed.wait(min(left, 0.05))


def control(act, value):
    if act == "end-sessions":
        for ident in list(sessions):
            end(ident)
    elif act == "end-delays":
        delays.clear()
    elif act in ("token", "leader"):
        test[act] = value
    return 200, [len(sessions), len(keys), test["requests"]]


def answer(method, path, query, token, body):
    global index
    if path.startswith("/test/"):
        return control(path[6:], query.get("value", ""))
    test["requests"] += 1
    if test["token"] not in (None, token):
        return 403, "Permission denied: token lacks permission"
    path = path.removeprefix("/v1/")
    if path == "status/leader":
        return 200, test["leader"]
    if not test["leader"]:
        return 500, "No cluster leader"
    if path == "agent/self":
        return 200, {"Config": {"Version": "1.21.0"}}
    if path == "session/list":
        return 200, [{"ID": ident, "Name": session["name"]} for ident, session in sessions.items()]
    if path == "session/create":
        return create(body)
    if path.startswith("session/renew/"):
        return renew(path.removeprefix("session/renew/"))
    if path.startswith("session/destroy/"):
        end(path.removeprefix("session/destroy/"))
        return 200, True
    name = path.removeprefix("kv/")
    if method == "GET":
        return look(name, query)
    if method == "PUT":
        return put(name, query)
    for key in [key for key in keys if key.startswith(name)]:
        del keys[key]
    index += 1
    return 200, True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def serve(self):
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with changed:
            token = self.headers.get("X-Consul-Token")
            status, said, *at = answer(self.command, url.path, dict(parse_qsl(url.query)), token, body)
            changed.notify_all()
        text = said if isinstance(said, str) and status != 200 else json.dumps(said, separators=(",", ":"))
        head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        head += "".join(f"X-Consul-Index: {one}\r\n" for one in at)
        self.wfile.write(f"{head}\r\n{text}".encode())

    do_GET = do_PUT = do_DELETE = serve

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 4096

    def handle_error(self, *_):
        pass  # A connection that a client has reset is over.


server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[2:])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
