"""The program ``gpuprof`` of the wheel: ``gpuprof ...`` and ``python -m gpuprof ...``."""

import os
import sys

from ._files import program


def main():
    """Becomes the program."""
    path = program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
