mod gpu {}

#[nvtx::annotate(crate = gpu)]
fn work() {}

fn main() {
    work();
}
