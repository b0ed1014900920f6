//! A library with this crate in it that is closed: CUPTI keeps the functions that it was given, so they have to stay.
#![allow(clippy::unwrap_used)] // tests

use std::env;
use std::ffi::c_int;
use std::fs;
use std::path::PathBuf;

use libloading::Library;

const FILE: &str = "libplugin.so";

/// `plugin/lib.rs`, built as an example: tests lie in `deps` of a profile's folder, and examples in `examples`.
fn plugin() -> PathBuf {
    let own = env::current_exe().unwrap();
    let path = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(FILE);
    assert!(
        path.exists(),
        "{} is missing: cargo build -p cupti-rs --example plugin",
        path.display()
    );
    path
}

fn is_mapped() -> bool {
    fs::read_to_string("/proc/self/maps").unwrap().contains(FILE)
}

fn open() -> Library {
    // SAFETY: the initialisers of a Rust library may run in any process.
    unsafe { Library::new(plugin()) }.unwrap()
}

#[test]
fn closed_library_remains_mapped_after_a_collection() {
    open().close().unwrap();
    assert!(!is_mapped(), "the control: one that did not collect goes");
    let library = open();
    // SAFETY: the library has a function of this name and type.
    let collect = *unsafe { library.get::<extern "C" fn() -> c_int>("collect") }.unwrap();
    // The locals of a thread keep a library mapped as well, until they end with it.
    assert_eq!(std::thread::spawn(move || collect()).join().unwrap(), 1);
    library.close().unwrap();
    assert!(is_mapped());
}
