"""What the tests need of CUDA: the driver through ctypes, which is the fake one, and a module that is like those of torch."""

import os
import sys
from collections import OrderedDict

sys.path.insert(
    0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "unmodified", "programs")
)
from cuda import Gpu  # noqa: E402,F401


class Handle:
    """What registering a hook returns."""

    def __init__(self, hooks, hook):
        self.hooks, self.key = hooks, object()
        hooks[self.key] = hook

    def remove(self):
        self.hooks.pop(self.key, None)


class Module:
    """The part of ``torch.nn.Module`` that hooks and names need; ``always_call`` as since PyTorch 2.1."""

    def __init__(self, **children):
        self.children = children
        self.before, self.after, self.always = OrderedDict(), OrderedDict(), OrderedDict()

    def named_modules(self, prefix="", seen=None):
        seen = set() if seen is None else seen
        if self in seen:
            return
        seen.add(self)
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name, seen)

    def register_forward_pre_hook(self, hook):
        return Handle(self.before, hook)

    def register_forward_hook(self, hook, *, always_call=False):
        return Handle(self.always if always_call else self.after, hook)

    def __call__(self, *arguments):
        result = None
        try:
            for hook in list(self.before.values()):
                hook(self, arguments)
            result = self.forward(*arguments)
            for hook in list(self.after.values()):
                hook(self, arguments, result)
        finally:
            for hook in list(self.always.values()):
                hook(self, arguments, result)
        return result

    def forward(self, value):
        for child in self.children.values():
            value = child(value)
        return value


class OldModule(Module):
    """As before PyTorch 2.1."""

    def register_forward_hook(self, hook):
        return Handle(self.after, hook)


class Launching(Module):
    """Without children; launches a kernel of this name."""

    def __init__(self, gpu, name, launches):
        super().__init__()
        self.gpu, self.function, self.launches = gpu, gpu.kernel(name), launches

    def forward(self, value):
        for _ in range(self.launches):
            self.gpu.launch(self.function)
        return value
