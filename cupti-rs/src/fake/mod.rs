//! A stand-in for CUPTI and a GPU, behind the same function table as the real library.
//!
//! It calls the driver callbacks as CUPTI does, asks for activity buffers, writes records into them with the layout and
//! stride of a chosen CUPTI version, and gives them back. Nothing runs on a GPU: a test says which calls a program makes
//! and how long the work takes. Faults can be planted.
//!
//! ```
//! use cupti::fake::{Fake, Work};
//! use cupti::{Collector, Config, Record};
//!
//! # fn main() -> Result<(), cupti::Error> {
//! let fake = Fake::new();
//! let collector = Collector::start(&fake.library()?, &Config::new())?;
//! cupti::calls::set_word(7);
//! fake.launch(Work::kernel(c"axpy"));
//! let collected = collector.stop()?;
//! assert_eq!(collected.calls[0].calls[0].word, 7);
//! let kernels = collected.records.iter().filter(|r| matches!(r, Record::Kernel(_)));
//! assert_eq!(kernels.count(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! There is one at a time: [`Fake::new`] waits for the last one to be dropped, so tests take turns.

mod table;
mod work;
mod written;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::calls::DriverFunction;
use crate::error::Error;
use crate::kind::ActivityKind;
use crate::library::{Device, Driver, Library};
use crate::sys::abi::{CuptiResult, RESOURCE_GRAPHNODE_CREATED};
use crate::sys::field::Family;
use table::STATE;
pub use work::Work;
pub use written::Written;

/// The running stand-in.
#[derive(Debug)]
pub struct Fake {
    _turn: MutexGuard<'static, ()>,
    driver: Driver,
}

/// What the stand-in is like; made by [`Fake::builder`].
#[derive(Debug)]
pub struct Builder {
    version: u32,
    holder: Option<String>,
    clock_offset: i64,
    faults: Vec<(&'static str, CuptiResult)>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Fake {
    /// CUPTI 13.0.1 with one GPU.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A stand-in with settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            version: 130_001,
            holder: None,
            clock_offset: 1_700_000_000_000_000_000,
            faults: Vec::new(),
        }
    }

    /// The function table, as [`Library::open`] would give it.
    ///
    /// # Errors
    /// As [`Library::open`], for a planted version or fault.
    pub fn library(&self) -> Result<Library, Error> {
        Library::from_parts(table::table(), PathBuf::from("fake"), self.driver.clone())
    }

    /// A program's call that launches, copies, fills or waits, on this thread. Gives its correlation id.
    pub fn launch(&self, work: Work) -> u32 {
        self.call(work.function(), 0, std::slice::from_ref(&work))
    }

    /// A graph launch whose nodes are `nodes`; all share the correlation id that is given back.
    pub fn launch_graph(&self, nodes: &[Work]) -> u32 {
        self.call("cuGraphLaunch", 0, nodes)
    }

    /// A call of this name that gives no record: an allocation, a query, or one with this `CUresult`.
    pub fn call_only(&self, function: &str, result: u32) -> u32 {
        self.call(function, result, &[])
    }

    /// A call while its stream is captured: it makes a graph node and does no work.
    pub fn capture(&self, work: &Work) -> u32 {
        let id = function(work.function());
        let correlation = table::enter(id, work.bytes());
        table::resource(RESOURCE_GRAPHNODE_CREATED);
        table::exit(id, correlation, 0);
        correlation
    }

    fn call(&self, name: &str, result: u32, work: &[Work]) -> u32 {
        let id = function(name);
        let correlation = table::enter(id, work.first().map_or(1, Work::bytes));
        for work in work {
            if work.bytes() != 0 {
                table::execute(work, correlation);
            }
        }
        table::exit(id, correlation, result);
        correlation
    }

    /// Work without any call that the call log sees, as a call not on its list would do.
    pub fn unseen(&self, work: &Work) {
        let correlation = table::next_correlation();
        table::execute(work, correlation);
    }

    /// An activity record as it stands.
    pub fn write<F: Family>(&self, record: &Written<F>) {
        table::write(&record.allocate());
    }

    /// An activity record as it stands, of a kind and length of the caller's choice.
    pub fn raw_record(&self, kind: ActivityKind, length: usize) {
        let mut bytes = vec![0; length.max(8)];
        bytes[..4].copy_from_slice(&kind.0.to_ne_bytes());
        table::write(&bytes);
    }

    /// The GPU is busy for this long: records stay unfinished, and flushes without force do not give their buffer.
    pub fn busy_for(&self, time: Duration) {
        STATE.lock().busy_until = Some(Instant::now() + time);
    }

    /// CUPTI says that it dropped this many records.
    pub fn drop_records(&self, count: usize) {
        STATE.lock().dropped = count;
    }

    /// From now on operations have no timestamps, as when device buffers run out.
    pub fn lose_timestamps(&self) {
        STATE.lock().timestamps_lost = true;
    }

    /// Whether somebody is subscribed.
    #[must_use]
    pub fn is_subscribed(&self) -> bool {
        STATE.lock().subscribed
    }

    /// The activity kinds that are on.
    #[must_use]
    pub fn enabled_kinds(&self) -> Vec<ActivityKind> {
        STATE.lock().kinds.iter().map(|&kind| ActivityKind(kind)).collect()
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        table::reset(0, None, 0, Vec::new());
    }
}

fn function(name: &str) -> u32 {
    DriverFunction::by_name(name).map_or(u32::MAX, |function| function.0)
}

impl Builder {
    /// CUPTI's API version: which strides records have and which functions exist.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Somebody else is subscribed already.
    #[must_use]
    pub fn held_by(mut self, name: impl Into<String>) -> Self {
        self.holder = Some(name.into());
        self
    }

    /// CUPTI's clock is ahead of ours by this many nanoseconds, not by 54 years.
    #[must_use]
    pub fn clock_offset(mut self, nanoseconds: i64) -> Self {
        self.clock_offset = nanoseconds;
        self
    }

    /// This function of CUPTI fails with this code, every time.
    #[must_use]
    pub fn fault(mut self, function: &'static str, code: CuptiResult) -> Self {
        self.faults.push((function, code));
        self
    }

    /// Waits for other stand-ins of this process to be gone, and starts this one.
    #[must_use]
    pub fn build(self) -> Fake {
        let turn = TURN.lock();
        table::reset(self.version, self.holder, self.clock_offset, self.faults);
        let device = Device::new(0, "Fake H200", (9, 0), 132, 139 << 30);
        Fake { _turn: turn, driver: Driver { cuda_version: 13_000, devices: vec![device] } }
    }
}
