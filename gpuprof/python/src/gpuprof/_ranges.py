"""Ranges of the program, through NVIDIA's package ``nvtx``."""

import functools
import inspect


def _nvtx():
    try:
        import nvtx
    except ImportError as error:
        raise ImportError(
            "gpuprof.range needs NVIDIA's package nvtx: pip install nvtx (or gpuprof[ranges])"
        ) from error
    return nvtx


class range:
    """A range of this thread: a context manager and a decorator.

        with gpuprof.range("step", color="green"):
            ...

        @gpuprof.range()        # named as the function
        def forward(x): ...

    ``domain``, ``color``, ``category`` and ``payload`` are those of ``nvtx.annotate``. A range may be used any number of
    times, on any thread, and within itself. It costs a microsecond; without a tool less.

    A coroutine may continue on another thread or beside others, where a range of a thread would end in the wrong place:
    decorating one is a ``TypeError``. Open the range between two ``await`` instead.
    """

    __slots__ = ("_annotation", "_attributes", "_name")

    def __init__(self, name=None, *, domain=None, color=None, category=None, payload=None):
        self._annotation = None
        self._name = name
        self._attributes = {
            "domain": domain,
            "color": color,
            "category": category,
            "payload": payload,
        }

    def _open(self):
        if self._annotation is None:
            if not isinstance(self._name, str):
                raise TypeError(f"the name of a range is text, not {self._name!r}")
            self._annotation = _nvtx().annotate(self._name, **self._attributes)
        return self._annotation

    def __enter__(self):
        self._open().__enter__()
        return self

    def __exit__(self, *error):
        self._annotation.__exit__(*error)
        return False

    def __call__(self, function):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__qualname__} is a coroutine, which may continue elsewhere: open the "
                "range inside, between two await"
            )
        if inspect.isgeneratorfunction(function):
            raise TypeError(
                f"{function.__qualname__} is a generator, whose body runs later: open the range inside"
            )
        name = function.__qualname__ if self._name is None else self._name
        named = range(name, **self._attributes)

        @functools.wraps(function)
        def within(*arguments, **keywords):
            with named:
                return function(*arguments, **keywords)

        return within
