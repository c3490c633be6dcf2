"""Plants a situation for `jostle who`, and writes its truth: plant.py NAME of situations.toml.

The truth is what the plant itself did, told by whoever did it; `jostle who` has no part in it.
A field of it is compared as it is; a text must be a part of the printed one, None must be null.
"""
import base64, ctypes, fcntl, json, mmap, os, signal, socket, struct, subprocess, sys, threading, time
import tomllib, urllib.request

EX, SH, NB = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB
ADDRESS = os.environ.get("ADDRESS", "")
HOST, PORT = (ADDRESS.rsplit(":", 1) + [""])[:2] if ADDRESS else ("", "")
SECRET = os.environ.get("SECRET", "")
libc = ctypes.CDLL(None, use_errno=True)
truth = {"state": "free", "holders": [], "waiters": []}
children, kept = [], []
me = os.getpid


def keep(*things):
    """Keeps them open for as long as this process lives."""
    kept.extend(things)
    return things[0]


def holds(pid=None, **fields):
    truth["state"] = "held"
    truth["holders"].append(({"pid": pid} if pid else {}) | fields)


def nobody_knows(**fields):
    """It is held, and nobody can know by whom."""
    holds(who=None, **fields)


def waits(pid=None, **fields):
    truth["waiters"].append(({"pid": pid} if pid else {}) | fields)


def unknown():
    truth["state"] = "unknown"


def until(look, what):
    for _ in range(30_000):
        found = look()
        if found:
            return found
        time.sleep(0.002)
    sys.exit(f"in vain: {what}")


def child(live, blocks=False):
    """A process that does this, says so, and lives on; with `blocks` it is not waited for."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        libc.prctl(1, signal.SIGKILL)
        os.close(read)
        if blocks:
            os.close(write)
        live()
        if not blocks:
            os.write(write, b".")  # A child of its own has the writing end, too.
        signal.pause()
        os._exit(0)
    os.close(write)
    os.read(read, 1)
    os.close(read)
    children.append(pid)
    return pid


def inherited(take):
    """A process takes a lock and ends, its child has inherited the open file. Both numbers."""
    read, write = os.pipe()
    planter = me()
    libc.prctl(36, 1)  # The child becomes ours.
    taker = os.fork()
    if taker == 0:
        take()
        heir = os.fork()
        if heir == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            until(lambda: os.getppid() == planter, "the taker's end")
            libc.prctl(1, signal.SIGKILL)
            os.write(write, str(me()).encode())
            signal.pause()
        os._exit(0)
    os.waitpid(taker, 0)
    heir = int(os.read(read, 20))
    children.append(heir)
    return taker, heir


def queued(pid):
    """Until the kernel lists it among those that wait for a file."""
    text = lambda: open("/proc/locks").read()
    until(lambda: any("->" in l and f" {pid} " in l for l in text().splitlines()), f"{pid} waits")
    return pid


def asleep(pid, tid=None):
    """Until a thread sleeps, and has not been run for a while."""
    path = f"/proc/{pid}/task/{tid or pid}/status"

    def still():
        before = open(path).read()
        time.sleep(0.1)
        return "State:\tS" in before and open(path).read() == before

    until(still, f"{pid} sleeps")
    return tid or pid


def touch(name, text=""):
    with open(name, "w") as file:
        file.write(text)


def flock(name, how=EX):
    file = keep(open(name))
    fcntl.flock(file, how)
    return file


def record(name, command, kind, first, last):
    """command: F_SETLK (6), F_SETLKW (7), F_OFD_SETLK (37), F_OFD_SETLKW (38)."""
    file = keep(open(name, "r+"))
    fcntl.fcntl(file, command, struct.pack("hhqqi4x", kind, 0, first, last - first + 1, 0))


def run(*line, **more):
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True, **more).stdout.strip()


class Redis:
    """A connection to Redis or jostled."""

    def __init__(self):
        self.socket = keep(socket.create_connection((HOST, int(PORT))))
        self.file = self.socket.makefile("rb")
        self.port = self.socket.getsockname()[1]

    def send(self, *words):
        words = [str(word).encode() for word in words]
        body = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self.socket.sendall(b"*%d\r\n" % len(words) + body)

    def read(self):
        line = self.file.readline().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            sys.exit(line.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest.decode()

    def __call__(self, *words):
        self.send(*words)
        return self.read()


class Sql:
    """A session by the service's own client, whose statements are written to it."""

    def __init__(self, *line, **env):
        self.process = keep(subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                             env=os.environ | env))

    def send(self, text):
        self.process.stdin.write(text.rstrip(";") + ";\n")
        self.process.stdin.flush()

    def __call__(self, text):
        self.send(text)
        return self.process.stdout.readline().strip()


def psql(name="nightly-job", port=None):
    return Sql("psql", "-XAtq", "-h", HOST, "-p", str(port or PORT), "-U", "postgres", "postgres", PGAPPNAME=name)


def mariadb():
    return Sql("mariadb", "-h", HOST, "-P", PORT, "-u", "root", "-N", "-n", "-B", "--skip-ssl")


def bouncer(mode):
    """A pgbouncer with one session of the server; its port."""
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    touch("bouncer.ini", f"[databases]\npostgres = host={HOST} port={PORT} user=postgres\n[pgbouncer]\n"
          f"listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = {mode}\n"
          f"unix_socket_dir =\nlogfile = {os.getcwd()}/bouncer.log\ndefault_pool_size = 4\n")
    user = ["setpriv", "--reuid=nobody", "--clear-groups"] if os.getuid() == 0 else []
    touch("bouncer.log")
    os.chmod("bouncer.log", 0o666)
    process = keep(subprocess.Popen([*user, "pgbouncer", "bouncer.ini"], stderr=subprocess.DEVNULL))
    children.append(process.pid)

    def is_there():
        try:
            return socket.create_connection(("127.0.0.1", port)).close() is None
        except OSError:
            return False

    until(is_there, "pgbouncer listens")
    return port


def http(method, path, body=None):
    request = urllib.request.Request(f"http://{ADDRESS}{path}", method=method,
                                     data=None if body is None else json.dumps(body, separators=(",", ":")).encode())
    return json.loads(urllib.request.urlopen(request).read() or "null")


def text64(text):
    return base64.b64encode(text.encode()).decode()


def etcd_key(name, ttl):
    """A key below the lock's with a lease of its own, as etcd's library makes it; the lease."""
    lease = int(http("POST", "/v3/lease/grant", {"TTL": ttl})["ID"])
    http("POST", "/v3/kv/put", {"key": text64(f"{name}/{lease:x}"), "lease": lease})
    return f"{lease:x}"


class Zookeeper:
    """A session."""

    def __init__(self):
        self.socket = keep(socket.create_connection((HOST, int(PORT))))
        self.number = 0
        greeting = struct.pack(">iqiqi16sb", 0, 0, 30_000, 0, 16, bytes(16), 0)
        answer = self.exchange(greeting)
        self.id = f"0x{struct.unpack('>q', answer[8:16])[0]:x}"

    def exchange(self, body):
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        length = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))[0]
        return self.socket.recv(length, socket.MSG_WAITALL)

    def create(self, path, flags, data=b""):
        """flags: 0 a node that stays, 3 an ephemeral one with a number."""
        self.number += 1
        path = path.encode()
        acl = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
        body = struct.pack(">iii", self.number, 1, len(path)) + path + struct.pack(">i", len(data)) + data
        answer = self.exchange(body + acl + struct.pack(">i", flags))
        return answer[20:].decode()


class Nats:
    """A connection; requests to JetStream are answered with JSON."""

    def __init__(self):
        self.file = keep(socket.create_connection((HOST, int(PORT)))).makefile("rwb", buffering=0)
        self.file.readline()
        login = json.dumps({"verbose": False, "headers": True, "user": "jostle", "pass": SECRET})
        self.file.write(f"CONNECT {login}\r\nSUB answers.* 1\r\n".encode())

    def ask(self, subject, body, head=None):
        body = body if isinstance(body, bytes) else body.encode()
        if head:
            self.file.write(f"HPUB {subject} answers.1 {len(head)} {len(head) + len(body)}\r\n".encode())
            self.file.write(head.encode() + body + b"\r\n")
        else:
            self.file.write(f"PUB {subject} answers.1 {len(body)}\r\n".encode() + body + b"\r\n")
        while True:
            line = self.file.readline().split()
            if line[0] == b"MSG":
                return json.loads(self.file.read(int(line[-1]) + 2))

    def bucket(self, name, ttl_s):
        self.ask(f"$JS.API.STREAM.CREATE.KV_{name}", json.dumps({
            "name": f"KV_{name}", "subjects": [f"$KV.{name}.>"], "max_age": ttl_s * 10**9, "storage": "memory",
            "max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "discard": "new", "allow_direct": True}))


class Mutex:
    """A mutex of the C library in memory that forked processes share."""

    def __init__(self, robust=False, pi=False):
        self.memory = keep(mmap.mmap(-1, 4096))
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        attributes = ctypes.create_string_buffer(64)
        libc.pthread_mutexattr_init(attributes)
        libc.pthread_mutexattr_setpshared(attributes, 1)
        libc.pthread_mutexattr_setrobust(attributes, int(robust))
        libc.pthread_mutexattr_setprotocol(attributes, int(pi))
        libc.pthread_mutex_init(ctypes.c_void_p(self.at), attributes)

    def lock(self):
        libc.pthread_mutex_lock(ctypes.c_void_p(self.at))


def thread(live, *words):
    """A thread that does this; its number."""
    born = []
    threading.Thread(target=lambda: (born.append(threading.get_native_id()), live(*words)), daemon=True).start()
    return until(lambda: born, "a thread")[0]


def stuck(tid, kind, *owners, **fields):
    """The thread waits; the owners are processes, None where nobody can know them."""
    truth["state"] = "held"
    truth.setdefault("waits", []).append({"tid": tid, "kind": kind, "owners": list(owners)} | fields)


def main():
    with open(os.path.join(os.path.dirname(__file__), "situations.toml"), "rb") as file:
        found = [one for one in tomllib.load(file)["situation"] if one["name"] == sys.argv[1]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        exec(compile(found[0]["plant"], sys.argv[1], "exec"), globals())
        with open("truth.json", "w") as file:
            json.dump(truth, file)
        print("planted", flush=True)
        sys.stdin.read()
    finally:
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass


if __name__ == "__main__":
    main()
