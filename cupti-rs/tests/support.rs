//! What profiling allows, as a value and as a page; a library beside a driver and beside other libraries.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use cupti::sys::abi::CuptiResult;
use cupti::{Collector, Config, Counters, Features, Holder, Warning};
use fake_cupti::{Fake, When};

#[test]
fn a_free_cupti_is_ready() {
    let fake = Fake::new();
    let support = fake.library().unwrap().support();
    assert!(support.is_ready(), "{support}");
    assert_eq!(support.holder, Holder::Nobody);
    assert!(!fake.is_subscribed(), "the attempt is over");
    let page = support.to_string();
    for part in [
        "Fake H200: sm_90, 132 SMs, 139 GiB",
        "CUDA 13.0",
        "API 130001",
        "nobody",
        "ready      yes",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    // And it still is for a collector.
    Collector::start(&fake.library().unwrap(), &Config::new()).unwrap();
}

#[test]
fn the_holder_is_named() {
    let fake = Fake::builder().held_by("Nsight Systems").build();
    let support = fake.library().unwrap().support();
    assert_eq!(support.holder, Holder::Other(Some("Nsight Systems".into())));
    assert!(!support.is_ready());
    let page = support.to_string();
    assert!(
        page.contains("held by    Nsight Systems") && page.contains("Run without nsys"),
        "{page}"
    );
    drop(fake);

    let fake = Fake::builder().version(26).held_by("anyone").build();
    assert_eq!(fake.library().unwrap().support().holder, Holder::Other(None));
    drop(fake);

    let fake = Fake::new();
    let library = fake.library().unwrap();
    let collector = Collector::start(&library, &Config::new()).unwrap();
    let support = library.support();
    assert_eq!(support.holder, Holder::ThisCrate);
    assert!(support.to_string().contains("Stop the collector"), "{support}");
    assert!(fake.is_subscribed(), "the collector goes on");
    drop(collector);

    cupti::unsubscribe().unwrap();
    fake.fail("cuptiSubscribe", CuptiResult::NOT_INITIALIZED, When::Always);
    let support = library.support();
    assert!(matches!(&support.holder, Holder::Unknown(why) if why.contains("NOT_INITIALIZED")));
    assert!(support.to_string().contains("newer than the driver"), "{support}");
}

#[test]
fn a_cupti_that_every_start_refuses_is_not_ready() {
    let fake = Fake::builder().version(130_000).build();
    let library = fake.library().unwrap();
    let refusal = Collector::start(&library, &Config::new()).unwrap_err().to_string();
    let support = library.support();
    assert!(!support.is_ready() && support.holder == Holder::Nobody, "{support}");
    assert_eq!(support.cupti.as_ref().unwrap_err().to_string(), refusal);
    assert!(support.to_string().contains("13.0.85"), "{support}");
    drop(fake);

    let fake = Fake::builder().version(130_000).held_by("nsys").build();
    let support = fake.library().unwrap().support();
    assert!(!support.is_ready() && support.to_string().contains("Run without nsys"), "{support}");
}

#[test]
fn features_come_with_their_versions() {
    let names = |version| -> Vec<&str> {
        let fake = Fake::builder().version(version).build();
        let features = fake.library().unwrap().features();
        features.list().iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect()
    };
    assert_eq!(names(18), Vec::<&str>::new());
    let counts = [20, 21, 23, 26, 27, 130_001, 130_202, 130_301].map(|v| names(v).len());
    assert_eq!(counts, [0, 2, 2, 6, 7, 8, 9, 10]);
    assert_eq!(names(130_500).len(), Features::default().list().len());
}

#[test]
fn a_library_apart_from_its_driver_is_a_warning() {
    let warnings = |version| {
        let fake = Fake::builder().version(version).build(); // with a driver of 13.0
        fake.library().unwrap().warnings()
    };
    assert_eq!(warnings(130_001), []);
    assert!(matches!(warnings(28)[..], [Warning::OlderThanDriver { cuda_version: 13_000, .. }]));
    assert!(matches!(warnings(130_101)[..], [Warning::NewerThanDriver { .. }]));
    let text = warnings(130_101)[0].to_string();
    assert!(text.contains("13.1") && text.contains("13.0"), "{text}");
}

#[test]
fn support_page_without_a_gpu_gives_advice() {
    let support = cupti::support();
    let page = support.to_string();
    match (&support.driver, &support.cupti) {
        (Ok(_), Ok(_)) => assert!(page.contains("GPU 0"), "{page}"),
        (Err(error), Err(_)) => {
            assert!(!support.is_ready());
            // A container without the driver's libraries still shows the host's kernel module.
            let has_module = std::path::Path::new("/proc/driver/nvidia/params").exists();
            assert_eq!(support.counters == Counters::Unknown, !has_module);
            assert!(page.contains("driver     none") && page.contains("ready      no"), "{page}");
            let [advice] = &support.advice()[..] else { panic!("{page}") };
            assert_eq!(advice.to_lowercase(), format!("{}.", error.to_string().to_lowercase()));
        }
        (Ok(_), Err(_)) => assert!(page.contains("libcupti"), "{page}"),
        (Err(error), Ok(_)) => panic!("a CUPTI without a driver: {error}"),
    }
    assert_eq!(cupti::version(), env!("CARGO_PKG_VERSION"));
}
