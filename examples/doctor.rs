//! Says what GPU profiling this machine and process allow, and what to do about what they do not.
//!
//! ```text
//! cargo run --release --example doctor
//! ```

#![allow(clippy::print_stdout)] // a program, not a library

fn main() {
    println!("cupti-rs {}\n", cupti::version());
    println!("{}", cupti::support());
}
