"""Reads the typed GPU events of a Perfetto trace with Perfetto's own protobuf types.

    read_gpu_events.py TRACE

Prints a line of JSON for every kernel. The types know InternedComputeKernel and ComputeKernelLaunch; what they have as
extensions (kernels and names of arguments in InternedData, submissions in TrackEvent) is read from unknown fields.
"""

import json
import sys

from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

KERNELS, ARGUMENTS, CORRELATION = 1000, 1001, 3000


def unknown(message, number):
    return [field.data for field in unknown_fields.UnknownFieldSet(message) if field.field_number == number]


def main():
    trace = pb.Trace()
    with open(sys.argv[1], "rb") as file:
        trace.ParseFromString(file.read())
    kernels, arguments, submitted, events = {}, {}, set(), []
    for packet in trace.packet:
        for data in unknown(packet.interned_data, KERNELS):
            kernel = pb.InternedComputeKernel.FromString(data)
            kernels[kernel.iid] = kernel.demangled_name
        for data in unknown(packet.interned_data, ARGUMENTS):
            argument = pb.InternedComputeArgName.FromString(data)
            arguments[argument.iid] = argument.name
        for data in unknown(packet.track_event, CORRELATION):
            # GpuCorrelation has no type here.
            submitted.update(ids(data))
        if packet.HasField("gpu_render_stage_event") and packet.gpu_render_stage_event.HasField("kernel_iid"):
            events.append((packet.timestamp, packet.gpu_render_stage_event))
    for at, event in events:
        launch = event.launch
        values = {arguments[argument.name_iid]: argument.uint_value for argument in launch.args}
        print(json.dumps({
            "id": event.event_id,
            "ts": at,
            "dur": event.duration,
            "kernel": kernels[event.kernel_iid],
            "gpu": event.gpu_id,
            "grid": [launch.grid_size.x, launch.grid_size.y, launch.grid_size.z],
            "block": [launch.workgroup_size.x, launch.workgroup_size.y, launch.workgroup_size.z],
            "registers": values["registers_per_thread"],
            "submitted": event.event_id in submitted,
        }))


def ids(data):
    """The values of field 1, each a tag and a varint."""
    at = 0
    while at < len(data):
        assert data[at] == 8, data
        at, value, shift = at + 1, 0, 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                break
        yield value


main()
