#[nvtx::annotate]
struct Model;

#[nvtx::annotate]
impl Model {}

#[nvtx::annotate]
pub const LAYERS: usize = 2;

#[nvtx::annotate]
#[allow(dead_code)]
pub(crate) mod layers {}

#[nvtx::annotate]
unsafe extern "C" {}

fn main() {}
