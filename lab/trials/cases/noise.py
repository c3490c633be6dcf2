"""Other programs' connections, until standard input ends: each fiftieth of a second five to a server
that answers and closes, and one to a port at which nobody listens.
"""
import os
import socket
import sys
import threading
import time

server, nobody = socket.create_server(("127.0.0.1", 0), backlog=100), socket.socket()
nobody.bind(("127.0.0.1", 0))


def serve():
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(connection.recv(100))


def ask():
    with socket.create_connection(server.getsockname()) as connection:
        connection.sendall(b"hello\n")
        connection.recv(100)


def load():
    while True:
        time.sleep(0.02)
        for _ in range(5):
            ask()
        with socket.socket() as connection:
            connection.connect_ex(nobody.getsockname())


for each in (serve, load):
    threading.Thread(target=each, daemon=True).start()
sys.stdin.read()
os._exit(0)
