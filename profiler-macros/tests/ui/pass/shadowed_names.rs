//! The expansion names what it needs from the root, so that nothing in sight can get in between.
#![allow(dead_code)]

mod nvtx {}
mod core {}
mod std {}
struct Drop;
fn drop() {}

#[::nvtx::annotate]
fn range() -> Drop {
    Drop
}

fn main() {
    range();
}
