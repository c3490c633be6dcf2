"""The loop of a lock that `jostle ... pipe:COMMAND` starts for each worker."""

import sys
from threading import Event, Lock, Thread


def serve(join):
    """Answers requests until they end.

    `join(worker, keys)` returns the capabilities and the promise ("shared timeout lease=2000"),
    then `acquire(key, shared, ms)` and `release(key)`. `acquire` waits for ever at -1 ms and
    not at all at 0; it returns True or False, or a number: a fencing token. `release` may return
    False: the lock was no longer ours.

    "renew" among the capabilities: `renew(key, ms)` follows, which prolongs the lease to so many
    ms from now on, or returns False: the lock is no longer ours. "give-up": `acquire` runs in a
    thread with a fourth argument, an Event, and returns False soon after that is set.
    """
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    writing, waiting = Lock(), {}
    acquire = release = renew = None

    def outcome(number, verb, words):
        nonlocal acquire, release, renew
        if verb == b"A":
            key, mode, ms = words
            ends = [waiting[number]] if number in waiting else []
            got = acquire(int(key), mode == b"s", int(ms), *ends)
            return b"R" if got is False else b"G" if got is True else b"G %d" % got
        if verb == b"U":
            is_lost = release(int(words[0])) is False
            return b"K" if not is_lost else b"R" if number else b"E the lock was no longer ours"
        if verb == b"W":
            return b"R" if renew(*map(int, words)) is False else b"K"
        if verb == b"X":
            waiting.get(words[0], Event()).set()
            return b"K"
        worker, keys = map(int, words[1:])
        capabilities, acquire, release, *renews = join(worker, keys)
        renew = renews and renews[0]
        return b"READY jostle/2 " + capabilities.encode()

    def answer(number, verb, words):
        try:
            said = outcome(number, verb, words)
        except Exception as error:
            said = b"E " + " ".join(f"{type(error).__name__}: {error}".split())[:500].encode()
        waiting.pop(number, None)
        with writing:
            answers.write(b" ".join(filter(None, [number, said])) + b"\n")
            answers.flush()
        return said

    gives_up = False
    for line in iter(asked.readline, b""):
        words = line.split()
        number = words.pop(0) if words[0].isdigit() else b""
        request = number, words[0], words[1:]
        if gives_up and words[0] == b"A":
            waiting[number] = Event()
            Thread(target=answer, args=request, daemon=True).start()
        else:
            gives_up |= b"give-up" in answer(*request).split() and words[0] == b"HELLO"
