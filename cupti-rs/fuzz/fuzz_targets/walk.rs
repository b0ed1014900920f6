//! Arbitrary records, with the memory that they point to, through the buffers' walk and the log, as
//! a library of an arbitrary version writes them. Each byte of an input except the first is an
//! operation, or belongs to the one before it.
#![no_main]

use cupti::sys::field::Family;
use cupti::sys::generated::*;
use cupti::{ActivityKind, Collector, Config, Record, Version};
use fake_cupti::{Fake, Written};
use libfuzzer_sys::fuzz_target;

const VERSIONS: [u32; 8] = [18, 21, 22, 26, 130_001, 130_101, 130_202, 130_500];
const TEXTS: [&std::ffi::CStr; 4] = [c"", c"axpy", c"gr\xc3\xb6\xc3\x9fer", c"\xff\xfe"];

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.iter().copied();
    let Some(first) = bytes.next() else { return };
    let fake = Fake::builder().version(VERSIONS[first as usize % 8]).build();
    let library = fake.library().expect("the fake opens");
    let config = Config::new().buffer_bytes(1).buffers(1);
    let collector = Collector::start(&library, &config).expect("nobody else collects");
    let version = library.version();
    let mut written = 0;
    while let Some(operation) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        let text = TEXTS[operation as usize / 16 % 4];
        match operation % 7 {
            0 => put(
                &fake,
                new::<kernel::Layout>(3 + 7 * u32::from(next() % 2), version)
                    .map(|r| r.text(kernel::NAME, text)),
            ),
            1 => put(
                &fake,
                new::<memory2::Layout>(49, version)
                    .map(|r| r.text(memory2::NAME, text).text(memory2::SOURCE, c"lib")),
            ),
            2 => put(&fake, new::<device::Layout>(8, version).map(|r| r.name(device::NAME, text))),
            3 => put(
                &fake,
                new::<overhead::Layout>(17, version).map(|r| {
                    let r = r.set(overhead::OVERHEAD_KIND, u32::from(next() % 9) << 16);
                    r.leave(overhead::OVERHEAD_DATA, [next(); 12])
                }),
            ),
            4 => {
                let link = new::<nvlink5::Layout>(40, version).map(|mut r| {
                    // CUPTI does not report the ports of an end that is not a GPU.
                    if next() % 2 == 0 {
                        r = r.set(nvlink5::TYPE_DEV0, 1).leave(nvlink5::PORT_DEV0, [next(); 4]);
                    }
                    if next() % 2 == 0 {
                        r = r.set(nvlink5::TYPE_DEV1, 1).leave(nvlink5::PORT_DEV1, [next(); 8]);
                    }
                    r
                });
                put(&fake, link);
            }
            5 => {
                // In their own buffers: where the walk must stop, memory that later records own
                // cannot be freed.
                collector.flush().expect("the fake flushes");
                for _ in 0..next() % 4 {
                    fake.raw_record(ActivityKind((next() % 64).into()), usize::from(next()) * 2);
                }
                collector.flush().expect("the fake flushes");
            }
            _ => collector.flush().expect("the fake flushes"),
        }
        written += 1;
        if written == 64 {
            break;
        }
    }
    let collected = collector.stop().expect("the collector runs");
    let records = &collected.records;
    // After bytes that CUPTI could not step over, no pointer of a record is followed.
    let whole = collected.losses.unreadable_bytes == 0;
    for record in records {
        match record {
            // Bytes that cannot be divided are counted, not stored.
            Record::Unreadable { .. } => panic!("a run of records that cannot be divided"),
            Record::Kernel(kernel) if whole => {
                assert!(kernel.name.0 == 0 || records.name(kernel.name).is_some());
            }
            Record::Device(device) if whole => {
                assert!(device.name.is_none_or(|name| records.name(name).is_some()));
            }
            Record::Overhead(overhead) if whole => {
                assert!(overhead.data.is_none_or(|data| records.data(data).is_some()));
            }
            _ => {}
        }
    }
    assert_eq!(collected.losses.panics, 0);
});

fn new<F: Family>(kind: u32, version: Version) -> Option<Written<F>> {
    Written::new(ActivityKind(kind), version)
}

/// Writes a record, if the version has such records.
fn put<F: Family>(fake: &Fake, record: Option<Written<F>>) {
    if let Some(record) = record {
        fake.write(&record);
    }
}
