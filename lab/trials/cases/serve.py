"""Servers whose limit is known: serve.py PORT MODE [NUMBER ...], on the loopback or $CASE_HOST.

burn US    one thread that uses so much CPU time for each request
gil US     a thread for each connection, which uses so much CPU time for each request
wait MS    answers so much later, however many requests there are
split      answers in two parts, without TCP_NODELAY
pool N MS  N threads, each of which takes so long for a request
single MS  one connection after the other, each takes so long; a backlog of 5
relay PORT a thread and a connection to that port for each client
cheroot MS cheroot with its ten threads, each of which takes so long for a request
"""
import asyncio
import os
import queue
import select
import socket
import sys
import threading
import time

PORT, MODE = int(sys.argv[1]), sys.argv[2]
NUMBERS = [int(word) for word in sys.argv[3:]]
HOST = os.environ.get("CASE_HOST", "127.0.0.1")
PLACE = (HOST, PORT)


def burn(us):
    end = time.thread_time() + us / 1e6
    while time.thread_time() < end:
        pass


def answer(request):
    """The answer, and whether the connection stays open."""
    lower = request.lower()
    keep = b"keep-alive" in lower if b"http/1.0" in lower else b"connection: close" not in lower
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: %s\r\n\r\n"
    return head % (b"keep-alive" if keep else b"close"), b"hello\n", keep


async def each(reader, writer):
    try:
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            if MODE == "burn":
                burn(NUMBERS[0])
            if MODE == "wait":
                await asyncio.sleep(NUMBERS[0] / 1e3)
            head, body, keep = answer(request)
            if MODE == "split":
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
                writer.write(head)
                await asyncio.sleep(0)
                writer.write(body)
            else:
                writer.write(head + body)
            await writer.drain()
            if not keep:
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()


async def one_thread():
    server = await asyncio.start_server(each, *PLACE, backlog=1024)
    await server.serve_forever()


def serve(connection):
    """Answers one request; whether another may follow."""
    try:
        request = connection.recv(4096)
        if not request:
            return False
        if MODE == "gil":
            burn(NUMBERS[0])
        else:
            time.sleep(NUMBERS[-1] / 1e3)
        head, body, keep = answer(request)
        connection.sendall(head + body)
        return keep
    except ConnectionError:
        return False


def pool():
    listener = socket.create_server(PLACE, backlog=1024)
    ready, events, connections = queue.Queue(), select.epoll(), {}
    once = select.EPOLLIN | select.EPOLLONESHOT

    def work():
        while True:
            connection = ready.get()
            if serve(connection):
                events.modify(connection, once)
            else:
                connection.close()

    for _ in range(NUMBERS[0]):
        threading.Thread(target=work, daemon=True).start()
    events.register(listener, select.EPOLLIN)
    while True:
        for descriptor, _ in events.poll():
            if descriptor != listener.fileno():
                ready.put(connections[descriptor])
                continue
            connection, _ = listener.accept()
            connections[connection.fileno()] = connection
            events.register(connection, once)


def whole(connection):
    while serve(connection):
        pass
    connection.close()


def relay(client):
    try:
        with client, socket.create_connection((HOST, NUMBERS[0])) as behind:
            while request := client.recv(4096):
                behind.sendall(request)
                client.sendall(behind.recv(4096))
    except ConnectionError:
        pass


def accept(serve_one, backlog, threads):
    listener = socket.create_server(PLACE, backlog=backlog)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if threads:
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()
        else:
            serve_one(connection)


def cheroot():
    from cheroot import wsgi

    def application(_, start_response):
        time.sleep(NUMBERS[0] / 1e3)
        start_response("200 OK", [("Content-Length", "6")])
        return [b"hello\n"]

    wsgi.Server(PLACE, application, numthreads=10, request_queue_size=1024).start()


match MODE:
    case "pool":
        pool()
    case "gil":
        accept(whole, 1024, True)
    case "single":
        accept(whole, 5, False)
    case "relay":
        accept(relay, 1024, True)
    case "cheroot":
        cheroot()
    case _:
        asyncio.run(one_thread())
