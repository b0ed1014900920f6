"""Ranges and modules without CUDA: what they call, in which order. The recordings are tested in test_recorded.py."""

import asyncio
import sys
import threading
import types
import unittest
from unittest import mock

import gpuprof
from gpu import Module, OldModule


class Calls:
    """A fake of NVIDIA's package: the open ranges of each thread, and all that were opened."""

    def __init__(self):
        self.opened, self.local = [], threading.local()
        self.module = types.ModuleType("nvtx")
        calls = self

        class Annotate:
            def __init__(self, message, **attributes):
                self.message, self.attributes = message, attributes

            def __enter__(self):
                calls.stack().append(self.message)
                calls.opened.append("/".join(calls.stack()))
                return self

            def __exit__(self, *error):
                assert calls.stack().pop() == self.message

        self.module.annotate = Annotate

    def stack(self):
        return self.local.__dict__.setdefault("stack", [])


class WithCalls(unittest.TestCase):
    """Each test has its own NVTX, of which no range may be left open."""

    def setUp(self):
        self.calls = Calls()
        patch = mock.patch.dict(sys.modules, {"nvtx": self.calls.module})
        patch.start()
        self.addCleanup(patch.stop)

    def tearDown(self):
        self.assertEqual(self.calls.stack(), [])


class Ranges(WithCalls):
    def test_block_is_a_range(self):
        with gpuprof.range("outer", color="red"), gpuprof.range("inner"):
            pass
        self.assertEqual(self.calls.opened, ["outer", "outer/inner"])

    def test_range_is_closed_by_an_error_which_passes(self):
        with self.assertRaises(KeyError), gpuprof.range("failing"):
            raise KeyError
        self.assertEqual(self.calls.opened, ["failing"])

    def test_function_has_its_own_name_or_a_given_one(self):
        @gpuprof.range()
        def plain(value):
            """Its text."""
            return value + 1

        @gpuprof.range("given")
        def recursive(depth):
            return depth if depth == 0 else recursive(depth - 1)

        self.assertEqual((plain(1), recursive(2)), (2, 0))
        self.assertEqual((plain.__name__, plain.__doc__), ("plain", "Its text."))
        name = f"{type(self).__name__}.{self._testMethodName}.<locals>.plain"
        self.assertEqual(self.calls.opened, [name, "given", "given/given", "given/given/given"])

    def test_coroutines_and_generators_are_refused(self):
        async def coroutine():
            await asyncio.sleep(0)

        def generator():
            yield

        for function in (coroutine, generator):
            with self.assertRaisesRegex(TypeError, "open the range inside"):
                gpuprof.range("no")(function)

    def test_name_that_is_no_text_is_refused(self):
        with self.assertRaisesRegex(TypeError, "7"), gpuprof.range(7):
            pass

    def test_without_the_package_the_error_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {"nvtx": None}):
            with self.assertRaisesRegex(ImportError, "pip install nvtx"), gpuprof.range("a"):
                pass


class Modules(WithCalls):
    def model(self, base=Module):
        class Failing(base):
            def forward(self, value):
                if value == "fail":
                    raise ValueError(value)
                return value

        class Net(base):
            pass

        attention = base(query=base(), key=Failing())
        return Net(embedding=base(), layers=base(**{"0": attention, "1": base()}))

    def test_ranges_have_the_paths_of_modules(self):
        model = self.model()
        gpuprof.annotate(model)
        self.assertEqual(model(3), 3)
        expected = [
            "Net",
            "Net/embedding",
            "Net/layers",
            "Net/layers/layers.0",
            "Net/layers/layers.0/layers.0.query",
            "Net/layers/layers.0/layers.0.key",
            "Net/layers/layers.1",
        ]
        self.assertEqual(self.calls.opened, expected)

    def test_removed_hooks_open_nothing_and_a_second_annotation_replaces_the_first(self):
        model = self.model()
        gpuprof.annotate(model)
        with gpuprof.annotate(model, name="again"):
            model(0)
        model(0)
        self.assertEqual(len(self.calls.opened), 7)
        self.assertEqual(self.calls.opened[0], "again")
        for _, module in model.named_modules():
            self.assertFalse(module.before or module.after or module.always)

    def test_errors_of_forward_close_their_ranges(self):
        model = self.model()
        gpuprof.annotate(model)
        with self.assertRaises(KeyError), gpuprof.range("step"):
            with self.assertRaises(ValueError):
                model("fail")
            self.assertEqual(self.calls.stack(), ["step"])
            raise KeyError

    def test_error_of_another_hook_leaves_no_range(self):
        def fail(*_):
            raise ValueError

        model = self.model()
        model.children["embedding"].register_forward_pre_hook(fail)
        gpuprof.annotate(model)
        with self.assertRaises(ValueError):
            model(0)

    def test_hooks_that_are_not_always_called_are_refused(self):
        model = self.model(OldModule)
        with self.assertRaisesRegex(TypeError, "PyTorch 2.1"):
            gpuprof.annotate(model)
        model(0)
        self.assertEqual(self.calls.opened, [])

    def test_shared_and_recursive_modules_have_a_range_each_time(self):
        shared = Module()

        class Twice(Module):
            def forward(self, value):
                return shared(shared(value))

        model = Twice(part=shared)
        gpuprof.annotate(model)
        model(0)
        self.assertEqual(self.calls.opened, ["Twice", "Twice/part", "Twice/part"])

    def test_threads_have_their_own_ranges(self):
        model = self.model()
        gpuprof.annotate(model)
        threads = [threading.Thread(target=model, args=(0,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(self.calls.opened), 8 * 7)
        self.assertEqual(self.calls.opened.count("Net/layers/layers.1"), 8)


if __name__ == "__main__":
    unittest.main()
