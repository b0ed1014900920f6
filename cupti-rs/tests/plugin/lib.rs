//! A library that collects GPU records, as a plugin may: `tests/unload.rs` loads it and closes it.

use std::ffi::c_int;

use cupti::{Collector, Config};
use fake_cupti::{Fake, Work};

/// Collects once, from the start to the stop. Returns the number of records, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn collect() -> c_int {
    let collect = || {
        let fake = Fake::new();
        let collector = Collector::start(&fake.library()?, &Config::new())?;
        fake.launch(Work::kernel(c"k"));
        Ok::<_, cupti::Error>(collector.stop()?.records.iter().count())
    };
    collect().ok().and_then(|records| c_int::try_from(records).ok()).unwrap_or(-1)
}
