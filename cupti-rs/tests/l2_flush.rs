//! The buffer that evicts the L2 cache, and the wait for the current context.
#![allow(clippy::unwrap_used)]

use cupti::{Collector, Config, L2Flush, Record};
use fake_cupti::Fake;

#[test]
fn a_flush_fills_twice_the_cache_and_waits() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let collector = Collector::start(&library, &Config::new()).unwrap();
    let l2 = L2Flush::new(&library).unwrap();
    assert_eq!((l2.bytes(), l2.device()), (120 << 20, 0));
    assert_eq!(fake.device_memory(), 120 << 20);
    l2.flush().unwrap();
    l2.flush().unwrap();
    assert_eq!(fake.context_waits(), 2);
    drop(l2);
    assert_eq!(fake.device_memory(), 0);
    let collected = collector.stop().unwrap();
    let bytes = |record: Record<'_>| match record {
        Record::Memset(memset) => Some(memset.bytes),
        _ => None,
    };
    let filled: Vec<u64> = collected.records.iter().filter_map(bytes).collect();
    assert_eq!(filled, [120 << 20; 2]);
}

#[test]
fn without_the_context_nothing_is_flushed_or_freed() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    let l2 = L2Flush::new(&library).unwrap();
    fake.have_context(false);
    let error = l2.flush().unwrap_err().to_string();
    assert!(error.contains("no longer current") && error.contains("device 0"), "{error}");
    drop(l2);
    assert_eq!(fake.device_memory(), 120 << 20, "it is left to its context");
    let error = L2Flush::new(&library).unwrap_err().to_string();
    assert!(error.contains("no CUDA context is current"), "{error}");
    assert_eq!(fake.context_waits(), 0);
}

#[test]
fn a_wait_is_for_the_current_context() {
    let fake = Fake::new();
    let library = fake.library().unwrap();
    assert!(library.synchronize_context().unwrap());
    fake.have_context(false);
    assert!(!library.synchronize_context().unwrap());
    assert_eq!(fake.context_waits(), 1);
}
