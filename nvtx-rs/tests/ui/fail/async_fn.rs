#[nvtx::annotate]
async fn work() {}

struct Model;

impl Model {
    #[nvtx::annotate]
    pub(crate) async unsafe fn step(&self) {}
}

fn main() {
    let _ = work();
}
