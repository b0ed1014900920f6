//! The end of a run on a terminal: a summary that fits 80 columns and 24 lines.

use std::cmp::Reverse;
use std::fmt;
use std::path::Path;

use profiler_analysis::diagnosis::Thresholds;
use profiler_analysis::prelude::*;
use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::table::Table;
use profiler_base::units::{percent_of_time, shortened, time};
use profiler_core::Profile;

/// The rows of each table.
const ROWS: usize = 3;

/// A profile in a few lines, with the commands that show more of it.
pub(super) struct Summary<'a> {
    pub(super) profile: &'a Profile,
    /// The path as a user gives it.
    pub(super) path: &'a Path,
}

impl Summary<'_> {
    fn ranges(&self, layout: Layout) -> String {
        let all = self.profile.totals().gpu_time();
        let mut nodes: Vec<_> = self.profile.nodes().collect();
        nodes.sort_by_key(|node| Reverse((node.inclusive().gpu_time(), node.host_time())));
        let mut table = Table::new(["range", "count", "GPU time", "share"], 1);
        for node in nodes.iter().take(ROWS) {
            let gpu_time = node.inclusive().gpu_time();
            let (count, share) = (node.instances().to_string(), percent_of_time(gpu_time, all));
            table.add_row([node.path(), count, time(gpu_time), share]);
        }
        table.render(layout)
    }

    fn kernels(&self, layout: Layout) -> String {
        let groups = self.profile.query().kernels().by_kernel();
        let all = self.profile.totals().kernel_time();
        let mut table = Table::new(["kernel", "count", "GPU time", "share"], 1);
        for group in groups.iter().take(ROWS) {
            let (count, share) = (group.count().to_string(), percent_of_time(group.time(), all));
            let name = shortened(&group.key().to_string(), layout.name_width(usize::MAX));
            table.add_row([name, count, time(group.time()), share]);
        }
        table.render(layout)
    }
}

impl DisplayOptions for Summary<'_> {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { profile, path } = self;
        let totals = profile.totals();
        // Lines that are too wide are wrapped.
        let in_lines = |text: &str, lines: usize| {
            let width = layout.width.unwrap_or(usize::MAX / lines);
            shortened(text, (width * lines).saturating_sub(8 * (lines - 1)))
        };
        writeln!(
            f,
            "{} recorded: {} of GPU work in {} kernels, {} copies and fills",
            time(profile.wall_time()),
            time(totals.gpu_time()),
            totals.kernels,
            totals.copies + totals.memsets
        )?;
        let diagnosis = profile.diagnosis(Thresholds::new()).run();
        for (verdict, lines) in diagnosis.verdicts().into_iter().zip([2, 1]) {
            writeln!(f, "{}", in_lines(&verdict.line(), lines))?;
            if let Some(cause) = verdict.cause().filter(|_| lines > 1) {
                writeln!(f, "  {}", in_lines(cause.remedy, lines))?;
            }
        }
        if profile.nodes().next().is_some() {
            writeln!(f, "\n{}", self.ranges(layout))?;
        }
        if totals.kernels != 0 {
            writeln!(f, "\n{}", self.kernels(layout))?;
        }
        match profile.health() {
            health if health.is_complete() => {
                writeln!(f, "\ncomplete: {} records", health.records)?
            }
            health => writeln!(f, "\n{}", in_lines(&health.to_string(), 2))?,
        }
        if let Some(counts) = profile.instruction_counts() {
            writeln!(f, "{}", in_lines(&counts.to_string(), 1))?;
        }
        let path = path.display();
        writeln!(f, "gpuprof diagnose {path}")?;
        write!(f, "gpuprof report {path}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::terminal::Text;

    fn shown(file: &str, width: usize) -> String {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let profile = Profile::load(file).unwrap();
        let mut out = Vec::new();
        let layout = Layout { width: Some(width), ..Layout::default() };
        let mut text = Text::new(&mut out, layout);
        text.show(&Summary { profile: &profile, path: Path::new("train-20261201.gpurun") })
            .unwrap();
        text.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn summary_fits_a_terminal() {
        let files = [
            "examples/recordings/quickstart-h200.gpuprof",
            "tests/recordings/lines/planted-h200.gpuprof",
            "tests/recordings/case-studies/loader-before.gpuprof",
            "tests/recordings/case-studies/bf16-before.gpuprof",
        ];
        for file in files {
            for width in [60, 80, 200] {
                let text = shown(file, width);
                // The program's last line and the prompt have the others.
                assert!(text.lines().count() <= 22, "{file}: {text}");
                assert!(text.ends_with("gpuprof report train-20261201.gpurun\n"), "{text}");
            }
        }
        let text = shown(files[0], 80);
        assert!(text.contains(" is copy bound"), "{text}");
        assert!(text.contains("\nbatch ") && text.contains("\nkernel "), "{text}");
        assert!(text.contains("\ncomplete: 464 records\n"), "{text}");
    }
}
