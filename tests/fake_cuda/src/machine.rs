//! The state of the driver: devices, contexts, streams, events, memory, modules. Handles are numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::env;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cudarc::driver::sys::CUresult;
use cupti::MemoryKind;
use fake_cupti::Work;
use parking_lot::{Mutex, MutexGuard};

use crate::call::{Outcome, context, own_stream, set_own_stream};
use crate::graphs::{Exec, Graph};

/// The bytes of each device.
pub(crate) const DEVICE_BYTES: usize = 139 << 30;
/// The handle of the thread's own default stream; those below are the context's.
const OWN_STREAM: u64 = 2;
/// The most threads of a block.
pub(crate) const BLOCK_THREADS: u32 = 1024;

/// The state. CUPTI's fake is called without it, as the profiler's callbacks may call the driver.
pub(crate) fn machine() -> MutexGuard<'static, Machine> {
    static MACHINE: LazyLock<Mutex<Machine>> = LazyLock::new(|| Mutex::new(Machine::new()));
    MACHINE.lock()
}

/// A number in the environment.
fn number<T: FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

pub(crate) struct Machine {
    devices: u32,
    kernel_ns: u64,
    naming_ns: u64,
    contexts: BTreeMap<u32, Context>,
    last_context: u32,
    /// Primary contexts by device, each with the number of its users.
    primary: BTreeMap<u32, (u32, u32)>,
    streams: BTreeMap<u32, Stream>,
    last_stream: u32,
    last_handle: u64,
    pub(crate) events: HashMap<u64, Event>,
    memory: BTreeMap<u64, Allocation>,
    used_bytes: usize,
    modules: BTreeSet<u64>,
    functions: HashMap<u64, Function>,
    globals: HashMap<(u64, CString), u64>,
    pub(crate) graphs: HashMap<u32, Arc<Mutex<Graph>>>,
    pub(crate) execs: HashMap<u32, Arc<Exec>>,
}

#[derive(Clone, Copy)]
struct Context {
    device: u32,
    default_stream: u32,
}

/// A stream of a context.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) context: u32,
    pub(crate) device: u32,
    pub(crate) is_default: bool,
    /// Runs beside the default stream.
    pub(crate) is_apart: bool,
    /// The graph that its work is captured into.
    pub(crate) capture: Option<u32>,
    /// Where that capture began.
    pub(crate) is_origin: bool,
}

impl Stream {
    /// The work on this stream.
    pub(crate) fn place(self, work: Work) -> Work {
        work.on_stream(self.id).in_context(self.context).on_device(self.device)
    }
}

/// An event.
#[derive(Clone, Copy, Default)]
pub(crate) struct Event {
    /// When it is done, in CUPTI's time, once it was recorded.
    pub(crate) at_ns: Option<u64>,
    /// The graph in whose capture it was recorded.
    pub(crate) capture: Option<u32>,
    /// The context of the stream that it was recorded in; 0 before.
    pub(crate) context: u32,
}

/// A function of a module.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) name: &'static CStr,
    pub(crate) module: u64,
}

/// As much as the alignment of device memory.
#[repr(align(256))]
struct Page {
    _bytes: [MaybeUninit<u8>; 256],
}

struct Allocation {
    bytes: usize,
    kind: MemoryKind,
    /// None for memory of the program's that it registered.
    _pages: Vec<Page>,
}

impl Machine {
    fn new() -> Self {
        Self {
            devices: number("FAKE_CUDA_DEVICES").unwrap_or(1),
            kernel_ns: number("FAKE_CUDA_KERNEL_NS").unwrap_or(2_000),
            naming_ns: number("FAKE_CUDA_NAMING_NS").unwrap_or(0),
            contexts: BTreeMap::new(),
            last_context: 0,
            primary: BTreeMap::new(),
            streams: BTreeMap::new(),
            // Numbers below are special streams. The first default stream is 7, as CUPTI has it.
            last_stream: 6,
            last_handle: 0x1000,
            events: HashMap::new(),
            memory: BTreeMap::new(),
            used_bytes: 0,
            modules: BTreeSet::new(),
            functions: HashMap::new(),
            globals: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
        }
    }

    pub(crate) fn device_count(&self) -> u32 {
        self.devices
    }

    /// How long a kernel runs.
    pub(crate) fn kernel_ns(&self) -> u64 {
        self.kernel_ns
    }

    /// How long the name of a device takes.
    pub(crate) fn naming_time(&self) -> Duration {
        Duration::from_nanos(self.naming_ns)
    }

    /// The device of this ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<u32> {
        let device = u32::try_from(ordinal).ok().filter(|device| *device < self.devices);
        device.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    fn next_handle(&mut self) -> u64 {
        self.last_handle += 16;
        self.last_handle
    }

    // --- contexts and streams

    /// Makes a context and its default stream.
    pub(crate) fn new_context(&mut self, device: u32) -> u32 {
        self.last_context += 1;
        let id = self.last_context;
        self.contexts.insert(id, Context { device, default_stream: 0 });
        let stream = self.add_stream(id, device, true, false);
        self.contexts.insert(id, Context { device, default_stream: stream });
        id
    }

    /// The device of a context.
    pub(crate) fn device_of(&self, context: u32) -> Outcome<u32> {
        let found = self.contexts.get(&context).map(|context| context.device);
        found.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// Removes a context with its streams.
    pub(crate) fn remove_context(&mut self, context: u32) -> Outcome {
        self.contexts.remove(&context).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        self.streams.retain(|_, stream| stream.context != context);
        Ok(())
    }

    /// The device's primary context with one user more.
    pub(crate) fn retain_primary(&mut self, device: u32) -> u32 {
        if let Some((context, users)) = self.primary.get_mut(&device) {
            *users += 1;
            return *context;
        }
        let context = self.new_context(device);
        self.primary.insert(device, (context, 1));
        context
    }

    /// Takes a user from the device's primary context; the context if it was the last.
    pub(crate) fn release_primary(&mut self, device: u32) -> Outcome<Option<u32>> {
        let entry = self.primary.get_mut(&device).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        entry.1 -= 1;
        let (context, users) = *entry;
        if users == 0 {
            self.primary.remove(&device);
        }
        Ok((users == 0).then_some(context))
    }

    /// Takes all users from the device's primary context.
    pub(crate) fn reset_primary(&mut self, device: u32) -> Option<u32> {
        self.primary.remove(&device).map(|(context, _)| context)
    }

    /// Whether the device's primary context exists.
    pub(crate) fn has_primary(&self, device: u32) -> bool {
        self.primary.contains_key(&device)
    }

    fn add_stream(&mut self, context: u32, device: u32, is_default: bool, is_apart: bool) -> u32 {
        // Handles of other streams begin above those of the special ones.
        self.last_stream =
            if is_default { self.last_stream + 1 } else { self.last_stream.max(12) + 1 };
        let id = self.last_stream;
        let (capture, is_origin) = (None, false);
        let stream = Stream { id, context, device, is_default, is_apart, capture, is_origin };
        self.streams.insert(id, stream);
        id
    }

    /// Makes a stream in the current context.
    pub(crate) fn new_stream(&mut self, is_apart: bool) -> Outcome<Stream> {
        let context = context()?;
        let id = self.add_stream(context, self.device_of(context)?, false, is_apart);
        self.stream(id.into())
    }

    /// The stream of a handle in the current context.
    pub(crate) fn stream(&mut self, handle: u64) -> Outcome<Stream> {
        // A stream has its own context: its handle needs none to be current.
        let context = if handle <= OWN_STREAM { context()? } else { 0 };
        self.stream_of(context, handle)
    }

    /// The stream of a handle; one of the special handles is a default stream of this context.
    pub(crate) fn stream_of(&mut self, context: u32, handle: u64) -> Outcome<Stream> {
        let id = match handle {
            OWN_STREAM => self.own_stream(context)?,
            0..OWN_STREAM => {
                let found = self.contexts.get(&context);
                found.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.default_stream
            }
            _ => u32::try_from(handle).map_err(|_| CUresult::CUDA_ERROR_INVALID_HANDLE)?,
        };
        self.streams.get(&id).copied().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// The thread's own default stream, which is made when it is first used.
    fn own_stream(&mut self, context: u32) -> Outcome<u32> {
        let device = self.device_of(context)?;
        if let Some(id) = own_stream(context).filter(|id| self.streams.contains_key(id)) {
            return Ok(id);
        }
        let id = self.add_stream(context, device, false, false);
        set_own_stream(context, id);
        Ok(id)
    }

    /// Forgets streams of a thread that ended.
    pub(crate) fn forget_streams(&mut self, ids: impl Iterator<Item = u32>) {
        for id in ids {
            self.streams.remove(&id);
        }
    }

    /// Replaces what is known of a stream.
    pub(crate) fn update_stream(&mut self, stream: Stream) {
        self.streams.insert(stream.id, stream);
    }

    /// Removes a stream.
    pub(crate) fn remove_stream(&mut self, handle: u64) -> Outcome {
        let stream = self.stream(handle)?;
        if stream.is_default || handle == OWN_STREAM {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        self.streams.remove(&stream.id);
        Ok(())
    }

    /// The streams of a context.
    pub(crate) fn streams_of(&self, context: u32) -> Vec<Stream> {
        self.streams.values().filter(|stream| stream.context == context).copied().collect()
    }

    /// The streams whose work is captured into a graph.
    pub(crate) fn capturing(&self, graph: u32) -> Vec<Stream> {
        self.streams.values().filter(|stream| stream.capture == Some(graph)).copied().collect()
    }

    // --- events

    pub(crate) fn new_event(&mut self) -> u64 {
        let handle = self.next_handle();
        self.events.insert(handle, Event::default());
        handle
    }

    pub(crate) fn event(&self, handle: u64) -> Outcome<Event> {
        self.events.get(&handle).copied().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    // --- memory

    /// Allocates memory of this kind.
    pub(crate) fn allocate(&mut self, bytes: usize, kind: MemoryKind) -> Outcome<u64> {
        if bytes == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let no_room = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        if bytes > self.free_bytes() {
            return Err(no_room);
        }
        let mut pages: Vec<Page> = Vec::new();
        pages.try_reserve_exact(bytes.div_ceil(size_of::<Page>())).map_err(|_| no_room)?;
        let address = pages.as_mut_ptr().expose_provenance() as u64;
        self.memory.insert(address, Allocation { bytes, kind, _pages: pages });
        self.used_bytes += bytes;
        Ok(address)
    }

    /// Takes memory of the program's for pinned.
    pub(crate) fn register(&mut self, address: u64, bytes: usize) {
        let allocation = Allocation { bytes, kind: MemoryKind::PINNED, _pages: Vec::new() };
        self.memory.insert(address, allocation);
        self.used_bytes += bytes;
    }

    /// Frees an allocation, or forgets memory of the program's.
    pub(crate) fn free(&mut self, address: u64) -> Outcome {
        let removed = self.memory.remove(&address);
        self.used_bytes -= removed.as_ref().map_or(0, |allocation| allocation.bytes);
        removed.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The bytes of a device that are free; all devices share them.
    pub(crate) fn free_bytes(&self) -> usize {
        DEVICE_BYTES.saturating_sub(self.used_bytes)
    }

    /// The kind of memory at an address: pageable if CUDA does not know it.
    pub(crate) fn kind_of(&self, address: u64) -> MemoryKind {
        self.allocation(address).map_or(MemoryKind::PAGEABLE, |(_, allocation)| allocation.kind)
    }

    /// The allocation that an address is in: where it begins, and its bytes.
    pub(crate) fn range_of(&self, address: u64) -> Outcome<(u64, usize)> {
        let found = self.allocation(address).map(|(start, allocation)| (start, allocation.bytes));
        found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn allocation(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.memory.range(..=address).next_back()?;
        let is_within = address - start < allocation.bytes as u64;
        is_within.then_some((*start, allocation))
    }

    /// Refuses bytes that do not lie in one allocation.
    pub(crate) fn check_device(&self, address: u64, bytes: usize) -> Outcome {
        if bytes == 0 {
            return Ok(());
        }
        let (start, length) = self.range_of(address)?;
        let end = address.checked_add(bytes as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if end <= start + length as u64 { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
    }

    // --- modules

    /// Loads a module.
    pub(crate) fn new_module(&mut self) -> u64 {
        let handle = self.next_handle();
        self.modules.insert(handle);
        handle
    }

    /// Unloads a module.
    pub(crate) fn remove_module(&mut self, module: u64) -> Outcome {
        if !self.modules.remove(&module) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        self.functions.retain(|_, function| function.module != module);
        Ok(())
    }

    /// The function of this name in a module, which has functions of all names.
    pub(crate) fn new_function(&mut self, module: u64, name: &CStr) -> Outcome<u64> {
        if !self.modules.contains(&module) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let is_it = |function: &Function| function.module == module && function.name == name;
        if let Some((handle, _)) = self.functions.iter().find(|(_, function)| is_it(function)) {
            return Ok(*handle);
        }
        let handle = self.next_handle();
        self.functions.insert(handle, Function { name: intern(name), module });
        Ok(handle)
    }

    /// The function of a handle.
    pub(crate) fn function(&self, handle: u64) -> Outcome<Function> {
        self.functions.get(&handle).copied().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// A variable of a module, which has those of all names, each of 64 KiB.
    pub(crate) fn global(&mut self, module: u64, name: &CStr) -> Outcome<(u64, usize)> {
        const BYTES: usize = 64 << 10;
        let key = (module, name.to_owned());
        if let Some(address) = self.globals.get(&key) {
            return Ok((*address, BYTES));
        }
        let address = self.allocate(BYTES, MemoryKind::DEVICE_STATIC)?;
        self.globals.insert(key, address);
        Ok((address, BYTES))
    }
}

/// A copy of a kernel's name that lives as long as the process, as names in CUPTI's records do; one for each name.
fn intern(name: &CStr) -> &'static CStr {
    static NAMES: Mutex<BTreeSet<&'static CStr>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    if let Some(kept) = names.get(name) {
        return kept;
    }
    let kept: &'static CStr = Box::leak(name.to_owned().into_boxed_c_str());
    names.insert(kept);
    kept
}
