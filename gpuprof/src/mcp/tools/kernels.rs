//! `kernels`: kernels by class and launch shape.

use std::path::PathBuf;

use profiler_analysis::kernels::Classifier;
use profiler_base::display::Layout;
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, PageArgs, Recordings, Tool};
use crate::args::TableFormat;
use crate::failure::Failure;
use crate::kernels::KernelTables;
use crate::terminal::Text;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernels {
    /// The profile
    file: PathBuf,
    /// Only the kernels of these ranges: a name or a path, `*` for any text
    within: Option<String>,
    /// Also the classes of each range
    #[serde(default)]
    by_range: bool,
}

impl Tool for Kernels {
    const NAME: &'static str = "kernels";
    const ABOUT: &'static str = "Kernels by class (GEMM, attention, copies ...) and by launch shape: count, time, occupancy, \
                                 waves, limits. The JSON of `gpuprof kernels`.";

    fn answer(self, recordings: &mut Recordings, _: &mut PageArgs) -> Result<Answer, Failure> {
        let profile = recordings.profile(&self.file)?;
        let (within, classifier) = (self.within.as_deref(), Classifier::new());
        let tables = KernelTables::new(&self.file, &profile, within, &classifier, self.by_range)?;
        let mut bytes = Vec::new();
        let mut out = Text::new(&mut bytes, Layout::default());
        tables.write(&mut out, TableFormat::Json)?;
        out.end()?;
        let tables: Value = serde_json::from_slice(&bytes)?;
        let query = "SELECT s.value AS name, count(*) AS count, sum(k.end - k.start) AS ns FROM \
                     CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName GROUP BY 1 ORDER BY 3 DESC";
        let arguments = json!({ "file": self.file, "query": query });
        Ok(Answer::new(&self.file, &profile, &tables)?.see("sql", "single launches", arguments))
    }
}
