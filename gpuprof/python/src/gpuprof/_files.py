"""The program and the library that the wheel brings."""

import os
import shutil

_HERE = os.path.dirname(os.path.abspath(__file__))


def program():
    """The path of the program: the wheel's, or else the one that ``PATH`` finds."""
    own = os.path.join(_HERE, "bin", "gpuprof")
    if os.path.isfile(own):
        return own
    # A script of this package would start itself again.
    found = shutil.which("gpuprof")
    if found is None or _is_script(found):
        raise FileNotFoundError(
            "the program gpuprof is neither in this package nor in PATH: install the wheel, or "
            "`cargo install --path gpuprof`"
        )
    return found


def library():
    """The path of the injection library: the wheel's, or one beside the program."""
    own = os.path.join(_HERE, "lib", "libgpuprof_inject.so")
    places = [own]
    if not os.path.isfile(own):
        folder = os.path.dirname(os.path.realpath(program()))
        places += [
            os.path.join(folder, "libgpuprof_inject.so"),
            os.path.join(folder, "..", "lib", "libgpuprof_inject.so"),
        ]
    for place in places:
        if os.path.isfile(place):
            return os.path.realpath(place)
    raise FileNotFoundError(f"libgpuprof_inject.so is in none of {', '.join(places)}")


def _is_script(path):
    with open(path, "rb") as file:
        return file.read(2) == b"#!"
