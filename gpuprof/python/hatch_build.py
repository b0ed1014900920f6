"""Puts what cargo built into the wheel: the program and the injection library."""

import os
import sysconfig

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = {
    "GPUPROF_PROGRAM": "gpuprof/bin/gpuprof",
    "GPUPROF_LIBRARY": "gpuprof/lib/libgpuprof_inject.so",
}


class Artifacts(BuildHookInterface):
    """Files by the variables of the environment that name them."""

    def initialize(self, version, build_data):
        if version == "editable":
            return
        for variable, place in FILES.items():
            file = os.environ.get(variable, "")
            if not os.path.isfile(file):
                raise FileNotFoundError(
                    f"{variable}={file} names no file: build the wheel with .ci/build-wheel"
                )
            build_data["force_include"][os.path.abspath(file)] = place
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        # No Python API is used, but machine code of one platform.
        build_data["tag"] = f"py3-none-{platform}"
