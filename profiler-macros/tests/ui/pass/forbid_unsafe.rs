#![forbid(unsafe_code)]
#![deny(warnings)]

#[nvtx::annotate]
fn work(x: u8) -> u8 {
    x
}

fn main() {
    assert_eq!(work(1), 1);
}
