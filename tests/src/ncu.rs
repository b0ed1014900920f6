//! Nsight Compute (`ncu`) as a referee: reads its counts of a program's kernels from its CSV.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel in the output of `ncu`.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The kernel's name.
    pub name: String,
    /// The values of the metrics, in base units.
    pub values: BTreeMap<String, f64>,
}

/// Finds `ncu`: the file named by `NCU`, else in `PATH`, else in the toolkit's folders.
///
/// # Errors
/// `ncu` is in none of them.
pub fn find() -> Result<PathBuf, String> {
    if let Some(named) = env::var_os("NCU").map(PathBuf::from) {
        let missing = format!("NCU names {}, which is not there", named.display());
        return Some(named).filter(|file| file.is_file()).ok_or(missing);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/local/cuda/bin".into()]);
    let versions = std::fs::read_dir("/opt/nvidia/nsight-compute").into_iter().flatten();
    let places = places.chain(versions.flatten().map(|version| version.path()));
    let mut files = places.map(|folder| folder.join("ncu"));
    files.find(|file| file.is_file()).ok_or_else(|| "ncu was not found; NCU names it".into())
}

/// Counts metrics with `ncu` over the kernels that a program launches between `cuProfilerStart` and
/// `cuProfilerStop`. The clocks are not locked.
///
/// # Errors
/// `ncu` or the program fails, or the output cannot be read.
pub fn count(
    ncu: &Path,
    cache_control: &str,
    metrics: &[&str],
    program: &mut Command,
) -> Result<Vec<Row>, String> {
    let metrics = metrics.join(",");
    let options = ["--page", "raw", "--print-units", "base", "--metrics", &metrics];
    let output_text = run(ncu, cache_control, &options, program)?;
    parse(&output_text).ok_or_else(|| format!("the output of ncu cannot be read:\n{output_text}"))
}

/// Runs a program under `ncu`, and returns what both print.
fn run(
    ncu: &Path,
    cache_control: &str,
    options: &[&str],
    program: &mut Command,
) -> Result<String, String> {
    let mut command = Command::new(ncu);
    command
        .args(["--csv", "--clock-control", "none", "--profile-from-start", "off"])
        .args(["--cache-control", cache_control])
        .args(options)
        .arg(program.get_program())
        .args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().map_err(|error| format!("{}: {error}", ncu.display()))?;
    let [output_text, error_text] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if !output.status.success() {
        return Err(format!("ncu: {}\n{output_text}\n{error_text}", output.status));
    }
    Ok(output_text.into_owned())
}

/// Reads the output of `--csv --page raw`: a line of names, one of units, and one for each kernel.
/// Other lines are the program's.
#[must_use]
pub fn parse(text: &str) -> Option<Vec<Row>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("\"ID\""));
    let header = fields(lines.next()?);
    let kernel = header.iter().position(|name| name == "Kernel Name")?;
    lines.next()?;
    let rows = lines.filter(|line| line.starts_with('"')).map(|line| {
        let cells = fields(line);
        let number = |cell: &String| cell.replace(',', "").parse::<f64>().ok();
        let values = header
            .iter()
            .zip(&cells)
            .filter_map(|(name, cell)| Some((name.clone(), number(cell)?)))
            .collect();
        Some(Row { name: cells.get(kernel)?.clone(), values })
    });
    rows.collect()
}

/// Samples the warps of the kernels that a program launches between `cuProfilerStart` and
/// `cuProfilerStop`, as [`count`] counts: samples by line of each kernel.
///
/// # Errors
/// `ncu` or the program fails, or the output has no samples.
pub fn lines(
    ncu: &Path,
    program: &mut Command,
) -> Result<BTreeMap<String, BTreeMap<u32, f64>>, String> {
    let options =
        ["--page", "source", "--print-source", "cuda,sass", "--section", "SourceCounters"];
    let output_text = run(ncu, "none", &options, program)?;
    let lines = parse_lines(&output_text);
    if lines.is_empty() {
        Err(format!("ncu printed no samples:\n{output_text}"))
    } else {
        Ok(lines)
    }
}

/// Reads the output of `--csv --page source --print-source cuda,sass`: for each kernel a header, and
/// rows of lines, each before the rows of its instructions.
#[must_use]
pub fn parse_lines(text: &str) -> BTreeMap<String, BTreeMap<u32, f64>> {
    let mut kernels: BTreeMap<String, BTreeMap<u32, f64>> = BTreeMap::new();
    let (mut kernel, mut column) = (String::new(), None);
    for row in text.lines().map(fields) {
        match (row.first().map(String::as_str), row.get(1)) {
            (Some("Function Name"), Some(name)) => kernel.clone_from(name),
            (Some("Line No"), _) => {
                column = row.iter().position(|name| name.starts_with("Warp Stall Sampling (All"));
            }
            (Some(line), _) => {
                let Ok(line) = line.parse() else { continue };
                let samples = column.and_then(|column| row.get(column)?.parse().ok());
                let lines = kernels.entry(kernel.clone()).or_default();
                *lines.entry(line).or_default() += samples.unwrap_or(0.0);
            }
            (None, _) => {}
        }
    }
    kernels
}

/// Splits a line into its quoted cells; quotation marks in a cell are doubled.
fn fields(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut within) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if within && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' => within = !within,
            ',' if !within => cells.push(std::mem::take(&mut cell)),
            letter => cell.push(letter),
        }
    }
    cells.push(cell);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_by_line() {
        let text = "==PROF== Connected\n\"File Path\",\"/tmp/a.cu\"\n\"Function Name\",\"f\"\n\
                    \"Line No\",\"Source\",\"Address\",\"Source\",\"Warp Stall Sampling (All Samples)\",\"x\"\n\
                    \"2\",\"int a, b;\",\"-\",\"-\",\"7\",\"1\"\n\"\",\"\",\"0x10\",\"LDC\",\"7\",\"1\"\n\
                    \"3\",\"\",\"-\",\"-\",\"-\",\"1\"\n";
        let lines = parse_lines(text);
        assert_eq!(lines["f"], BTreeMap::from([(2, 7.0), (3, 0.0)]));
        assert_eq!(lines.len(), 1);
    }

    #[test]
    fn kernels_are_read_with_their_numbers() {
        let text = "==PROF== Connected\n\"ID\",\"Kernel Name\",\"Block Size\",\"a.sum\",\"b.sum\"\n\"\",\"\",\"\",\"ns\",\"byte\"\n\
                    the program says this\n\"0\",\"f<\"\"x\"\", 2>\",\"(256, 1, 1)\",\"1,234,567\",\"0.5\"\n\
                    \"1\",\"g\",\"(1, 1, 1)\",\"n/a\",\"7\"\n==PROF== Disconnected\n";
        let rows = parse(text).unwrap();
        assert_eq!((rows.len(), &*rows[0].name), (2, "f<\"x\", 2>"));
        assert_eq!((rows[0].values["a.sum"], rows[0].values["b.sum"]), (1_234_567.0, 0.5));
        assert_eq!((rows[1].values.get("a.sum"), rows[1].values["b.sum"]), (None, 7.0));
        assert_eq!(parse("==ERROR== none\n"), None);
    }
}
