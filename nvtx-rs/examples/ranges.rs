//! Ranges by hand and by attribute. A tool shows them on its timeline:
//!
//! ```text
//! nsys profile --trace=nvtx target/debug/examples/ranges
//! ```
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::thread;
use std::time::Duration;

#[cfg_attr(feature = "macros", nvtx::annotate)]
fn forward(layers: u64) {
    for layer in 0..layers {
        let _layer = nvtx::range(&format!("layer {layer}"));
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg_attr(feature = "macros", nvtx::annotate(name = "backward pass"))]
fn backward() {
    thread::sleep(Duration::from_millis(1));
}

fn main() {
    let training = nvtx::range("training");
    for _ in 0..3 {
        let _step = nvtx::range("step");
        forward(2);
        backward();
    }
    drop(training);

    match nvtx::attach_error() {
        Some(error) => println!("{error}"),
        None if nvtx::is_attached() => println!("the ranges went to the tool"),
        None => println!("no tool is attached; run it under `nsys profile --trace=nvtx`"),
    }
}
