#![deny(warnings)]

#[nvtx::annotate]
fn leave() -> ! {
    std::process::exit(0)
}

fn main() {
    leave();
}
