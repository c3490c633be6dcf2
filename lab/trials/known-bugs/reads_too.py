"""Record locks of fcntl(2), as file_lock.py has them: reads_too.py PATH. Each owner then opens the
file once more and closes that descriptor, as another part of the program would that reads it."""

import runpy
import sys

import peer

serve = peer.serve


def reading(join):
    def joined(worker, keys):
        promise, acquire, release = join(worker, keys)

        def acquire_and_read(key, shared, ms):
            is_granted = acquire(key, shared, ms)
            if is_granted:
                open(sys.argv[1]).close()
            return is_granted

        return promise, acquire_and_read, release

    serve(joined)


peer.serve = reading
runpy.run_module("file_lock")
