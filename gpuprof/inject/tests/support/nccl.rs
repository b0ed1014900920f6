//! What NCCL 2.28 does with a profiler plugin, for programs of tests: layouts and orders as in its public sources, written out a
//! second time, so that a mistake in the library's own is found.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use libloading::Library;

/// Event types.
const COLL: u64 = 1 << 1;
const P2P: u64 = 1 << 2;
const GROUP_API: u64 = 1 << 8;
const COLL_API: u64 = 1 << 9;
const P2P_API: u64 = 1 << 10;
const KERNEL_LAUNCH: u64 = 1 << 11;

type Function =
    unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize) -> c_int;

#[repr(C)]
struct Plugin {
    name: *const c_char,
    init: Function,
    start_event: Function,
    stop_event: Function,
    record_event_state: Function,
    finalize: Function,
}

/// The largest description of an event, in words: type, parent, rank, then the members of the union.
type Description = [usize; 16];

pub(crate) struct Nccl {
    plugin: &'static Plugin,
    version: u32,
    /// The mask that the plugin asked for.
    pub(crate) mask: c_int,
    context: *mut c_void,
    rank: usize,
    sequences: HashMap<String, usize>,
    _library: Library,
}

impl Nccl {
    /// Loads a plugin and initialises a communicator. `None` if the library has no plugin of the version.
    pub(crate) fn load(
        path: &std::ffi::OsStr,
        version: u32,
        (hash, rank, ranks): (u64, usize, usize),
    ) -> Option<Nccl> {
        let library = unsafe { Library::new(path) }.unwrap();
        let symbol = format!("ncclProfiler_v{version}");
        let plugin = unsafe { library.get::<*const Plugin>(symbol.as_bytes()) }.ok()?;
        let plugin = unsafe { &**plugin };
        assert_eq!(unsafe { CStr::from_ptr(plugin.name) }, c"gpuprof");
        let (mut context, mut mask): (*mut c_void, c_int) = (null_mut(), 0);
        let (context_at, mask_at) = ((&raw mut context).addr(), (&raw mut mask).addr());
        let (name, hash) = (c"gradients".as_ptr().addr(), hash as usize);
        let done = match version {
            5 => unsafe { (plugin.init)(context_at, hash, mask_at, name, 1, ranks, rank, 0) },
            _ => unsafe { (plugin.init)(context_at, mask_at, name, hash, 1, ranks, rank, 0) },
        };
        assert_eq!(done, 0);
        Some(Nccl {
            plugin,
            version,
            mask,
            context,
            rank,
            sequences: HashMap::new(),
            _library: library,
        })
    }

    fn start(&self, kind: u64, union: &[usize]) {
        let mut description: Description = [0; 16];
        description[0] = match self.version {
            5 => kind as usize,
            // One byte, with garbage behind it.
            _ => kind as u8 as usize | 0x5555_5555_5555_5500,
        };
        // Padding follows the 32 bits of the rank.
        description[2] = self.rank;
        description[3..3 + union.len()].copy_from_slice(union);
        let mut handle = std::ptr::dangling_mut::<c_void>();
        let (context, at) = (self.context.addr(), (&raw mut handle).addr());
        let event = description.as_ptr().addr();
        assert_eq!(unsafe { (self.plugin.start_event)(context, at, event, 0, 0, 0, 0, 0) }, 0);
        if !handle.is_null() {
            assert_eq!(unsafe { (self.plugin.stop_event)(handle.addr(), 0, 0, 0, 0, 0, 0, 0) }, 0);
        }
    }

    /// Enqueues a group of collectives `FUNCTION/COUNT[/PEER]` as one kernel: `launch` launches it.
    pub(crate) fn group(&mut self, all: &[&str], launch: impl FnOnce()) {
        let is_new = self.version == 5;
        let parsed: Vec<(&str, usize, usize)> = all
            .iter()
            .map(|one| {
                let mut words = one.split('/');
                let function = words.next().unwrap();
                let mut number = || words.next().map_or(0, |word| word.parse().unwrap());
                (function, number(), number())
            })
            .collect();
        let wants = self.mask != 0;
        if wants && is_new {
            self.start(GROUP_API, &[0]);
            for (function, ..) in &parsed {
                let is_p2p = matches!(*function, "Send" | "Recv");
                self.start(if is_p2p { P2P_API } else { COLL_API }, &[0; 6]);
            }
        }
        if self.mask as u64 & KERNEL_LAUNCH != 0 {
            self.start(KERNEL_LAUNCH, &[0]);
        }
        launch();
        for (function, count, peer) in parsed {
            let name = CString::new(function).unwrap();
            let name = name.as_ptr().addr();
            let float = c"ncclFloat32".as_ptr().addr();
            if matches!(function, "Send" | "Recv") {
                if self.mask as u64 & P2P != 0 {
                    self.start(P2P, &[name, 0, float, count, peer | 4 << 32]);
                }
                continue;
            }
            let next = self.sequences.entry(function.to_owned()).or_default();
            let sequence = *next;
            *next += 1;
            if self.mask as u64 & COLL != 0 {
                let (ring, simple) = (c"RING".as_ptr().addr(), c"SIMPLE".as_ptr().addr());
                let channels = 8 | 16 << 8;
                let union = [sequence, name, 0, 0, count, peer, float, channels, ring, simple];
                self.start(COLL, &union);
            }
        }
    }

    /// Events that NCCL never sends, and null.
    pub(crate) fn nonsense(&self) {
        let start = self.plugin.start_event;
        unsafe {
            start(self.context.addr(), 0, 0, 0, 0, 0, 0, 0);
            // Another context.
            let mut event: Description = [0; 16];
            event[0] = COLL as usize;
            start(usize::MAX, 0, event.as_ptr().addr(), 0, 0, 0, 0, 0);
            start(0, 0, event.as_ptr().addr(), 0, 0, 0, 0, 0);
            (self.plugin.init)(0, 0, 0, 0, 0, 0, 0, 0);
            (self.plugin.record_event_state)(0, 99, 0, 0, 0, 0, 0, 0);
        }
        // Each bit, known or not; texts are null.
        (0..20).for_each(|bit| self.start(1 << bit, &[0; 10]));
    }

    pub(crate) fn destroy(self) {
        let context = self.context.addr();
        assert_eq!(unsafe { (self.plugin.finalize)(context, 0, 0, 0, 0, 0, 0, 0) }, 0);
    }
}
