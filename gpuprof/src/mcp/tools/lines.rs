//! `lines`: instruction samples by kernel and source line.

use std::path::PathBuf;

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;

use super::{Answer, PageArgs, Pattern, Recordings, Tool};
use crate::failure::Failure;
use crate::lines::{Rows, samples};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lines {
    /// The profile
    file: PathBuf,
    /// Only kernels whose name matches this regular expression
    #[schemars(with = "Option<String>")]
    kernel: Option<Pattern>,
    /// Only launches in these ranges: a name or a path, `*` for any text
    range: Option<String>,
}

impl Tool for Lines {
    const NAME: &'static str = "lines";
    const ABOUT: &'static str = "What the warps of kernels wait for, by kernel and source line, from instruction samples: \
                                 record with `gpuprof run --lines`. The JSON of `gpuprof lines`.";

    fn answer(self, recordings: &mut Recordings, _: &mut PageArgs) -> Result<Answer, Failure> {
        let profile = recordings.profile(&self.file)?;
        let kernel = self.kernel.as_ref().map(|pattern| &pattern.0);
        let (counts, samples) = samples(&self.file, &profile, kernel, self.range.as_deref())?;
        Answer::new(&self.file, &profile, &Rows::new(&counts, &samples))
    }
}
