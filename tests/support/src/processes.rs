//! Recordings of this process as those of others: with another process id, devices and boot.

use fake_cupti::Fake;
use profiler_core::{Profiler, Recording};
use serde_json::{Value, json};

use crate::frames;

/// What a program of its own fake records. Its threads, streams, correlation ids and graph nodes
/// have the numbers that those of other fakes have.
pub fn recording(program: impl FnOnce(&Fake)) -> Recording {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    program(&fake);
    profiler.stop_recording().unwrap()
}

/// The recording with other facts about its process.
pub fn with_info(recording: &Recording, change: impl FnOnce(&mut Value)) -> Recording {
    Recording::from_bytes(&bytes_with_info(recording, change)).unwrap()
}

pub fn bytes_with_info(recording: &Recording, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut frames = frames::frames(&recording.to_bytes());
    let (kind, content) = &mut frames[0];
    assert_eq!(kind, b"INFO");
    let mut info = serde_json::from_slice(content).unwrap();
    change(&mut info);
    *content = serde_json::to_vec(&info).unwrap();
    frames::file(&frames)
}

/// The recording as that of another process.
pub fn as_process(recording: &Recording, id: u32) -> Recording {
    with_info(recording, |info| info["process_id"] = json!(id))
}

/// Makes the devices of an info those of these PCI addresses, by ordinal.
pub fn set_devices(info: &mut Value, addresses: &[&str]) {
    let first = info["devices"][0].clone();
    let device = |(id, address): (usize, &&str)| {
        let mut device = first.clone();
        (device["id"], device["pci_bus_id"]) = (json!(id), json!(address));
        device
    };
    info["devices"] = addresses.iter().enumerate().map(device).collect();
}
