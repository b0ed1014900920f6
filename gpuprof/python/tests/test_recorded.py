"""Programs with the package under `gpuprof run`, or with gpuprof.inject(), on the fake driver.

Each scene runs in a process of its own: `python test_recorded.py SCENE` plays one.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest

SCENES = {}


def scene(function):
    SCENES[function.__name__] = function
    return function


def launches(gpu, function, count):
    for _ in range(count):
        gpu.launch(function)
    gpu.call("cuCtxSynchronize")


@scene
def windows():
    """Three windows; work outside of them is not recorded."""
    import gpuprof
    from gpu import Gpu

    gpu = Gpu()
    inside, outside = gpu.kernel("inside"), gpu.kernel("outside")
    launches(gpu, outside, 10)
    for _ in range(3):
        with gpuprof.profile() as p:
            with gpuprof.range("window"):
                launches(gpu, inside, 20)
        launches(gpu, outside, 10)
    # Nested: recording ends with the outer one.
    with gpuprof.profile():
        with gpuprof.profile() as p:
            launches(gpu, inside, 5)
        launches(gpu, inside, 5)
    launches(gpu, outside, 10)
    print(json.dumps({"report": p.report(), "path": p.path, "summary": p.run("stats", "cuda_gpu_kern_sum", "--format", "csv")}))


@scene
def always_on():
    """Where recording is on before a block it stays on."""
    import gpuprof
    from gpu import Gpu

    gpu = Gpu()
    function = gpu.kernel("inside")
    launches(gpu, function, 10)
    with gpuprof.profile() as p:
        launches(gpu, function, 10)
    launches(gpu, function, 10)
    with gpuprof.profile():
        pass
    print(json.dumps({"report": p.report()}))


@scene
def modules():
    """Kernels of modules are in the ranges of their paths, on each thread."""
    import gpuprof
    from gpu import Gpu, Launching, Module

    gpu = Gpu()

    class Net(Module):
        pass

    layers = Module(**{str(i): Launching(gpu, f"layer_{i}", 3) for i in range(2)})
    model = Net(embedding=Launching(gpu, "embed", 2), layers=layers)
    gpuprof.annotate(model)

    def run():
        gpu.enter()
        model(0)

    with gpuprof.profile() as p:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gpu.call("cuCtxSynchronize")
    print(json.dumps({"report": p.report()}))


@scene
def injected():
    """As in a notebook: no `gpuprof run`."""
    import gpuprof

    folder = gpuprof.inject(os.environ["FOLDER"])
    from gpu import Gpu

    gpu = Gpu()
    function = gpu.kernel("inside")
    launches(gpu, function, 10)
    with gpuprof.profile() as p, gpuprof.range("window"):
        launches(gpu, function, 20)
    assert os.path.dirname(p.path) == folder, (p.path, folder)
    try:
        gpuprof.inject()
    except gpuprof.GpuprofError as error:
        refused = str(error)
    print(json.dumps({"report": p.report(), "refused": refused}))


@scene
def sampled():
    """Samplers that the fake refuses."""
    import gpuprof

    folder = os.environ["FOLDER"]
    gpuprof.inject(folder, sample="memory,nvlink", nvml=True, sample_devices="0", memory_records=True, unified_memory=True)
    from gpu import Gpu

    gpu = Gpu()
    with gpuprof.profile() as p:
        launches(gpu, gpu.kernel("inside"), 20)
    print(json.dumps({"report": p.report(), "options": os.environ["GPUPROF_OPTIONS"]}))


def ended(folder):
    """The report of a process that has ended: only then the recording has its samples."""
    words = [sys.executable, "-m", "gpuprof", "report", folder]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@scene
def sampled_wrongly():
    import gpuprof

    gpuprof.inject(sample="dram")
    refused()


@scene
def alone():
    """Without the library there is a reason."""
    refused()


def refused():
    """Prints the reason why the process is not recorded."""
    import gpuprof
    from gpu import Gpu

    Gpu()
    try:
        with gpuprof.profile():
            pass
    except gpuprof.GpuprofError as error:
        print(json.dumps({"error": str(error)}))


@scene
def forked():
    """A forked child has no window of its own, and does not turn its parent's."""
    import gpuprof
    from gpu import Gpu

    gpu = Gpu()
    function = gpu.kernel("inside")
    with gpuprof.profile() as p:
        child = os.fork()
        if child == 0:
            try:
                with gpuprof.profile():
                    pass
            except gpuprof.GpuprofError:
                os._exit(7)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        launches(gpu, function, 20)
    print(json.dumps({"report": p.report(), "child": status}))


class Recorded(unittest.TestCase):
    """What the scenes recorded, by their reports."""

    def play(self, name, run=(), look=None, **variables):
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, __file__, name]
            if run is not None:
                options = ["--quiet", "-o", os.path.join(folder, "run")]
                words = [sys.executable, "-m", "gpuprof", "run", *options, *run, "--", *words]
            environment = {**os.environ, "FOLDER": os.path.join(folder, "own"), **variables}
            ran = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""), ran.stdout)
            answer = json.loads(ran.stdout)
            if look:
                answer["looked"] = look(environment["FOLDER"])
            return answer

    def kernels(self, answer):
        """Counts by name, from the table of kernels of a report."""
        counts, is_table = {}, False
        for line in answer["report"].splitlines():
            words = line.split()
            if words[:2] == ["kernel", "count"]:
                is_table = True
            elif is_table and len(words) > 2 and words[1].isdigit():
                counts[words[0]] = int(words[1])
            else:
                is_table = False
        return counts

    def assert_range(self, answer, name, times, kernels):
        rows = [line.split() for line in answer["report"].splitlines()]
        rows = [row for row in rows if row and row[0].lstrip("│├└─ ") == name or name in row[:4]]
        # Name, times, host time, GPU time, own GPU time (each of two words), launches, kernels.
        found = [row[row.index(name) + 1 :] for row in rows if name in row]
        self.assertTrue(found, answer["report"])
        self.assertEqual((int(found[0][0]), int(found[0][8])), (times, kernels), answer["report"])

    def test_windows_hold_their_work_alone(self):
        answer = self.play("windows", ["--start", "wait"])
        self.assertEqual(self.kernels(answer), {"inside": 70})
        self.assert_range(answer, "window", 3, 60)
        self.assertIn("inside", answer["summary"])
        self.assertNotIn("outside", answer["summary"])
        self.assertRegex(os.path.basename(answer["path"]), r"^process-\d+-\d+\.gpuprof$")

    def test_recording_that_was_on_stays_on(self):
        self.assertEqual(self.kernels(self.play("always_on")), {"inside": 30})

    def test_modules_are_ranges_on_each_thread(self):
        answer = self.play("modules", ["--start", "wait"])
        self.assertEqual(self.kernels(answer), {"embed": 8, "layer_0": 12, "layer_1": 12})
        for name, kernels in [("Net", 32), ("embedding", 8), ("layers", 24), ("layers.1", 12)]:
            self.assert_range(answer, name, 4, kernels)

    def test_injection_in_the_process_needs_no_run(self):
        answer = self.play("injected", None)
        self.assertEqual(self.kernels(answer), {"inside": 20})
        self.assert_range(answer, "window", 1, 20)
        self.assertIn("one tool", answer["refused"])

    def test_samplers_that_cannot_start_are_named(self):
        answer = self.play("sampled", None, look=ended)
        options = "start=wait,sample=memory+nvlink,nvml=clocks,devices=0,memory=allocations+managed"
        self.assertEqual(answer["options"], options)
        self.assertEqual(self.kernels(answer), {"inside": 20})
        self.assertIn("sampling of counters", answer["looked"])
        self.assertIn("NVML", answer["looked"])
        error = self.play("sampled_wrongly", None)["error"]
        self.assertIn("GPUPROF_OPTIONS=sample=dram: give utilization, memory, nvlink or pcie", error)

    def test_without_a_library_the_error_says_what_to_do(self):
        self.assertIn("gpuprof run --start wait", self.play("alone", None)["error"])

    def test_forked_child_has_no_window(self):
        answer = self.play("forked", ["--start", "wait"])
        self.assertEqual(answer["child"], 7)
        self.assertEqual(self.kernels(answer), {"inside": 20})


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in SCENES:
        SCENES[sys.argv[1]]()
    else:
        unittest.main()
