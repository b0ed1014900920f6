//! `gpuprof interference`: compute beside communication.

use profiler_analysis::prelude::*;

use crate::args::{InterferenceArgs, OutputFormat as _};
use crate::failure::Failure;

pub(crate) fn interference(args: &InterferenceArgs) -> Result<(), Failure> {
    let ((output, profile), format) = (args.io.open()?, args.format.get());
    let all = profile.interference();
    output.text_or_json(format.is_for_people(), |out| out.show(&all), &all)
}
