//! `doctor`: reports which GPU profiling this machine supports.

use std::io::Write as _;

use cupti::{Counters, Holder, Support};
use serde_json::{Map, Value, json};

use crate::args::{OutputFormat as _, TextFormat};
use crate::failure::Failure;
use crate::output::{Output, write_json};

pub(crate) fn doctor(format: TextFormat, require: bool) -> Result<(), Failure> {
    let support = cupti::support();
    Output::Standard.write_in(format.is_for_people(), |out| match format {
        TextFormat::Text => Ok(writeln!(out, "cupti-rs {}\n\n{support}", cupti::version())?),
        TextFormat::Json => write_json(out, &json(&support)),
    })?;
    match require && !support.is_ready() {
        true => Err(Failure::Gate("GPU profiling is not ready here".to_owned())),
        false => Ok(()),
    }
}

/// The report as one JSON object. Texts may change between versions. Field names, numbers and the
/// values of `holder` and `counters` are stable.
fn json(support: &Support) -> Value {
    let driver = match &support.driver {
        Ok(driver) => json!({
            "release": driver.release,
            "cuda_version": driver.cuda_version,
            "devices": driver.devices.iter().map(|device| json!({
                "id": device.id,
                "name": device.name,
                "compute_capability": device.compute_capability,
                "multiprocessors": device.multiprocessors,
                "memory_bytes": device.memory_bytes,
            })).collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    let cupti = match &support.cupti {
        Ok(cupti) => {
            let features = cupti.features.list();
            let features: Map<String, Value> =
                features.iter().map(|(name, has)| ((*name).to_owned(), (*has).into())).collect();
            json!({
                "path": cupti.path.display().to_string(),
                "version": cupti.version.0,
                "features": features,
                "warnings": cupti.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        }
        Err(error) => json!({ "error": error.to_string() }),
    };
    let (holder, holder_name) = match &support.holder {
        Holder::Nobody => ("nobody", None),
        Holder::ThisCrate => ("this program", None),
        Holder::Other(name) => ("other", name.as_deref()),
        // A newer library may add variants.
        _ => ("unknown", None),
    };
    let counters = match support.counters {
        Counters::Allowed => "allowed",
        Counters::AdministratorsOnly => "administrators only",
        _ => "unknown",
    };
    json!({
        "cupti_rs": cupti::version(),
        "ready": support.is_ready(),
        "driver": driver,
        "cupti": cupti,
        "holder": holder,
        "holder_name": holder_name,
        "counters": counters,
        "counter_ways": support.counter_ways().map(|way| json!({
            "name": way.name, "to_be_had": way.hindrance.is_none(), "hindrance": way.hindrance,
        })),
        "mapped": support.mapped.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
        "variables": support.variables,
        "advice": support.advice(),
    })
}
