//! A program whose arguments are a script of CUDA and NVTX calls, for the tests of the library:
//! `scripted init push=step launch=axpy*3 pop`.
//!
//! It opens the driver as `libcuda.so.1`, like other programs. Only `again` and `embed` use the
//! library directly.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's program, near the C that it stands for"
)]

#[path = "../support/client.rs"]
mod client;
#[path = "../support/nccl.rs"]
mod nccl;

use std::cell::RefCell;
use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, process, thread};

use client::{Initialize, call, export};
use libloading::Library;
use nccl::Nccl;
use nvtx::abi::slot;
use profiler_core::Profiler;

struct Driver(Library);

impl Driver {
    fn get() -> &'static Driver {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        DRIVER.get_or_init(|| Driver(unsafe { Library::new("libcuda.so.1") }.unwrap()))
    }

    /// Calls a function with these addresses and numbers, and checks that it succeeds.
    fn call(&self, name: &str, arguments: &[usize]) {
        assert_eq!(self.result(name, arguments), 0, "{name}");
    }

    fn result(&self, name: &str, arguments: &[usize]) -> c_int {
        type Function = unsafe extern "C" fn(
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
            usize,
        ) -> c_int;
        let function = unsafe { self.0.get::<Function>(name.as_bytes()) }.unwrap();
        let mut all = [0; 11];
        all[..arguments.len()].copy_from_slice(arguments);
        let [a, b, c, d, e, f, g, h, i, j, k] = all;
        // In C's calling convention a function ignores surplus arguments.
        unsafe { function(a, b, c, d, e, f, g, h, i, j, k) }
    }

    fn init(&self) {
        let (mut device, mut context): (c_int, *mut c_void) = (0, null_mut());
        self.call("cuInit", &[0]);
        self.call("cuDeviceGet", &[(&raw mut device).addr(), 0]);
        self.call("cuDevicePrimaryCtxRetain", &[(&raw mut context).addr(), device as usize]);
        self.call("cuCtxSetCurrent", &[context.addr()]);
    }

    fn launch(&self, name: &str, count: usize) {
        let function = self.function(name);
        (0..count).for_each(|_| self.start(function));
    }

    fn start(&self, function: usize) {
        self.call("cuLaunchKernel", &[function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0]);
    }

    /// Returns the handle of a kernel.
    fn function(&self, name: &str) -> usize {
        let (mut module, mut function): (*mut c_void, *mut c_void) = (null_mut(), null_mut());
        let (image, name) = (c".version 7.0", CString::new(name).unwrap());
        self.call("cuModuleLoadData", &[(&raw mut module).addr(), image.as_ptr().addr()]);
        let out = (&raw mut function).addr();
        self.call("cuModuleGetFunction", &[out, module.addr(), name.as_ptr().addr()]);
        function.addr()
    }
}

thread_local! {
    static RANGES: RefCell<Vec<nvtx::Range>> = const { RefCell::new(Vec::new()) };
    static PROCESS_RANGES: RefCell<Vec<nvtx::ProcessRange>> = const { RefCell::new(Vec::new()) };
}
thread_local!(static COMMUNICATOR: RefCell<Option<Nccl>> = const { RefCell::new(None) });
static PROFILER: OnceLock<Profiler> = OnceLock::new();

fn fork(child: impl FnOnce()) {
    match unsafe { libc::fork() } {
        0 => {
            unsafe { libc::alarm(20) };
            child();
            // End like an ordinary program, which runs the exit handlers.
            process::exit(0);
        }
        pid => {
            let mut status: c_int = 0;
            unsafe { libc::waitpid(pid, &mut status, 0) };
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "child {status:x}");
        }
    }
}

/// Initialises the injection library again, as a second driver would.
fn again() {
    let path = env::var_os("CUDA_INJECTION64_PATH").unwrap();
    let library = unsafe { Library::new(path) }.unwrap();
    let begin = unsafe { library.get::<extern "C" fn() -> c_int>(b"InitializeInjection") }.unwrap();
    assert_eq!(begin(), 1);
}

/// Forks while other threads register names with the library. The children do the same.
fn fork_amid(children: usize) {
    let library = unsafe { Library::new(env::var_os("NVTX_INJECTION64_PATH").unwrap()) }.unwrap();
    let attach = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2") }.unwrap();
    assert_eq!(unsafe { attach(Some(export)) }, 1);
    let register = |round: usize| {
        let name = format!("name {round}\0");
        let domain = call(slot::domain_create, &[name.as_ptr().addr()]);
        let string = call(slot::register_string, &[domain, name.as_ptr().addr()]);
        call(slot::domain_name_category, &[domain, round, name.as_ptr().addr()]);
        let event: [u64; 6] = [3 | 48 << 16, 0, 0, 0, 3, string as u64];
        let level = call(slot::domain_range_push_ex, &[domain, event.as_ptr().addr()]);
        let range = call(slot::domain_range_start_ex, &[domain, event.as_ptr().addr()]);
        call(slot::domain_range_end, &[domain, range]);
        // In a silent child levels are unknown.
        assert_eq!(call(slot::domain_range_pop, &[domain]), level);
        call(slot::domain_destroy, &[domain]);
    };
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for at in 1..4 {
            let is_done = &is_done;
            scope.spawn(move || {
                (0..).take_while(|_| !is_done.load(Ordering::Relaxed)).for_each(|round| {
                    register(at * 1_000_000 + round % 500);
                });
            });
        }
        (0..children)
            .for_each(|child| fork(|| (0..10).for_each(|round| register(child * 10 + round))));
        is_done.store(true, Ordering::Relaxed);
    });
}

/// Creates a communicator `VERSION/HASH/RANK/RANKS` in an NCCL that loads the plugin.
fn communicator(described: &str) {
    let numbers: Vec<u64> = described.split('/').map(|number| number.parse().unwrap()).collect();
    let [version, hash, rank, ranks] = numbers[..] else { panic!("{described}") };
    let path = env::var_os("NCCL_PROFILER_PLUGIN").unwrap();
    let loaded = Nccl::load(&path, version as u32, (hash, rank as usize, ranks as usize));
    match &loaded {
        Some(nccl) => println!("mask {}", nccl.mask),
        None => println!("no plugin"),
    }
    COMMUNICATOR.set(loaded);
}

/// Enqueues collectives as one kernel, or without a kernel that CUPTI observes.
fn group(all: &str, launch: impl FnOnce()) {
    let all: Vec<&str> = all.split('+').collect();
    COMMUNICATOR.with_borrow_mut(|nccl| nccl.as_mut().unwrap().group(&all, launch));
}

fn serve(described: &str) {
    let numbers: Vec<usize> = described.split('/').map(|number| number.parse().unwrap()).collect();
    let [count, slow, milliseconds] = numbers[..] else { panic!("{described}") };
    let (driver, answer) = (Driver::get(), Driver::get().function("answer"));
    for number in 0..count {
        let _request = nvtx::range("request");
        driver.start(answer);
        if number == slow {
            let _wait = nvtx::range("wait for a lock");
            thread::sleep(Duration::from_millis(milliseconds as u64));
        }
        // The fake runs each kernel for 2 us. Synchronise so that its queue stays short.
        if number % 256 == 255 {
            driver.call("cuCtxSynchronize", &[]);
        }
    }
}

fn play(step: &str) {
    let driver = Driver::get;
    let (what, value) = step.split_once('=').unwrap_or((step, ""));
    match what {
        "init" => driver().init(),
        "launch" => {
            let (name, count) = value.split_once('*').unwrap_or((value, "1"));
            driver().launch(name, count.parse().unwrap());
        }
        // Pass an invalid handle to a function.
        "fail" => {
            let arguments = [0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0];
            assert_ne!(driver().result("cuLaunchKernel", &arguments), 0);
        }
        // Open ranges like a service, with a launch in each. The range with this number sleeps this
        // long: `serve=COUNT/NUMBER/MILLISECONDS`.
        "serve" => serve(value),
        // Open this many ranges, each with a name of its own and a launch.
        "names" => {
            let function = driver().function("named");
            for number in 0..value.parse().unwrap() {
                let number: u64 = number;
                let _range = nvtx::range(&format!("request {number}"));
                driver().start(function);
            }
        }
        // Simulate a full disk: no file grows beyond this many bytes.
        "limit-files" => {
            let bytes = value.parse().unwrap();
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        }
        "sync" => driver().call("cuCtxSynchronize", &[]),
        "reset" => driver().call("cuDevicePrimaryCtxReset_v2", &[0]),
        "start-profiler" => driver().call("cuProfilerStart", &[]),
        "stop-profiler" => driver().call("cuProfilerStop", &[]),
        "push" => RANGES.with_borrow_mut(|ranges| ranges.push(nvtx::range(value))),
        "pop" => drop(RANGES.with_borrow_mut(Vec::pop)),
        "start" => {
            PROCESS_RANGES.with_borrow_mut(|ranges| ranges.push(nvtx::process_range(value)));
        }
        "end" => drop(PROCESS_RANGES.with_borrow_mut(Vec::pop)),
        "communicator" => communicator(value),
        "group" => group(value, || driver().launch("ncclDevKernel_Generic_1", 1)),
        "unlaunched" => group(value, || ()),
        "nonsense" => COMMUNICATOR.with_borrow(|nccl| nccl.as_ref().unwrap().nonsense()),
        "destroy" => COMMUNICATOR.take().unwrap().destroy(),
        "mark" => nvtx::mark(value),
        "sleep" => thread::sleep(Duration::from_millis(value.parse().unwrap())),
        // The test writes a line when the program may continue.
        "wait" => {
            println!("waiting");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        "attached" => println!("attached {}", nvtx::is_attached()),
        "again" => again(),
        "thread" => {
            let steps: Vec<String> = value.split('+').map(str::to_owned).collect();
            thread::spawn(move || steps.iter().for_each(|step| play(&step.replace(':', "="))))
                .join()
                .unwrap();
        }
        "fork" => {
            let steps = value.split('+').filter(|step| !step.is_empty());
            fork(|| steps.for_each(|step| play(&step.replace(':', "="))));
        }
        "fork-amid" => fork_amid(value.parse().unwrap()),
        "embed" => {
            let profiler = PROFILER.get_or_init(|| Profiler::builder().build().unwrap());
            profiler.start().unwrap();
        }
        "embed-stop" => PROFILER.get().unwrap().stop_recording().unwrap().save(value).unwrap(),
        "exit-in-thread" => thread::spawn(|| process::exit(0)).join().unwrap(),
        "_exit" => unsafe { libc::_exit(0) },
        "abort" => process::abort(),
        "kill" => unsafe {
            libc::kill(process::id().cast_signed(), libc::SIGKILL);
        },
        other => panic!("no step {other}"),
    }
}

fn main() {
    env::args().skip(1).for_each(|step| play(&step));
    // Do not end ranges that are still open.
    RANGES.with_borrow_mut(|ranges| ranges.drain(..).for_each(std::mem::forget));
    PROCESS_RANGES.with_borrow_mut(|ranges| ranges.drain(..).for_each(std::mem::forget));
}
