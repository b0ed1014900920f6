#![deny(unused_must_use)]

fn main() {
    nvtx::range("over before the work starts");
}
