"""Profiles the GPU work of Python programs.

Under ``gpuprof run -- python program.py`` nothing here is needed: kernels, copies and the NVTX ranges of libraries are
recorded. This package adds ranges, a range for each module of a PyTorch model, and windows of recording.

    import gpuprof

    @gpuprof.range("step")
    def step(): ...

    gpuprof.annotate(model)

    with gpuprof.profile() as p:
        step()
    print(p.report())
"""

from ._control import GpuprofError, Profile, inject, profile
from ._modules import Annotation, annotate
from ._ranges import range

__all__ = ["Annotation", "GpuprofError", "Profile", "annotate", "inject", "profile", "range"]
