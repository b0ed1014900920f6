#[nvtx::annotate(fields(missing), payload = gone)]
fn no_such_argument(x: u32) -> u32 {
    x
}

fn main() {
    no_such_argument(1);
}
