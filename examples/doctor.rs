//! Prints which GPU profiling this machine and process support, and how to enable the rest.
//!
//! ```text
//! cargo run --release --example doctor
//! ```

#![allow(clippy::print_stdout)] // a program, not a library

fn main() {
    println!("cupti-rs {}\n", cupti::version());
    println!("{}", cupti::support());
}
