#!/usr/bin/env python3
"""Does nvtx-rs mean what NVIDIA's Python package means? Both make the calls of calls.json under nsys; the rows that nsys
records have to be the same.

    compare.py --nsys-nvtx FOLDER/nsys-nvtx --python VENV/bin/python PROGRAM [ARG...]

PROGRAM is the built nvtx-referee, or anything that takes the arguments of program.py. Compared are, for each range and
mark: kind, domain, name, colour, category, payload, the level among the ranges of its thread and domain, and the threads
of its start and end, by order of appearance. Times are left out, but not the order: where among all starts and ends a row
starts and ends has to be the same too. Of ours it is also seen that those names are registered, and those alone, for
which the calls ask.

calls.json has all that the package can do, but for what nvtx-rs leaves out: events without any name, categories that are
numbers, and `Profile`, which makes a range of each function that Python calls.

Where the Python package differs, and what is done about it (version 0.2.11, nsys 2023.4):

- It gives a colour to every call: blue, 0x0000FF with an alpha of 0, where none is asked for. nvtx-rs gives none then, so
  that this one colour of the package counts as none; calls.json must not ask for it.
- It registers every name as a string of the domain, so that its rows have `textId` where ours may have `text`. Both are
  resolved to the name.
- Its named colours have an alpha of 0, ours are opaque. nvtx-referee takes the alpha off, so the rest is compared.
- A function that it annotates stays open where an exception leaves it; ours ends. Its blocks end as ours do, and only
  they fail in calls.json.
- It hands a name with a NUL inside over as it is, so that the tool sees its beginning; ours shows `?`. calls.json has none.
- Its default domain is documented as "NVTX", but is the default one of the API, number 0: the rows say so, and no domain
  of that name is created. It goes through the functions for domains all the same, with no handle, where nvtx-rs may take
  those without a domain; the rows do not tell.
- It names categories itself and numbers them from 1 in each domain. They are compared by name, and by number only where
  they have no name.
- It destroys its domains at the end (nsys: "wrong domain ID argument", for the default one). Those rows are left out,
  as are those that create domains and name categories, which only serve to look names up.
- nsys leaves an event out whose name has more than 64 KiB, unless the name is registered, as are all of the package's. So
  calls.json has longer ones registered.
- Versions from 0.2.12 on ask the tool through a newer extension whether the domain is enabled; nsys 2023.4 does not
  accept that extension, and the package then emits nothing at all. So .ci/fetch-python-nvtx pins 0.2.11.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from typing import NamedTuple, Optional

HERE = os.path.dirname(os.path.abspath(__file__))

# nsys's event types.
CATEGORY = 33
MARK = 34
PUSH_POP = 59
START_END = 60
DOMAIN = 75
KINDS = {MARK: "mark", PUSH_POP: "push/pop", START_END: "start/end"}

PAYLOADS = ["uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue"]

# What the package takes where no colour is asked for.
PYTHON_DEFAULT_COLOR = 0x0000FF


class Row(NamedTuple):
    kind: str
    domain: Optional[str]
    text: Optional[str]
    color: Optional[str]
    category: object
    payload: object
    level: Optional[int]
    thread: int
    end_thread: Optional[int]
    # Places among all starts and ends.
    starts: int
    ends: Optional[int]
    registered: bool


class Failure(Exception):
    pass


def read(path):
    """The rows of a recording, by start."""
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'NVTX_EVENTS'").fetchone():
        return []
    strings = dict(database.execute("SELECT id, value FROM StringIds").fetchall())
    recorded = [dict(row) for row in database.execute("SELECT * FROM NVTX_EVENTS ORDER BY start")]

    def text(row):
        return row["text"] if row["text"] is not None else strings.get(row["textId"])

    domains = {row["domainId"]: text(row) for row in recorded if row["eventType"] == DOMAIN}
    categories = {
        (row["domainId"], row["category"]): text(row) for row in recorded if row["eventType"] == CATEGORY
    }
    events = [row for row in recorded if row["eventType"] in KINDS]

    times = {row["start"] for row in events} | {row["end"] for row in events}
    place = {time: number for number, time in enumerate(sorted(times - {None}))}
    threads = {}
    # Ranges that are open, by thread and domain.
    stacks = {}
    rows = []
    for event in events:
        thread = threads.setdefault(event["globalTid"], len(threads))
        level = None
        if event["eventType"] == PUSH_POP:
            stack = stacks.setdefault((thread, event["domainId"]), [])
            stack[:] = [end for end in stack if end is None or end > event["start"]]
            level = len(stack)
            stack.append(event["end"])
        end_thread = None
        if event["eventType"] == START_END:
            # Without a thread of its own, it ended where it started.
            end_tid = event.get("endGlobalTid")
            end_thread = thread if end_tid is None else threads.setdefault(end_tid, len(threads))
        number = event["category"]
        payload = [(name, event[name]) for name in PAYLOADS if event.get(name) is not None]
        rows.append(
            Row(
                kind=KINDS[event["eventType"]],
                # The default domain has no name.
                domain=domains.get(event["domainId"], event["domainId"]) if event["domainId"] else None,
                # An empty name is only stored where it is registered.
                text=text(event) or None,
                color=None if event["color"] is None else f"{event['color']:#010x}",
                category=categories.get((event["domainId"], number), number or None),
                payload=payload or None,
                level=level,
                thread=thread,
                end_thread=end_thread,
                starts=place[event["start"]],
                ends=place.get(event["end"]),
                registered=event["text"] is None and event["textId"] is not None,
            )
        )
    return rows


def record(nsys_nvtx, command):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "recorded.sqlite")
        done = subprocess.run(
            [nsys_nvtx, path, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0 or not os.path.exists(path):
            raise Failure(f"{' '.join(command)}: not recorded (status {done.returncode})\n{done.stdout}")
        return read(path)


def events(calls):
    """Those calls that make a row, by start."""
    for call in calls:
        if call["op"] not in ("pop", "end"):
            yield call
        yield from events(call.get("calls", []))


def shown(row):
    fields = row._asdict()
    if row.text is not None and len(row.text) > 40:
        fields["text"] = f"{row.text[:20]}... ({len(row.text)} characters)"
    return "  ".join(f"{key}={value!r}" for key, value in fields.items() if value is not None)


def compare(reference, ours):
    """What differs, one line each."""
    lines = []
    for number in range(max(len(reference), len(ours))):
        theirs = reference[number] if number < len(reference) else None
        own = ours[number] if number < len(ours) else None
        if theirs == own:
            continue
        if theirs is not None and own is not None:
            fields = [key for key in Row._fields if getattr(theirs, key) != getattr(own, key)]
            lines.append(f"row {number}: {', '.join(fields)}")
        else:
            lines.append(f"row {number} is missing on one side")
        lines.append(f"    python   {'-' if theirs is None else shown(theirs)}")
        lines.append(f"    program  {'-' if own is None else shown(own)}")
    return lines


def main():
    parser = argparse.ArgumentParser(description="Compares the NVTX of a program with that of the Python package.")
    parser.add_argument("--nsys-nvtx", required=True, help="runs a program under nsys: nsys-nvtx OUT.sqlite PROGRAM")
    parser.add_argument("--python", required=True, help="a Python that has the package nvtx")
    parser.add_argument("--calls", default=os.path.join(HERE, "calls.json"))
    parser.add_argument("program", nargs="+", help="nvtx-referee, built")
    options = parser.parse_args()

    path = os.path.abspath(options.calls)
    with open(path, encoding="utf-8") as file:
        groups = json.load(file)
    python = [options.python, os.path.join(HERE, "program.py")]
    asked = [call for calls in groups.values() for call in events(calls)]
    if any(call.get("color") == PYTHON_DEFAULT_COLOR for call in asked):
        raise Failure("a call asks for the colour that the Python package gives to calls without one")

    reference = [
        row._replace(color=None) if row.color == f"{PYTHON_DEFAULT_COLOR:#010x}" else row
        for row in record(options.nsys_nvtx, [*python, path, *groups])
    ]
    ours = record(options.nsys_nvtx, [*options.program, path, *groups])

    # A function that is annotated has its name registered by the attribute.
    registered = [call["op"] == "call" or call.get("registered", False) for call in asked]
    reference = [
        row._replace(registered=row.registered and wanted) for row, wanted in zip(reference, registered)
    ] + reference[len(asked) :]
    differences = compare(reference, ours)
    for side, rows in (("python", reference), ("program", ours)):
        if len(rows) != len(asked):
            differences.append(f"{side}: {len(rows)} rows recorded, {len(asked)} were called for")
    if differences:
        raise Failure("\n".join(differences))
    print(f"the same {len(asked)} rows from both: {', '.join(groups)}")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"compare.py: {failure}")
