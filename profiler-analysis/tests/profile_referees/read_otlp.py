"""Reads an OTLP profile with OpenTelemetry's own protobuf types and checks its dictionary.

    read_otlp.py FILE

Prints a line of JSON for every sample: its profile's type and unit, its frames from the outermost with their kinds, and
its value.
"""

import json
import sys

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service
from opentelemetry.proto.profiles.v1development import profiles_pb2 as profiles

TABLES = ["mapping_table", "location_table", "function_table", "link_table", "attribute_table", "stack_table"]


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    # A request to a collector has the same fields.
    read = profiles.ProfilesData.FromString(data)
    request = service.ExportProfilesServiceRequest.FromString(data)
    assert request.resource_profiles == read.resource_profiles and request.dictionary == read.dictionary
    tables = read.dictionary
    assert tables.string_table[0] == "" and len(set(tables.string_table)) == len(tables.string_table)
    for name in TABLES:
        table = getattr(tables, name)
        assert table[0] == type(table[0])(), name

    def frame(index):
        location = tables.location_table[index]
        assert index > 0 and len(location.lines) == 1
        function = tables.function_table[location.lines[0].function_index]
        (attribute,) = [tables.attribute_table[at] for at in location.attribute_indices]
        assert tables.string_table[attribute.key_strindex] == "gpu.frame.kind"
        return [attribute.value.string_value, tables.string_table[function.name_strindex]]

    for resource in read.resource_profiles:
        for scope in resource.scope_profiles:
            assert scope.scope.name and scope.scope.version
            for profile in scope.profiles:
                kind = tables.string_table[profile.sample_type.type_strindex]
                unit = tables.string_table[profile.sample_type.unit_strindex]
                assert profile.time_unix_nano > 0
                for sample in profile.samples:
                    assert sample.stack_index > 0 and len(sample.values) == 1
                    stack = tables.stack_table[sample.stack_index]
                    frames = [frame(index) for index in reversed(stack.location_indices)]
                    print(json.dumps({"type": kind, "unit": unit, "frames": frames, "value": sample.values[0]}))


main()
