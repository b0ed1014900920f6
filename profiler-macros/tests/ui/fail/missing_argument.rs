#[nvtx::annotate(fields(missing), payload = absent_value)]
fn no_such_argument(x: u32) -> u32 {
    x
}

fn main() {
    no_such_argument(1);
}
