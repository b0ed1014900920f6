//! The names of kernels, copies, calls and ranges in reports.

use std::sync::Arc;

use cupti::record::MemoryKind;
use cupti::{CopyKind, Kernel};
use profiler_base::distinct::Texts;
use profiler_base::kernel_names::{self, versionless};
use rustc_hash::FxHashMap;

use super::Reports;
use super::spans::Spans;
use profiler_core::tables::{Call, KernelNames, Operation, Tables, What, Work};

/// The form of a kernel's name in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum KernelNaming {
    /// The C++ name with template arguments and parameters. A capture has nsys's own spelling,
    /// which sometimes differs from other demanglers.
    #[default]
    Demangled,
    /// The function's name without namespaces, template arguments and parameters.
    Base,
    /// The mangled name; without one in the capture, the name of [`Demangled`](Self::Demangled).
    Mangled,
}

/// The texts of GPU operations. Kernels with the same text are grouped as one.
pub(super) struct OperationTexts<'a> {
    reports: Reports<'a>,
    pub(super) texts: Texts,
    /// The text of each work.
    ids: Vec<u32>,
    spans: Option<Spans>,
    /// The texts with a range before the name, by text and label of the range.
    in_ranges: FxHashMap<(u32, u32), u32>,
}

impl<'a> OperationTexts<'a> {
    pub(super) fn new(reports: Reports<'a>) -> Self {
        let mut texts = Texts::default();
        let store = reports.store();
        let mut named = FxHashMap::default();
        let text = |work: &Work| match &work.what {
            What::Kernel { names, .. } => *named
                .entry((names.name, names.demangled))
                .or_insert_with(|| texts.text(&kernel_text(reports, names))),
            What::Copy(copy) => texts.text(copy_text(work.copy_kind, copy.kind)),
            What::Memset(_) => texts.text("[CUDA memset]"),
            What::Graph(_) => texts.text("[CUDA graph]"),
        };
        let ids = store.works.rows().iter().map(text).collect();
        let spans = reports.with_range.then(|| Spans::new(reports, true));
        Self { reports, texts, ids, spans, in_ranges: FxHashMap::default() }
    }

    #[inline]
    pub(super) fn index(&mut self, operation: &Operation) -> u32 {
        let id = self.ids[operation.work.at()];
        let (Some(spans), store) = (&self.spans, self.reports.store()) else { return id };
        let is_kernel = matches!(store.work(operation).what, What::Kernel { .. });
        let calls = if is_kernel { store.calls_of(operation) } else { &[] };
        let innermost = calls.iter().filter_map(|call| spans.innermost_around(store, call));
        let Some(span) = innermost.max_by_key(|span| span.order()) else { return id };
        let texts = &mut self.texts;
        *self.in_ranges.entry((id, span.label)).or_insert_with(|| {
            let range = store.names.get(store.labels[span.label as usize].name);
            let text = format!("{range}/{}", texts.get(id));
            texts.text(&text)
        })
    }

    pub(super) fn get(&self, id: u32) -> Arc<str> {
        self.texts.get(id).clone()
    }
}

fn kernel_text(reports: Reports<'_>, names: &KernelNames) -> String {
    let name = |id| reports.store().names.get(id);
    let demangled = || match names.demangled {
        Some(demangled) => name(demangled).to_owned(),
        None => kernel_names::with_parameters(name(names.name)),
    };
    match (reports.naming, names.short) {
        (KernelNaming::Demangled, _) => demangled(),
        (KernelNaming::Base, Some(short)) => name(short).to_owned(),
        (KernelNaming::Base, None) => kernel_names::without_scope(&demangled()),
        (KernelNaming::Mangled, _) => name(names.name).to_owned(),
    }
}

/// nsys's name (`ENUM_CUDA_MEMCPY_OPER`), by the source's number of the kind if present.
fn copy_text(number: u8, kind: CopyKind) -> &'static str {
    match (number, kind) {
        (3, _) => "[CUDA memcpy Host-to-Array]",
        (4, _) => "[CUDA memcpy Array-to-Host]",
        (5, _) => "[CUDA memcpy Array-to-Array]",
        (6, _) => "[CUDA memcpy Array-to-Device]",
        (7, _) => "[CUDA memcpy Device-to-Array]",
        (11, _) => "[CUDA memcpy Unified Host-to-Device]",
        (12, _) => "[CUDA memcpy Unified Device-to-Host]",
        (13, _) => "[CUDA memcpy Unified Device-to-Device]",
        (_, CopyKind::HostToDevice) => "[CUDA memcpy Host-to-Device]",
        (_, CopyKind::DeviceToHost) => "[CUDA memcpy Device-to-Host]",
        (_, CopyKind::DeviceToDevice) => "[CUDA memcpy Device-to-Device]",
        (_, CopyKind::HostToHost) => "[CUDA memcpy Host-to-Host]",
        (_, CopyKind::PeerToPeer) => "[CUDA memcpy Peer-to-Peer]",
        _ => "[CUDA memcpy Unknown]",
    }
}

/// The kinds of memory by their numbers in nsys's `ENUM_CUDA_MEM_KIND`, with nsys's labels; 7 is an
/// unknown kind.
pub(crate) const MEMORY_KINDS: [(MemoryKind, &str); 7] = [
    (MemoryKind::PAGEABLE, "Pageable"),
    (MemoryKind::PINNED, "Pinned"),
    (MemoryKind::DEVICE, "Device"),
    (MemoryKind::ARRAY, "Array"),
    (MemoryKind::MANAGED, "Managed"),
    (MemoryKind::DEVICE_STATIC, "Device Static"),
    (MemoryKind::MANAGED_STATIC, "Managed Static"),
];

/// nsys's label for a kind of memory.
pub(crate) fn memory_text(kind: MemoryKind) -> &'static str {
    let known = MEMORY_KINDS.iter().find(|(known, _)| *known == kind);
    known.map_or("Unknown", |(_, text)| text)
}

/// The kind of memory with a label.
#[cfg(feature = "kineto")]
pub(crate) fn memory_kind(text: &str) -> MemoryKind {
    let known = MEMORY_KINDS.iter().find(|(_, known)| *known == text);
    known.map_or(MemoryKind::UNKNOWN, |(kind, _)| *kind)
}

/// The functions' names by kind of call.
pub(super) fn functions(reports: Reports<'_>) -> Vec<Arc<str>> {
    let store = reports.store();
    let kinds = store.call_kinds.rows().iter();
    kinds.map(|kind| versionless(store.names.get(kind.name)).into()).collect()
}

/// The recorded name of a call's function.
pub(super) fn recorded_function<'a>(store: &'a Tables, call: &Call) -> &'a str {
    store.names.get(store.call_kind(call).name)
}

pub(super) fn kernel_details<'a>(store: &'a Tables, operation: &Operation) -> Option<&'a Kernel> {
    match &store.work(operation).what {
        What::Kernel { details, .. } => Some(details),
        _ => None,
    }
}
