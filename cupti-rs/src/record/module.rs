//! Loaded code: modules, their functions, and its compilation.

use super::fields::{record, words};
use super::{NameKey, Span};

record! {
    /// A function of a module (`FUNCTION`).
    Function, raw, f of function {
        /// CUPTI's id (`id`).
        id: u32 = f.get(ID),
        /// CUPTI's id of the context (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// Its module (`moduleId`).
        module: u32 = f.get(MODULE_ID),
        /// Its index among the module's symbols (`functionIndex`).
        index: u32 = f.get(FUNCTION_INDEX),
        /// Its name, mangled (`name`).
        name: Option<NameKey> = f.name(NAME),
    }

    /// Just-in-time compilation, or a look-up in its cache (`JIT`).
    Jit, raw, f of jit {
        /// The input and output formats (`jitEntryType`).
        entry: JitEntry = JitEntry(f.get(JIT_ENTRY_TYPE)),
        /// The operation (`jitOperationType`).
        operation: JitOperation = JitOperation(f.get(JIT_OPERATION_TYPE)),
        /// CUDA ordinal (`deviceId`).
        device: u32 = f.get(DEVICE_ID),
        /// The time in host time (`start`, `end`).
        span: Span = f.span(START, END),
        /// The id of the call (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// The common id of compiling, storing and loading a unit (`jitOperationCorrelationId`).
        unit: u64 = f.get(JIT_OPERATION_CORRELATION_ID),
        /// Bytes of the cache (`cacheSize`).
        cache_bytes: u64 = f.get(CACHE_SIZE),
        /// The path of the cache (`cachePath`).
        cache_path: Option<NameKey> = f.name(CACHE_PATH),
        /// The process (`processId`). From CUPTI 12.4.
        process: Option<u32> = f.newer(PROCESS_ID),
        /// The thread (`threadId`). From CUPTI 12.4.
        thread: Option<u32> = f.newer(THREAD_ID),
    }
}

words! {
    /// The input and output formats of a compilation (`CUpti_ActivityJitEntryType`).
    JitEntry(u32) {
        INVALID = 0 "invalid",
        PTX_TO_CUBIN = 1 "PTX to cubin",
        NVVM_IR_TO_PTX = 2 "NVVM IR to PTX",
    }

    /// The operation of a compilation (`CUpti_ActivityJitOperationType`).
    JitOperation(u32) {
        INVALID = 0 "invalid",
        CACHE_LOAD = 1 "cache load",
        CACHE_STORE = 2 "cache store",
        COMPILE = 3 "compile",
    }
}
