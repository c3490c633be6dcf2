"""Programs for `pipe:` that break the protocol, one kind each: broken_peer.py KIND [FILE].

What they get wrong apart, they are a lock by fcntl(2) on FILE.
"""

import fcntl
import os
import signal
import sys
import time

kind = sys.argv[1]
file = open(sys.argv[2], "a+b") if len(sys.argv) > 2 else None


def say(text):
    os.write(1, text.encode())


def line():
    text = sys.stdin.readline()
    if not text:
        if kind == "speaks at the end":
            say("G\n")
        if kind == "fails at the end":
            sys.exit("cannot clean up\nthe disk is full")
        sys.exit(0)
    return text.split()


def lock(how):
    if file:
        fcntl.lockf(file, how)


_, _, worker, _ = line()
if kind == "leaves at once":
    sys.exit("no licence")
if kind == "is another program":
    say("Welcome!\n")
elif kind == "early":
    say("READY\nG\n")
elif kind != "mute":
    words = [word for word in ("token", "timeout") if word in kind]
    say(" ".join(["READY", *words]) + "\n")

since = None
while True:
    verb, *_ = line()
    # Worker 0 is asked alone before the run, for what the lock costs. When the window
    # opens, both have been asked.
    since = since or time.monotonic()
    later = worker == "1" and time.monotonic() > since + 0.4
    if verb == "A":
        if kind != "lets two in":
            lock(fcntl.LOCK_EX)
        if kind == "garbage":
            say("you have it \x1b[31m\n")
        elif kind == "twice":
            say("G\nG\n")
        elif kind == "same token":
            say("G 7\n")
        elif kind == "half":
            say("G")
            time.sleep(60)
        elif kind == "ignores its timeout":
            time.sleep(60)
        elif kind == "long":
            say("G" * 5000 + "\n")
        elif kind == "error":
            say("E no such lock\n")
        elif kind == "refuses":
            say("R\n")
        elif kind == "exits" or kind == "exits later" and later:
            sys.exit("line one\n\x1b]0;title\x07out of luck")
        elif kind == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif kind == "closes":
            os.close(1)
            time.sleep(60)
        else:
            say("G\n")
    else:
        lock(fcntl.LOCK_UN)
        if kind == "floods":
            sys.stderr.write("flood " * 50_000 + "\n")
            sys.stderr.flush()
        if kind == "silent":
            time.sleep(60)
        say("G\n" if kind == "grants a release" else "K\n")
        if kind == "twice in two":
            time.sleep(0.001)
            say("K\n")
