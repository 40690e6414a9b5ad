"""Runs in a process of its own: loads one symbol of a user's shared library and calls it, so that a crash or a hang ends here.

Standard library only, started by its path: it is up in a few milliseconds.  Reads one JSON job per line from standard input
(file to map, arguments) and answers one JSON line per job on the descriptor given; the library's own prints go elsewhere.
"""

import ctypes
import json
import mmap
import os
import resource
import sys


def main(library: str, symbol: str, reply_to: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer = os.fdopen(reply_to, "w", buffering=1)
    try:
        kernel = getattr(ctypes.CDLL(library), symbol)
    except (OSError, AttributeError) as error:
        print(json.dumps({"error": str(error)}), file=answer)
        return
    kernel.restype = ctypes.c_int
    print(json.dumps({"loaded": True}), file=answer)
    kept = []  # a mapping that ctypes points into cannot be closed
    for line in sys.stdin:
        job = json.loads(line)
        with open(job["file"], "r+b") as file:
            mapping = mmap.mmap(file.fileno(), 0)
        base = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        kept.append(mapping)
        arguments = [
            ctypes.c_void_p(None if value is None else base + value) if kind == "pointer" else ctypes.c_int64(value)
            for kind, value in job["arguments"]
        ]
        print(json.dumps({"returned": kernel(*arguments)}), file=answer)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
