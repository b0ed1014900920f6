//! The kernels and dimensions in findings on matrix products.

use std::fmt;
use std::time::Duration;

use profiler_base::statistics::as_ns;
use profiler_base::units::{NAME_WIDTH, PATH_WIDTH, shortened, time};
use serde::Serialize;

/// A kernel of a finding on matrix products.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct GemmKernel {
    /// Its name, without parameters.
    pub(crate) name: String,
    /// Number of launches.
    pub(crate) launches: u64,
    /// Its time on the clock.
    #[serde(rename = "cost_ns", serialize_with = "as_ns")]
    pub(crate) cost: Duration,
    /// The compute capability in its name, if any.
    pub(crate) architecture: Option<(u32, u32)>,
    /// The compute capability of its device.
    pub(crate) device: (u32, u32),
    /// The elements per operand load, from names of CUTLASS kernels (`align1`).
    pub(crate) alignment: Option<u32>,
}

impl fmt::Display for GemmKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { launches, architecture, device: (major, minor), alignment, .. } = self;
        let cost = time(self.cost);
        write!(f, "{cost}, {launches} launches: {}", shortened(&self.name, NAME_WIDTH + 20))?;
        match alignment {
            Some(1) => f.write_str(": loads single numbers")?,
            Some(elements) => write!(f, ": loads {elements} numbers at once")?,
            None => {}
        }
        match architecture {
            Some(of) if of.0 != *major => {
                write!(f, ", sm_{}{} by its name (the GPU is sm_{major}{minor})", of.0, of.1)
            }
            _ => Ok(()),
        }
    }
}

/// A declared dimension of a matrix product that is not a multiple of 16 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Padding {
    /// The path of the range that declares it.
    pub(crate) path: String,
    /// `m`, `n` or `k`.
    pub(crate) dimension: &'static str,
    /// The declared size.
    pub(crate) size: u64,
    /// The numbers in 16 bytes.
    pub(crate) multiple: u64,
    /// The next multiple.
    pub(crate) padded: u64,
}

impl fmt::Display for Padding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dimension, size, multiple, padded, .. } = self;
        let path = shortened(&self.path, PATH_WIDTH);
        write!(f, "in {path}: {dimension} is {size}; pad it to {padded}, a multiple of {multiple}")
    }
}
