//! A library that collects GPU records, as a plugin does: `tests/unload.rs` loads it and closes it.

use std::ffi::c_int;

use cupti::fake::{Fake, Work};
use cupti::{Collector, Config};

/// Collects once, from the start to the stop. Gives how many records came, or -1.
///
/// On a thread of its own: the locals of a thread that goes on would keep the library mapped as well.
#[unsafe(no_mangle)]
pub extern "C" fn collect() -> c_int {
    let collect = || {
        let fake = Fake::new();
        let collector = Collector::start(&fake.library()?, &Config::new())?;
        fake.launch(Work::kernel(c"k"));
        Ok::<_, cupti::Error>(collector.stop()?.records.iter().count())
    };
    match std::thread::spawn(collect).join() {
        Ok(Ok(records)) => c_int::try_from(records).unwrap_or(-1),
        _ => -1,
    }
}
