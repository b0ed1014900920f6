#!/usr/bin/env python3
"""What does a replay of a CUDA graph cost while CUPTI is attached and collects nothing? Each state is a process of its own.

    python3 benches/attached.py [--rounds 3] [--nodes 500] [STATE...]

Needs a GPU, libcupti (CUPTI_LIBRARY_PATH or the loader's) and nothing else. A line for each state: the median time of a replay with
its synchronisation, and of the launch alone, in microseconds, over the rounds, and the ratio to `none` of the same round.
"""
import argparse, ctypes, os, statistics, subprocess, sys, time
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .u64 %t<4>;
    .reg .pred %p;
    ld.param.u64 %t0, [cycles];
    mov.u64 %t1, %clock64;
AGAIN:
    mov.u64 %t2, %clock64;
    sub.u64 %t3, %t2, %t1;
    setp.lt.u64 %p, %t3, %t0;
    @%p bra AGAIN;
    ret;
}
"""
KERNELS, OVERHEAD, SYNCHRONIZATION, MEMCPY = 10, 17, 38, 1
DRIVER, RESOURCE = 1, 3
LAUNCH_KERNEL, GRAPH_LAUNCH = 307, 514
GRAPHNODE_CREATED = 13
# What is done to CUPTI before the context is made; after "|", what is done once the graph is instantiated.
STATES = {
    "none": "", "loaded": "load", "registered": "register", "subscribed": "subscribe", "both": "subscribe register",
    "zeroed": "zeroed subscribe register", "unsubscribed": "subscribe unsubscribe", "driver callbacks": "subscribe driver",
    "graph callbacks": "subscribe graphs", "copies": "subscribe register on1", "kernels": "subscribe register on10",
    "kernels, then off": "subscribe register on10 off10", "subscribed late": "|subscribe register", "context, then subscribed": "context subscribe register",
    "overhead": "subscribe register on17",
}


def check(code, what):
    if code:
        raise SystemExit(f"{what} gives {code}")


def measure(state, nodes):
    cuda = ctypes.CDLL("libcuda.so.1")
    path = os.environ.get("CUPTI_LIBRARY_PATH", "libcupti.so.13")
    keep = []

    def call(name, *args):
        check(getattr(cuda, name)(*args), name)

    cupti = None
    subscriber = c_void_p()

    def do(action):
        nonlocal cupti
        if action == "context":
            context()
            return
        cupti = cupti or ctypes.CDLL(path)
        if action == "subscribe":
            # A callback of C, so that a state measures CUPTI and not Python: abs() ignores what it is given.
            plain = ctypes.cast(ctypes.CDLL(None).abs, c_void_p)
            check(cupti.cuptiSubscribe(byref(subscriber), plain, None), "cuptiSubscribe")
        elif action == "unsubscribe":
            check(cupti.cuptiUnsubscribe(subscriber), "cuptiUnsubscribe")
        elif action == "register":
            size = 1 << 20
            pool = [ctypes.create_string_buffer(size + 64) for _ in range(32)]

            @ctypes.CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
            def requested(buffer, of_size, records):
                made = pool.pop() if pool else ctypes.create_string_buffer(size + 64)
                keep.append(made)
                buffer[0], of_size[0], records[0] = (ctypes.addressof(made) + 63) & ~63, size, 0

            @ctypes.CFUNCTYPE(None, c_void_p, c_uint, c_void_p, c_size_t, c_size_t)
            def completed(*_):
                pass

            keep.extend([requested, completed])
            check(cupti.cuptiActivityRegisterCallbacks(requested, completed), "cuptiActivityRegisterCallbacks")
        elif action == "zeroed":
            size, value = c_size_t(1), ctypes.c_uint8(1)
            check(cupti.cuptiActivitySetAttribute(c_int(5), byref(size), byref(value)), "cuptiActivitySetAttribute")
        elif action == "driver":
            for function in (LAUNCH_KERNEL, GRAPH_LAUNCH):
                check(cupti.cuptiEnableCallback(c_uint(1), subscriber, c_int(DRIVER), c_uint(function)), "cuptiEnableCallback")
        elif action == "graphs":
            check(cupti.cuptiEnableCallback(c_uint(1), subscriber, c_int(RESOURCE), c_uint(GRAPHNODE_CREATED)), "cuptiEnableCallback")
        elif action.startswith("on"):
            check(cupti.cuptiActivityEnable(c_int(int(action[2:]))), "cuptiActivityEnable")
        elif action.startswith("off"):
            check(cupti.cuptiActivityDisable(c_int(int(action[3:]))), "cuptiActivityDisable")

    made = c_void_p()

    def context():
        if not made:
            call("cuInit", c_uint(0))
            call("cuDevicePrimaryCtxRetain", byref(made), c_int(0))
            call("cuCtxSetCurrent", made)

    before, _, after = STATES[state].partition("|")
    for action in before.split():
        do(action)
    context()
    module, function, stream, graph, launched = (c_void_p() for _ in range(5))
    call("cuModuleLoadData", byref(module), c_char_p(PTX))
    call("cuModuleGetFunction", byref(function), module, c_char_p(b"spin"))
    call("cuStreamCreate", byref(stream), c_uint(1))
    call("cuStreamBeginCapture_v2", stream, c_int(0))
    for node in range(nodes):
        cycles = c_uint64(int((500 + 1000 * (node % 5)) * 1.7))
        parameters = (c_void_p * 1)(ctypes.addressof(cycles))
        one = c_uint(1)
        call("cuLaunchKernel", function, one, one, one, one, one, one, c_uint(0), stream, parameters, None)
    call("cuStreamEndCapture", stream, byref(graph))
    call("cuGraphInstantiateWithFlags", byref(launched), graph, c_uint64(0))
    for action in after.split():
        do(action)
    whole, launch = [], []
    for replay in range(400):
        began = time.perf_counter_ns()
        call("cuGraphLaunch", launched, stream)
        returned = time.perf_counter_ns()
        call("cuStreamSynchronize", stream)
        if replay >= 100:
            whole.append((time.perf_counter_ns() - began) / 1e3)
            launch.append((returned - began) / 1e3)
    print(statistics.median(whole), statistics.median(launch), flush=True)
    # CUPTI must not call what Python has freed.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("states", nargs="*")
    options = parser.parse_args()
    if options.measure:
        return measure(options.measure, options.nodes)
    states = options.states or list(STATES)
    results = {state: {} for state in states}
    for round_ in range(options.rounds):
        for state in states[round_ % len(states):] + states[:round_ % len(states)]:
            command = [sys.executable, __file__, "--measure", state, "--nodes", str(options.nodes)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{state}: {done.stderr.strip()[-300:]}")
                continue
            results[state][round_] = [float(value) for value in done.stdout.split()]
    for state, of in results.items():
        if not of:
            continue
        ratios = [value[0] / results["none"][round_][0] for round_, value in of.items() if round_ in results.get("none", {})]
        replay, launch = (statistics.median(value[at] for value in of.values()) for at in (0, 1))
        text = f"{state:26} replay {replay:8.1f} us, launch {launch:7.1f} us"
        if ratios:
            text += f", against none {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(text, flush=True)


main()
