//! The cost of a push and a pop through the library's functions, as a copy of NVTX calls them.
//! Measured while the program is recorded, before CUDA is initialised, and in a process that is not
//! recorded. Then the cost of a collective through the library's NCCL plugin. It includes the
//! simulated NCCL's own part, which is the value for a process that is not recorded.
//!
//! ```sh
//! cargo bench -p gpuprof-inject
//! ```
//!
//! Uses the installed driver, or else the fake.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a bench, near the C that it stands for"
)]

#[path = "../tests/support/client.rs"]
mod client;
#[path = "../tests/support/nccl.rs"]
#[allow(dead_code, reason = "for the tests")]
mod nccl;

use std::ffi::c_int;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use std::{env, fs, process};

use client::{Initialize, export, function};
use libloading::Library;
use nccl::Nccl;
use nvtx::abi::slot;

const PAIRS: u32 = 20_000;
const BATCHES: usize = 31;

/// Measures the nanoseconds per pair: the median of the batches, and the minimum.
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
    if function(slot::range_push_a).is_none() {
        // NVTX's headers do the same.
        println!("{when:48}       no function is called");
        return;
    }
    let get = |place| {
        let function = function(place).unwrap();
        move |one: usize, other: usize| unsafe { function(one, other, 0, 0, 0, 0) }
    };
    let (push, pop) = (get(slot::range_push_a), get(slot::range_pop));
    let push_ex = get(slot::range_push_ex);
    let (domain_push, domain_pop) = (get(slot::domain_range_push_ex), get(slot::domain_range_pop));
    let (start, end) = (get(slot::range_start_a), get(slot::range_end));
    let mark = get(slot::mark_a);
    let name = c"forward".as_ptr().addr();
    let domain = get(slot::domain_create)(c"NCCL".as_ptr().addr(), 0);
    let string = get(slot::register_string)(domain, c"ncclAllReduce".as_ptr().addr());
    // The fields are: version and size, category, colour, payload, type of the message, message.
    let event = |message: u64, at: usize| [3 | 48 << 16, 0, 0, 0, message, at as u64];
    let plain = event(1, name);
    let registered = event(3, string);
    let address = |event: &[u64; 6]| black_box(event.as_ptr().addr());
    measure(&format!("{when}: push, pop"), || {
        push(black_box(name), 0);
        pop(0, 0);
    });
    measure(&format!("{when}: the same, three deep"), || {
        push(black_box(name), 0);
        push(black_box(name), 0);
        push(black_box(name), 0);
        pop(0, 0);
        pop(0, 0);
        pop(0, 0);
    });
    measure(&format!("{when}: push with attributes, pop"), || {
        push_ex(address(&plain), 0);
        pop(0, 0);
    });
    measure(&format!("{when}: registered name in a domain"), || {
        domain_push(domain, address(&registered));
        domain_pop(domain, 0);
    });
    measure(&format!("{when}: start, end"), || {
        let range = start(black_box(name), 0);
        end(range, 0);
    });
    measure(&format!("{when}: mark"), || {
        mark(black_box(name), 0);
    });
}

/// Measures a range like NCCL's around `ncclAllReduce`: with communicator, bytes and operation in a
/// schema.
fn ranges_with_values(when: &str) {
    if function(slot::schema_register).is_none() {
        return;
    }
    const FIRST_SCHEMA: usize = 1 << 24;
    const U64: usize = 18;
    let get = |place| {
        let function = function(place).unwrap();
        move |one: usize, other: usize| unsafe { function(one, other, 0, 0, 0, 0) }
    };
    let domain = get(slot::domain_create)(c"NCCL".as_ptr().addr(), 0);
    let names = [c"NCCL communicator ID", c"Message size [bytes]", c"Reduction operation"];
    let entries = names.map(|name| [0, U64, name.as_ptr().addr(), 0, 0, 0, 0, 0]);
    // NCCL registers the same number of schemas, with ids of its own.
    let schemas: Vec<usize> = (0..16)
        .map(|number| {
            let entries = (entries.as_ptr().addr(), entries.len());
            let name = c"schema".as_ptr().addr();
            let id = FIRST_SCHEMA + number;
            let schema = [0x1fe, name, 1, 0, entries.0, entries.1, 24, 0, id, 0];
            get(slot::schema_register)(domain, schema.as_ptr().addr())
        })
        .collect();
    let values = [7_u64, 1 << 20, 0];
    let block = [schemas[2], size_of_val(&values), values.as_ptr().addr()];
    let string = get(slot::register_string)(domain, c"ncclAllReduce".as_ptr().addr());
    let extended = 0xdfbd_0009 | 1 << 32;
    let block = block.as_ptr().addr() as u64;
    let event = [3 | 48 << 16, 0, extended, block, 3, string as u64];
    let (push, pop) = (get(slot::domain_range_push_ex), get(slot::domain_range_pop));
    measure(&format!("{when}: a range of NCCL with its values"), || {
        push(domain, black_box(event.as_ptr().addr()));
        pop(domain, 0);
    });
}

fn collectives(when: &str, path: &str) {
    let mut nccl = Nccl::load(path.as_ref(), 5, (7, 0, 2)).unwrap();
    measure(&format!("{when}: a collective of NCCL"), || nccl.group(&["AllReduce/1024"], || {}));
    nccl.destroy();
}

fn play(path: &str) {
    let library = unsafe { Library::new(path) }.unwrap();
    let initialize = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2") }.unwrap();
    let attached = unsafe { initialize(Some(export)) };
    let extension = b"InitializeInjectionNvtxExtension";
    let extension = unsafe { library.get::<client::InitializeExtension>(extension) }.unwrap();
    client::extend(*extension, client::PAYLOAD, &client::EXTENSIONS[2], client::SLOTS);
    if attached == 0 {
        pairs("not to be recorded");
        return collectives("not to be recorded", path);
    }
    pairs("before CUDA");
    let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
    let init = unsafe { driver.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuInit") }.unwrap();
    assert_eq!(unsafe { init(0) }, 0);
    pairs("recorded");
    ranges_with_values("recorded");
    collectives("recorded", path);
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
