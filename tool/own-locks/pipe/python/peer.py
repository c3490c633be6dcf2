"""The loop of a lock that `jostle ... pipe:COMMAND` starts for each worker."""

import sys


def serve(join):
    """Answers requests until they end.

    `join(worker, keys)` returns the capabilities ("shared timeout"), then
    `acquire(key, shared, ms)` and `release(key)`. `acquire` waits for ever at -1 ms and
    not at all at 0; it returns True or False, or a number: a fencing token.
    """
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    for line in iter(asked.readline, b""):
        verb, *words = line.split()
        try:
            if verb == b"A":
                key, mode, ms = words
                got = acquire(int(key), mode == b"s", int(ms))
                token = b"" if got is True else b" %d" % got
                answer = b"G" + token if got is not False else b"R"
            elif verb == b"U":
                release(int(words[0]))
                answer = b"K"
            else:
                worker, keys = map(int, words[1:])
                capabilities, acquire, release = join(worker, keys)
                answer = b"READY " + capabilities.encode()
        except Exception as error:
            answer = b"E " + " ".join(f"{type(error).__name__}: {error}".split())[:500].encode()
        answers.write(answer + b"\n")
        answers.flush()
