"""A range for each module of a PyTorch model, without a change to the model.

PyTorch is not imported: a model is what has ``named_modules`` and hooks.
"""

import threading

from ._ranges import range

_ATTRIBUTE = "_gpuprof_annotation"


class _Open(threading.local):
    """The open ranges of modules on this thread: pairs of module and range."""

    def __init__(self):
        self.ranges = []


_open = _Open()


class Annotation:
    """The hooks of one model. ``remove`` takes them away; so does the end of a ``with`` block."""

    def __init__(self, model):
        self._model = model
        self._handles = []

    def remove(self):
        """Removes the hooks. Modules that run now still close their ranges."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if getattr(self._model, _ATTRIBUTE, None) is self:
            delattr(self._model, _ATTRIBUTE)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()
        return False


def annotate(model, *, name=None, domain=None):
    """Opens a range around the ``forward`` of each module of a model; returns the hooks as an ``Annotation``.

    The range of a module has its path, such as ``layers.0.attention``, as ``named_modules`` has it; that of the model itself
    has ``name``, or the name of its class. Work that autograd launches in ``backward`` is not in these ranges.

    Annotating a model again replaces the hooks. Annotate it before ``torch.compile``, which may leave hooks out; ranges around
    a graph's capture name the kernels of its replays.
    """
    before = getattr(model, _ATTRIBUTE, None)
    if before is not None:
        before.remove()
    annotation = Annotation(model)
    try:
        for path, module in model.named_modules():
            label = path or name or type(model).__name__
            annotation._handles += _hooks(module, range(label, domain=domain))
        setattr(model, _ATTRIBUTE, annotation)
    except BaseException:
        annotation.remove()
        raise
    return annotation


def _hooks(module, of_module):
    """The handles of two hooks, before and after the module's ``forward``."""

    def enter(entered, *_):
        of_module.__enter__()
        _open.ranges.append((entered, of_module))

    def leave(left, *_):
        _close(left)

    first = module.register_forward_pre_hook(enter)
    try:
        # Called also if `forward` raises.
        return [first, module.register_forward_hook(leave, always_call=True)]
    except TypeError as error:
        first.remove()
        raise TypeError(
            "gpuprof.annotate needs hooks that are always called: PyTorch 2.1 or newer"
        ) from error


def _close(module):
    """Closes the innermost range of a module. Its own were closed before, if no hook of others failed."""
    ranges = _open.ranges
    if not any(opened is module for opened, _ in ranges):
        return
    while ranges:
        opened, of_module = ranges.pop()
        of_module.__exit__(None, None, None)
        if opened is module:
            return
