//! The line table of a cubin.

/// True if the bytes are a 64-bit ELF file with a section `.debug_line`.
pub(super) fn has_line_table(elf: &[u8]) -> bool {
    line_table(elf).is_some()
}

/// Places and sizes are those of the ELF-64 header and of its section headers.
fn line_table(elf: &[u8]) -> Option<()> {
    const NAME: &[u8] = b".debug_line\0";
    if !elf.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let word = |at: usize| Some(u64::from_le_bytes(*elf.get(at..)?.first_chunk()?) as usize);
    let half = |at: usize| Some(u16::from_le_bytes(*elf.get(at..)?.first_chunk()?) as usize);
    let (sections, bytes, count, of_names) = (word(40)?, half(58)?, half(60)?, half(62)?);
    let section = |index: usize| sections.checked_add(index.checked_mul(bytes)?);
    let names = word(section(of_names)?.checked_add(24)?)?;
    let has_name = |index| {
        let name = word(section(index)?)? & 0xffff_ffff;
        elf.get(names.checked_add(name)?..)?.starts_with(NAME).then_some(())
    };
    (0..count).find_map(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose only section has this name.
    fn elf_with(name: &str) -> Vec<u8> {
        let mut elf = vec![0; 64 + 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        elf[40] = 64;
        (elf[58], elf[60]) = (64, 1);
        elf[64 + 24] = 128;
        elf.extend(name.as_bytes());
        elf.push(0);
        elf
    }

    #[test]
    fn line_table_is_found_by_its_name() {
        assert!(has_line_table(&elf_with(".debug_line")));
        assert!(!has_line_table(&elf_with(".debug_line_sass")));
        assert!(!has_line_table(b"PTX"));
        let elf = elf_with(".debug_line");
        for length in 0..elf.len() {
            assert!(!has_line_table(&elf[..length]), "{length}");
        }
        for at in 0..elf.len() {
            let mut damaged = elf.clone();
            damaged[at] = 0xff;
            has_line_table(&damaged);
        }
    }
}
