//! The modules of the process: their unwinding data, and the numbers by which frames refer to them.

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder as _};
use memmap2::Mmap;
use object::{Object as _, ObjectSection as _};

use super::sys::{self, LoadedModule};
use super::table::FrameWord;

#[cfg(target_arch = "aarch64")]
pub(super) type Unwinder = framehop::aarch64::UnwinderAarch64<Section, MustNotAllocateDuringUnwind>;
#[cfg(target_arch = "x86_64")]
pub(super) type Unwinder = framehop::x86_64::UnwinderX86_64<Section, MustNotAllocateDuringUnwind>;

/// The maximum number of numbered modules; frames of others have no module.
const MOST_MODULES: usize = 4096;

/// A part of a mapped file.
#[derive(Debug, Clone)]
pub(super) struct Section {
    file: Arc<Mmap>,
    range: Range<usize>,
}

impl Deref for Section {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.file.get(self.range.clone()).unwrap_or_default()
    }
}

/// A module that is or was loaded.
#[derive(Debug, Clone)]
pub(super) struct KnownModule {
    pub(super) path: PathBuf,
    pub(super) build_id: Vec<u8>,
}

/// Code of a module in the process.
#[derive(Debug, Clone)]
struct Code {
    range: Range<u64>,
    bias: u64,
    module: u16,
}

/// The modules that were loaded at one time.
#[derive(Clone, Default)]
pub(super) struct Modules {
    pub(super) unwinder: Unwinder,
    /// By address.
    code: Vec<Code>,
}

impl Modules {
    /// The frame of an address, which is in an instruction, or after one for a return address.
    pub(super) fn frame(&self, address: u64) -> FrameWord {
        let after = self.code.partition_point(|code| code.range.start <= address);
        let code = after.checked_sub(1).and_then(|at| self.code.get(at));
        match code.filter(|code| address < code.range.end) {
            Some(code) => FrameWord::new(Some(code.module), address.wrapping_sub(code.bias)),
            None => FrameWord::new(None, address),
        }
    }
}

/// Tracks the modules that the process loads.
#[derive(Default)]
pub(super) struct Loader {
    changes: Option<(u64, u64)>,
    /// All numbered modules, including unloaded ones.
    pub(super) known: Vec<KnownModule>,
    parsed: Vec<Parsed>,
}

/// The unwinding data of a loaded module, with its number and bias.
type Parsed = ((u16, u64), Option<Module<Section>>);

impl Loader {
    /// The modules, if they have changed. Costs a microsecond if they have not; for a new one, it
    /// reads the file's tables.
    pub(super) fn refresh(&mut self) -> Option<Modules> {
        let changes = sys::module_changes();
        if self.changes == Some(changes) {
            return None;
        }
        self.changes = Some(changes);
        let mut modules = Modules::default();
        let mut parsed = Vec::new();
        for loaded in sys::loaded_modules() {
            let path = match loaded.path.as_os_str().is_empty() {
                true => std::env::current_exe().unwrap_or_default(),
                false => loaded.path.clone(),
            };
            let Some(number) = self.number(&path, &loaded.build_id) else { continue };
            let key = (number, loaded.bias);
            let before = self.parsed.iter().find(|(known, _)| *known == key);
            let module = match before {
                Some((_, module)) => module.clone(),
                None => parse(&path, &loaded),
            };
            for range in &loaded.code {
                modules.code.push(Code { range: range.clone(), bias: loaded.bias, module: number });
            }
            if let Some(module) = &module {
                modules.unwinder.add_module(module.clone());
            }
            parsed.push((key, module));
        }
        self.parsed = parsed;
        modules.code.sort_by_key(|code| code.range.start);
        Some(modules)
    }

    fn number(&mut self, path: &Path, build_id: &[u8]) -> Option<u16> {
        let is_same = |known: &KnownModule| known.path == path && known.build_id == build_id;
        let at = match self.known.iter().position(is_same) {
            Some(at) => at,
            None if self.known.len() >= MOST_MODULES => return None,
            None => {
                self.known.push(KnownModule { path: path.to_owned(), build_id: build_id.to_vec() });
                self.known.len() - 1
            }
        };
        u16::try_from(at).ok()
    }
}

/// True if a file is the one that was loaded, according to its build id.
pub(super) fn is_loaded_file(file: &object::File<'_>, build_id: &[u8]) -> bool {
    build_id.is_empty() || file.build_id().ok().flatten() == Some(build_id)
}

/// The unwinding data of a module. `None` if its file is missing or a different one: frames in it
/// are then found by frame pointers.
fn parse(path: &Path, loaded: &LoadedModule) -> Option<Module<Section>> {
    let file = Arc::new(sys::map(&File::open(path).ok()?).ok()?);
    let object = object::File::parse(&file[..]).ok()?;
    if !is_loaded_file(&object, &loaded.build_id) {
        return None;
    }
    let section = |name: &str| {
        let section = object.section_by_name(name)?;
        let addresses = section.address()..section.address().saturating_add(section.size());
        let (at, bytes) = section.file_range()?;
        let begin = usize::try_from(at).ok()?;
        let range = begin..begin.checked_add(usize::try_from(bytes).ok()?)?;
        Some((addresses, Section { file: file.clone(), range }))
    };
    let split =
        |name: &str| section(name).map_or((None, None), |(at, data)| (Some(at), Some(data)));
    let (text_svma, text) = split(".text");
    let (eh_frame_svma, eh_frame) = split(".eh_frame");
    let (eh_frame_hdr_svma, eh_frame_hdr) = split(".eh_frame_hdr");
    let (got_svma, _) = split(".got");
    let start = loaded.code.iter().map(|code| code.start).min()?;
    let end = loaded.code.iter().map(|code| code.end).max()?;
    let sections = ExplicitModuleSectionInfo {
        text_svma,
        text,
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        got_svma,
        base_svma: 0,
        stubs_svma: None,
        stub_helper_svma: None,
        unwind_info: None,
        debug_frame: None,
        text_segment_svma: None,
        text_segment: None,
    };
    let name = path.to_string_lossy().into_owned();
    Some(Module::new(name, start..end, loaded.bias, sections))
}
