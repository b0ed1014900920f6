//! What a push and a pop cost through the library's functions, as a copy of NVTX calls them: while the program is recorded, before
//! CUDA is initialised, and in a process that is not to be recorded.
//!
//! ```sh
//! cargo bench -p gpuprof-inject
//! ```
//!
//! Uses the driver that is there, or else the fake.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a bench, near the C that it stands for"
)]

use std::ffi::{c_int, c_uint, c_void};
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::time::Instant;
use std::{env, fs, mem, process};

use libloading::Library;
use nvtx::abi::{
    Callbacks, EXPORT_CALLBACKS, GetExportTable, Module, Place, Slot, SlotAddress, slot,
};

const SLOTS: usize = 17;
const PAIRS: u32 = 20_000;
const BATCHES: usize = 31;

static MODULES: [[Slot; SLOTS]; 7] = [const { [const { Slot::new(null_mut()) }; SLOTS] }; 7];

unsafe extern "C" fn module_table(
    module: u32,
    table: *mut *const SlotAddress,
    size: *mut c_uint,
) -> c_int {
    let Some(slots) = MODULES.get(module as usize) else { return 0 };
    let entries: Vec<_> = slots.iter().map(|slot| SlotAddress(slot)).collect();
    unsafe { table.write(entries.leak().as_ptr()) };
    unsafe { size.write(SLOTS as c_uint) };
    1
}

extern "C" fn export(id: u32) -> *const c_void {
    static CALLBACKS: Callbacks =
        Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_table };
    if id == EXPORT_CALLBACKS { (&raw const CALLBACKS).cast() } else { std::ptr::null() }
}

type Function = unsafe extern "C" fn(usize, usize) -> usize;

fn function(place: Place) -> Option<Function> {
    assert!(!matches!(place.module, Module::PAYLOAD | Module::COUNTERS));
    let address = MODULES[place.module.number() as usize][place.slot].load(Ordering::Acquire);
    (!address.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, Function>(address) })
}

/// Nanoseconds of a pair: the median of the batches, and the least.
fn measure(name: &str, mut pair: impl FnMut()) {
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let began = Instant::now();
            (0..PAIRS).for_each(|_| pair());
            began.elapsed().as_nanos() as f64 / f64::from(PAIRS)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:48} {:7.1} ns, at least {:.1}", times[BATCHES / 2], times[0]);
}

fn pairs(when: &str) {
    let Some(push) = function(slot::range_push_a) else {
        // As NVTX's headers do then.
        println!("{when:48}       no function is called");
        return;
    };
    let get = |place| function(place).unwrap();
    let (pop, push_ex) = (get(slot::range_pop), get(slot::range_push_ex));
    let (domain_push, domain_pop) = (get(slot::domain_range_push_ex), get(slot::domain_range_pop));
    let (start, end) = (get(slot::range_start_a), get(slot::range_end));
    let (mark, create) = (get(slot::mark_a), get(slot::domain_create));
    let (register, clock) = (get(slot::register_string), Instant::now());
    let name = c"forward".as_ptr().addr();
    let domain = unsafe { create(c"NCCL".as_ptr().addr(), 0) };
    let string = unsafe { register(domain, c"ncclAllReduce".as_ptr().addr()) };
    let event = |message: u64, at: usize, color: u64| -> [u64; 6] {
        [3 | 48 << 16, 1 | 0xff00_ff00 << 32, 0, 0, message, at as u64].map(|word| match word {
            1 => color,
            word => word,
        })
    };
    let plain = event(1, name, 0);
    let registered = event(3, string, 0);
    let address = |event: &[u64; 6]| black_box(event.as_ptr().addr());
    measure(&format!("{when}: push, pop"), || unsafe {
        push(black_box(name), 0);
        pop(0, 0);
    });
    measure(&format!("{when}: the same, three deep"), || unsafe {
        push(black_box(name), 0);
        push(black_box(name), 0);
        push(black_box(name), 0);
        pop(0, 0);
        pop(0, 0);
        pop(0, 0);
    });
    measure(&format!("{when}: push with attributes, pop"), || unsafe {
        push_ex(address(&plain), 0);
        pop(0, 0);
    });
    measure(&format!("{when}: registered name in a domain"), || unsafe {
        domain_push(domain, address(&registered));
        domain_pop(domain, 0);
    });
    measure(&format!("{when}: start, end"), || unsafe {
        let range = start(black_box(name), 0);
        end(range, 0);
    });
    measure(&format!("{when}: mark"), || unsafe {
        mark(black_box(name), 0);
    });
    black_box(clock.elapsed());
}

fn play(library: &str) {
    let library = unsafe { Library::new(library) }.unwrap();
    type Initialize = unsafe extern "C" fn(GetExportTable) -> c_int;
    let initialize = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2") }.unwrap();
    let attached = unsafe { initialize(export) };
    if attached == 0 {
        pairs("not to be recorded");
        return;
    }
    pairs("before CUDA");
    let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
    let init = unsafe { driver.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuInit") }.unwrap();
    assert_eq!(unsafe { init(0) }, 0);
    pairs("recorded");
}

fn main() {
    const CHILD: &str = "RANGE_COST_LIBRARY";
    if let Ok(library) = env::var(CHILD) {
        return play(&library);
    }
    let folder = env::temp_dir().join(format!("range-cost-{}", process::id()));
    fs::create_dir_all(folder.join("run")).unwrap();
    fs::create_dir_all(folder.join("fake")).unwrap();
    let own = env::current_exe().unwrap();
    let named = env::var_os("GPUPROF_INJECT_LIBRARY").map(PathBuf::from);
    let library = named.unwrap_or_else(|| {
        let candidates = own.ancestors().skip(1).take(2).map(|at| at.join("libgpuprof_inject.so"));
        candidates.into_iter().find(|path| path.exists()).unwrap()
    });
    let has_driver = unsafe { Library::new("libcuda.so.1") }.is_ok();
    for is_recorded in [true, false] {
        let mut command = Command::new(&own);
        command.env(CHILD, &library).env("CUDA_INJECTION64_PATH", &library);
        if is_recorded {
            command.env("GPUPROF_RUN", folder.join("run"));
        } else {
            command.env_remove("GPUPROF_RUN");
        }
        if !has_driver {
            let _ = fake_cuda::install(&folder.join("fake"));
            command.env("LD_LIBRARY_PATH", folder.join("fake"));
        }
        assert!(command.status().unwrap().success());
    }
    let manifests = fs::read_dir(folder.join("run")).unwrap().count();
    assert!(manifests > 0, "nothing was recorded");
    fs::remove_dir_all(&folder).unwrap();
}
