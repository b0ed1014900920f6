#!/usr/bin/env python3
"""Makes the NVTX calls of a calls file through the Python package `nvtx`; src/main.rs makes them through ours.

    program.py CALLS.json GROUP...  makes the calls of these groups

A calls file maps the name of a group to its calls, which happen in the order in which they are written, each on the
thread that it names, over all groups. A call has these keys:

    thread      the number of its thread; those within another are made on the thread of that one
    op          push, pop, start, end, mark, with (a range around other calls), or call (of a function that is annotated)
    text        the name, for push, start, mark and with; `times` repeats it
    registered  for ours: the name is registered first; the package does so with every name
    id          which range an end ends, for start and end
    domain      by name, for push, pop, start, mark and with; the default one without
    color       0xAARRGGBB as a number, or a name; for push, start, mark and with
    category    by name, for push, start, mark and with
    payload     a whole number (an int64) or another (a double), for push, start, mark and with
    function    which one, for call: named or described
    calls       what is called within it, for with and call
    fails       whether a with ends by an exception (ours: by a panic)
"""

import json
import queue
import sys
import threading

import nvtx

DETAILS = ("domain", "color", "category", "payload")


class Expected(Exception):
    pass


@nvtx.annotate()
def named(calls, ranges):
    make_all(calls, ranges)


@nvtx.annotate("described function", color=0xFF102030, domain="library", category="compute", payload=64)
def described(calls, ranges):
    make_all(calls, ranges)


FUNCTIONS = {"named": named, "described": described}


def make_all(calls, ranges):
    for call in calls:
        make(call, ranges)


def make(call, ranges):
    op = call["op"]
    if op == "pop":
        nvtx.pop_range(domain=call.get("domain"))
        return
    if op == "end":
        nvtx.end_range(ranges.pop(call["id"]))
        return
    if op == "call":
        FUNCTIONS[call["function"]](call["calls"], ranges)
        return
    arguments = {key: call[key] for key in DETAILS if key in call}
    arguments["message"] = call["text"] * call.get("times", 1)
    if op == "push":
        nvtx.push_range(**arguments)
    elif op == "start":
        ranges[call["id"]] = nvtx.start_range(**arguments)
    elif op == "mark":
        nvtx.mark(**arguments)
    elif op == "with":
        try:
            with nvtx.annotate(**arguments):
                make_all(call["calls"], ranges)
                if call.get("fails"):
                    raise Expected
        except Expected:
            pass
    else:
        raise ValueError(f"no op is called {op}")


class Worker:
    """A thread that makes one call at a time."""

    def __init__(self, ranges):
        self.ranges = ranges
        self.calls = queue.Queue()
        self.results = queue.Queue()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while (call := self.calls.get()) is not None:
            try:
                make(call, self.ranges)
                self.results.put(None)
            except Exception as error:
                self.results.put(error)

    def make(self, call):
        self.calls.put(call)
        error = self.results.get()
        if error is not None:
            raise error

    def end(self):
        self.calls.put(None)
        self.thread.join()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        groups = json.load(file)
    workers = {}
    ranges = {}
    try:
        for name in sys.argv[2:]:
            for call in groups[name]:
                number = call["thread"]
                if number not in workers:
                    workers[number] = Worker(ranges)
                workers[number].make(call)
    finally:
        for worker in workers.values():
            worker.end()


if __name__ == "__main__":
    main()
