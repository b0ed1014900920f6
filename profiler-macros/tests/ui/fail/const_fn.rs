#[nvtx::annotate]
const fn work() -> u8 {
    1
}

const ONE: u8 = work();

fn main() {
    let _ = ONE;
}
