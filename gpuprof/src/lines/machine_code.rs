//! The machine code (SASS) beside sampled instructions, from kept cubins by `nvdisasm`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use profiler_base::display::{Layout, Tone};
use profiler_base::text::printable;
use profiler_core::Profile;
use profiler_core::query::{Instructions, SampledInstruction};

use super::listing::{Row, write_rows};
use crate::failure::Failure;
use crate::output::private_folder;
use crate::tool;

/// The instructions of a function, by offset.
type Code = BTreeMap<u32, String>;

/// The machine code of the sampled functions.
pub(super) struct MachineCode {
    /// By the CRC of the cubin and the symbol.
    functions: BTreeMap<(u64, String), Code>,
}

impl MachineCode {
    /// Disassembles the kept cubins of these samples.
    pub(super) fn new(
        file: &Path,
        profile: &Profile,
        samples: &Instructions<'_>,
    ) -> Result<Self, Failure> {
        let crcs: BTreeSet<u64> = samples.as_slice().iter().map(|sampled| sampled.cubin).collect();
        let cubins = crcs.into_iter().filter_map(|crc| Some((crc, profile.cubin(crc)?)));
        let cubins: Vec<(u64, &[u8])> = cubins.collect();
        if cubins.is_empty() && !samples.is_empty() {
            return Err(Failure::Error(format!(
                "{} has no cubin of these samples: record with `gpuprof run --lines --keep-cubins`; cubins without a \
                 line table are not kept",
                file.display()
            )));
        }
        let nvdisasm = nvdisasm()?;
        let mut functions = BTreeMap::new();
        let folder = private_folder("cubins", "set TMPDIR to a folder that can be written")?;
        let all = cubins.iter().try_for_each(|(crc, elf)| {
            let text = disassemble(&nvdisasm, &folder.join(format!("{crc:016x}.cubin")), elf)?;
            functions.extend(parse(&text).map(|(symbol, code)| ((*crc, symbol), code)));
            Ok(())
        });
        // What is left in a temporary folder is no failure.
        let _ = fs::remove_dir_all(&folder);
        all.map(|()| Self { functions })
    }

    /// Writes the instructions around sampled ones, function by function, at most `limit`.
    pub(super) fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        samples: &Instructions<'_>,
        limit: usize,
        layout: Layout,
    ) -> fmt::Result {
        let all = samples.samples();
        let mut functions: BTreeMap<(u64, &str), Vec<&SampledInstruction<'_>>> = BTreeMap::new();
        for sampled in samples.as_slice().iter() {
            functions.entry((sampled.cubin, sampled.function)).or_default().push(sampled);
        }
        let of_function = |sampled: &[&SampledInstruction<'_>]| -> f64 {
            sampled.iter().map(|sampled| sampled.stalls.total()).sum()
        };
        let mut functions: Vec<_> = functions.into_iter().collect();
        functions.sort_by(|a, b| of_function(&b.1).total_cmp(&of_function(&a.1)));
        let limit = if limit == 0 { functions.len() } else { limit };
        let shares = samples.as_slice().iter().map(|sampled| sampled.stalls.total() / all);
        let largest = shares.fold(0.0, f64::max);
        for ((cubin, symbol), sampled) in functions.into_iter().take(limit) {
            let Some(first) = sampled.first() else { continue };
            let name = first.kernel.to_string();
            let name = layout.paint(Tone::Heading, &name);
            let Some(code) = self.functions.get(&(cubin, symbol.to_owned())) else {
                writeln!(f, "\n{name}: its cubin was not kept, it has no line table")?;
                continue;
            };
            writeln!(f, "\n{name}")?;
            let by_offset: BTreeMap<u32, &SampledInstruction<'_>> =
                sampled.iter().map(|sampled| (sampled.offset, *sampled)).collect();
            let rows = code.iter().map(|(offset, text)| {
                let sampled = by_offset.get(offset);
                let note = sampled.map(|sampled| {
                    let line =
                        sampled.line.map(|(file, line)| format!("{}:{line}: ", printable(file)));
                    format!("  {}{}", line.unwrap_or_default(), sampled.stalls)
                });
                Row {
                    share: sampled.map_or(0.0, |sampled| sampled.stalls.total() / all),
                    text: format!("{offset:>5x}  {}{}", printable(text), note.unwrap_or_default()),
                }
            });
            write_rows(f, rows, largest)?;
        }
        Ok(())
    }
}

fn nvdisasm() -> Result<PathBuf, Failure> {
    tool::find("nvdisasm", "NVDISASM")?.ok_or_else(|| {
        Failure::Error(
            "nvdisasm was not found in PATH or /usr/local/cuda/bin: install the CUDA toolkit, or set NVDISASM to the \
             file (Triton has one in triton/backends/nvidia/bin)"
                .to_owned(),
        )
    })
}

fn disassemble(nvdisasm: &Path, file: &Path, elf: &[u8]) -> Result<String, Failure> {
    fs::write(file, elf)
        .map_err(|error| Failure::Error(format!("could not write {}: {error}", file.display())))?;
    tool::run(nvdisasm, [OsStr::new("-c"), file.as_os_str()])
}

/// Reads functions from the text of `nvdisasm -c`: a label `.text.SYMBOL:`, then lines that begin
/// with `/*OFFSET*/`.
fn parse(text: &str) -> impl Iterator<Item = (String, Code)> {
    let mut functions: Vec<(String, Code)> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let label = line.strip_prefix(".text.").and_then(|rest| rest.strip_suffix(':'));
        if let Some(symbol) = label {
            functions.push((symbol.to_owned(), Code::new()));
        } else if let Some((offset, rest)) =
            line.strip_prefix("/*").and_then(|rest| rest.split_once("*/"))
            && let Ok(offset) = u32::from_str_radix(offset.trim(), 16)
            && let Some((_, code)) = functions.last_mut()
        {
            let instruction = rest.split(';').next().unwrap_or_default();
            let words: Vec<&str> = instruction.split_whitespace().collect();
            code.insert(offset, words.join(" "));
        }
    }
    functions.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_nvdisasm_are_read() {
        let text = "\t.headerflags\t@\"EF_CUDA_SM90\"\n//--- .text.gather ---\n\t.section\t.text.gather,\"ax\"\n\
                    \t.type\tgather,@function\ngather:\n.text.gather:\n        /*0000*/                   LDC R1, c[0x0][0x28] ;\n\
                    .L_x_0:\n        /*0010*/              @!P0 BRA `(.L_x_0) ;  /* 0x123 */\n\
                    .text.other:\n        /*0000*/                   EXIT ;\n";
        let functions: Vec<_> = parse(text).collect();
        let code = |rows: &[(u32, &str)]| -> Code {
            rows.iter().map(|(offset, text)| (*offset, (*text).to_owned())).collect()
        };
        let expected = [
            ("gather".to_owned(), code(&[(0, "LDC R1, c[0x0][0x28]"), (16, "@!P0 BRA `(.L_x_0)")])),
            ("other".to_owned(), code(&[(0, "EXIT")])),
        ];
        assert_eq!(functions, expected);
    }
}
