//! Decodes arbitrary bytes, strides and versions. The decoder neither panics nor reads beyond a
//! record, and every byte is in exactly one of the returned records.
//!
//! An input is: the version (1 byte); a flag for its own strides instead of that version's (1 byte,
//! odd), followed by 2 bytes for each kind; the length of the first buffer (2 bytes); the buffers.
#![no_main]

use std::hint::black_box;

use cupti::sys::field;
use cupti::sys::generated::FAMILIES;
use cupti::{ActivityKind, DataKey, Record, RecordBytes, Version};
use libfuzzer_sys::fuzz_target;

const VERSIONS: [u32; 16] =
    [0, 18, 20, 21, 22, 23, 24, 26, 27, 28, 130_001, 130_101, 130_202, 130_301, 130_401, 130_500];

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    let Some(version) = take(&mut rest, 1).map(|b| Version(VERSIONS[b[0] as usize % 16])) else {
        return;
    };
    let Some(own_strides) = take(&mut rest, 1).map(|b| b[0] % 2 == 1) else { return };
    let kinds = FAMILIES.iter().flat_map(|(kinds, strides)| {
        kinds.iter().map(|&kind| (ActivityKind(kind), field::stride(strides, version)))
    });
    let mut strides = Vec::new();
    for (kind, stride) in kinds {
        if own_strides {
            let Some(stride) = take(&mut rest, 2) else { return };
            strides.push((kind, u32::from(u16::from_le_bytes([stride[0], stride[1]]))));
        } else if let Some(stride) = stride {
            strides.push((kind, stride as u32));
        }
    }
    let Some(first) = take(&mut rest, 2) else { return };
    let first = usize::from(u16::from_le_bytes([first[0], first[1]])).min(rest.len());
    let (first, second) = rest.split_at(first);
    let data = [(DataKey(1), rest.to_vec())];
    let records =
        RecordBytes::from_parts(version, vec![first.to_vec(), second.to_vec()], strides, [])
            .with_data(data);

    let mut table = [0; 64];
    records.strides().for_each(|(kind, stride)| table[kind.0 as usize] = stride as usize);
    let mut left = rest;
    for record in &records {
        let length = match record {
            Record::Unreadable { bytes } | Record::Unknown { bytes, .. } => bytes.len(),
            _ => {
                let kind = left.first_chunk().map_or(0, |kind| u32::from_ne_bytes(*kind));
                table[kind as usize]
            }
        };
        left = &left[length..];
        read(record, &records);
    }
    assert!(left.is_empty(), "{} bytes are in no record", left.len());
});

/// Reads everything in a record.
fn read(record: Record<'_>, records: &RecordBytes) {
    black_box(record);
    match record {
        Record::Kernel(kernel) => _ = black_box((kernel.details(), records.name(kernel.name))),
        Record::Device(device) => _ = black_box(device.limits()),
        Record::Overhead(overhead) => _ = black_box(overhead.command_buffer(records)),
        Record::ApiCall(call) => _ = black_box(call.function.name()),
        _ => {}
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}
