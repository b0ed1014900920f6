//! Tests of analyses, reports and exports. They need the feature `analysis`.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

#[cfg(feature = "nsys")]
#[path = "../support/capture.rs"]
mod capture;

mod case_studies;
mod compare;
mod counted;
mod critical_path;
#[cfg(feature = "nsys")]
mod crossings;
mod diagnosis;
mod export;
mod formats;
mod frameworks;
mod html;
mod joined;
mod kernel_classes;
mod launch_shapes;
mod measure;
mod merged;
#[cfg(feature = "nsys")]
mod nsys;
#[cfg(feature = "nsys")]
mod nsys_rows;
mod numbers;
mod occupancy;
mod perfetto;
#[cfg(all(feature = "pprof", feature = "otlp", feature = "firefox"))]
mod profiles;
#[cfg(feature = "push")]
mod push;
mod pytorch;
mod ranks;
#[cfg(feature = "nsys")]
mod reports;
mod reports_live;
mod roofline;
mod same_work;
mod sampled;
mod scorecard;
#[cfg(feature = "nsys")]
mod small_captures;
mod stacks;
mod tensor_cores;
mod tracks;
mod wall;
#[cfg(feature = "nsys")]
mod whole_graphs;
