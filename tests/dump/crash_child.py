"""Writes one dump after another into a folder until it is killed: `python -m tests.dump.crash_child FOLDER`."""

import itertools
import sys
from pathlib import Path

from . import samples


def main(folder: Path) -> None:
    print("ready", flush=True)
    for number in itertools.count():
        samples.make(folder / f"{number}.h5", tokens=250, seed=number, pieces=4)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
