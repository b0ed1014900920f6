//! The programs, and what is to be seen of each.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, ExitStatus, Output, Stdio};

use crate::host::{Host, to_the_end};

/// A program of `programs`, or this test itself.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    C(&'static str),
    Cpp,
    Python(&'static str),
    /// A script of the shell, in which `"$@"` is the C program without its arguments.
    Shell(&'static str),
    Scene(&'static str),
}

impl Program {
    /// What has to be installed for it.
    pub(crate) fn tool(self) -> &'static str {
        match self {
            Self::C(_) | Self::Shell(_) | Self::Scene(_) => "cc",
            Self::Cpp => "c++",
            Self::Python(_) => "python3",
        }
    }
}

/// How the counts of the recordings stand to those that the program printed.
#[derive(Clone, Copy)]
pub(crate) enum Counts {
    /// Equal, and every recording is complete.
    Equal,
    /// Equal, of recordings that were cut off.
    EqualAndCut,
    /// At least so many of each.
    AtLeast(u64),
    /// Perhaps none.
    AtMost,
}

/// A program and its ending.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// Of `gpuprof run`.
    pub(crate) options: &'static [&'static str],
    /// Whether a test that root runs is of another user: permissions mean nothing to root.
    pub(crate) as_user: bool,
    /// Runs the command.
    pub(crate) act: fn(&Host, &mut Command) -> Output,
    /// Prepares the folders of the case; why it cannot.
    pub(crate) prepare: fn(&mut Host) -> Result<(), String>,
    /// Undoes what `prepare` and `act` did to the folders, and what the program did to the run folder.
    pub(crate) restore: fn(&Host),
    /// The program's end without gpuprof.
    pub(crate) status: fn(ExitStatus) -> bool,
    /// The states of the manifests, sorted.
    pub(crate) states: &'static [&'static str],
    pub(crate) counts: Counts,
}

const fn case(name: &'static str, program: Program) -> Case {
    Case {
        name,
        program,
        variables: &[],
        options: &[],
        as_user: false,
        act: to_the_end,
        prepare: |_| Ok(()),
        restore: |_| {},
        status: |status| status.success(),
        states: &["finished"],
        counts: Counts::Equal,
    }
}

const fn c(name: &'static str) -> Case {
    case(name, Program::C(name))
}

/// A death that no hook sees, of a program that has let its work settle.
const fn cut(name: &'static str, status: fn(ExitStatus) -> bool) -> Case {
    Case { status, states: &["recording"], counts: Counts::EqualAndCut, ..c(name) }
}

/// More than any of the programs launches.
pub(crate) const KEEPS: &[&str] = &["--keep-last", "600s", "--on-error"];

pub(crate) const CASES: &[Case] = &[
    c("launches"),
    Case { status: |status| status.code() == Some(3), ..c("returns_three") },
    Case { states: &["idle"], ..c("never_launches") },
    Case { states: &[], ..c("never_calls_cuda") },
    c("initialises_on_many_threads"),
    c("starts_thousands_of_threads"),
    c("uses_two_contexts"),
    Case { variables: &[("FAKE_CUDA_DEVICES", "2")], ..c("uses_two_devices") },
    c("closes_a_library"),
    c("replays_a_graph"),
    c("resolves_by_address"),
    c("uses_the_runtime"),
    case("cpp_threads", Program::Cpp),
    case("rust_cudarc", Program::Scene("cudarc")),
    Case {
        states: &["yielded"],
        counts: Counts::AtMost,
        ..case("rust_records_itself", Program::Scene("records_itself"))
    },
    Case {
        status: |status| status.code() == Some(101),
        ..case("rust_panics", Program::Scene("panics"))
    },
    // Endings.
    Case { status: |status| status.code() == Some(4), ..c("calls_exit") },
    Case { status: |status| status.code() == Some(5), ..c("exits_on_a_thread") },
    Case {
        status: |status| status.code() == Some(6),
        counts: Counts::AtLeast(u64::MAX),
        ..c("ends_while_others_launch")
    },
    cut("calls_underscore_exit", |status| status.code() == Some(7)),
    cut("is_killed", |status| status.signal() == Some(9)),
    cut("is_terminated", |status| status.signal() == Some(15)),
    cut("handles_sigterm", |status| status.code() == Some(8)),
    cut("aborts", |status| status.signal() == Some(6)),
    cut("segfaults", |status| status.signal() == Some(11)),
    // With the last part in memory: a death without hooks leaves none.
    Case { options: KEEPS, ..case("last_part_is_whole", Program::C("launches")) },
    Case {
        options: KEEPS,
        ..case("last_part_of_threads", Program::C("starts_thousands_of_threads"))
    },
    Case {
        options: KEEPS,
        counts: Counts::AtLeast(u64::MAX),
        ..case("last_part_of_a_forking_program", Program::C("forks_amid_launches"))
    },
    Case {
        options: KEEPS,
        status: |status| status.signal() == Some(9),
        states: &["recording"],
        counts: Counts::AtMost,
        ..case("last_part_is_lost", Program::C("is_killed"))
    },
    // Children.
    c("forks_without_cuda"),
    Case { states: &["finished"; 4], ..c("forks_before_cuda") },
    Case { counts: Counts::AtLeast(u64::MAX), ..c("forks_amid_launches") },
    Case { states: &["finished"; 2], ..c("spawns") },
    Case {
        states: &["finished", "recording"],
        counts: Counts::EqualAndCut,
        ..c("executes_another")
    },
    Case { options: &["--wait-children"], act: with_its_children, ..c("daemonises") },
    // Python.
    case("python_ctypes", Program::Python("plain")),
    case("python_threads", Program::Python("threads")),
    Case {
        status: |status| status.code() == Some(1),
        ..case("python_raises", Program::Python("raises"))
    },
    Case {
        status: |status| status.code() == Some(9),
        ..case("python_exits", Program::Python("exits"))
    },
    Case {
        states: &["finished"; 3],
        ..case("python_subprocess", Program::Python("starts_others"))
    },
    case("python_forks_workers", Program::Python("forks_workers")),
    Case {
        states: &["finished"; 3],
        ..case("python_spawns_workers", Program::Python("spawns_workers"))
    },
    // Forked workers of Python end by `_exit`.
    Case {
        states: &["recording"; 2],
        counts: Counts::EqualAndCut,
        ..case("python_forks_server", Program::Python("forks_server"))
    },
    // Shells.
    Case {
        states: &["finished"; 2],
        ..case("shell_starts_two", Program::Shell("\"$@\" launches . && \"$@\" uses_the_runtime ."))
    },
    Case {
        states: &[],
        counts: Counts::AtMost,
        ..case(
            "shell_clears_the_environment",
            Program::Shell("env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH \"$@\" launches ."),
        )
    },
    // Files that cannot be written.
    Case {
        as_user: true,
        restore: accessible,
        states: &[],
        counts: Counts::AtMost,
        ..case(
            "folder_is_read_only",
            Program::Shell(
                "[ -z \"$GPUPROF_RUN\" ] || chmod 555 \"$GPUPROF_RUN\"; exec \"$@\" launches .",
            ),
        )
    },
    Case {
        as_user: true,
        restore: accessible,
        states: &[],
        counts: Counts::AtMost,
        ..case(
            "folder_is_closed",
            Program::Shell(
                "[ -z \"$GPUPROF_RUN\" ] || chmod 0 \"$GPUPROF_RUN\"; exec \"$@\" launches .",
            ),
        )
    },
    Case {
        restore: |host| fs::create_dir(&host.run).unwrap(),
        states: &[],
        counts: Counts::AtMost,
        ..case(
            "folder_is_removed",
            Program::Shell(
                "[ -z \"$GPUPROF_RUN\" ] || rm -r \"$GPUPROF_RUN\"; exec \"$@\" launches .",
            ),
        )
    },
    Case {
        prepare: on_a_small_disk,
        restore: keep_from_small_disk,
        states: &["failed"],
        counts: Counts::AtMost,
        ..case("disk_is_full", Program::C("fills_the_disk"))
    },
    Case { states: &[], counts: Counts::AtMost, ..c("has_few_descriptors") },
    Case { states: &["failed"], counts: Counts::AtMost, ..c("limits_files") },
    c("closes_all_descriptors"),
    Case { act: in_a_folder_that_goes, ..c("waits_for_its_input") },
];

fn accessible(host: &Host) {
    fs::set_permissions(&host.run, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Puts the run folder on a disk of 128 KiB, which takes root.
fn on_a_small_disk(host: &mut Host) -> Result<(), String> {
    let disk = host.folder.join("disk");
    fs::create_dir_all(&disk).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(&disk);
    let mounted = mount.output().map_err(|error| error.to_string())?;
    if !mounted.status.success() {
        return Err(String::from_utf8_lossy(&mounted.stderr).into_owned());
    }
    host.run = disk.join("run");
    Ok(())
}

/// Copies the run folder beside the disk, where the test reads it, and gives the disk back.
fn keep_from_small_disk(host: &Host) {
    let disk = host.run.parent().unwrap();
    let copied = Command::new("cp").arg("-r").arg(&host.run).arg(&host.folder).status().unwrap();
    let unmounted = Command::new("umount").arg(disk).status().unwrap();
    assert!(copied.success() && unmounted.success());
    fs::rename(host.folder.join("run"), &host.run).unwrap();
}

/// Waits for the output of the processes that the program left behind, too.
fn with_its_children(_: &Host, command: &mut Command) -> Output {
    // `output` reads to the end of the pipes, which all of them hold.
    command.output().unwrap()
}

/// Takes the permission to write to the run folder while the program runs, which keeps its open recording.
fn in_a_folder_that_goes(host: &Host, command: &mut Command) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut out, mut byte) = (Vec::new(), [0]);
    let pipe = child.stdout.as_mut().unwrap();
    while !out.ends_with(b"ready\n") && pipe.read(&mut byte).unwrap() == 1 {
        out.push(byte[0]);
    }
    let _ = fs::set_permissions(&host.run, fs::Permissions::from_mode(0o555));
    drop(child.stdin.take());
    let mut output = child.wait_with_output().unwrap();
    output.stdout.splice(0..0, out);
    let _ = fs::set_permissions(&host.run, fs::Permissions::from_mode(0o755));
    output
}

/// The programs that are this test itself.
pub(crate) fn play(name: &str) -> ExitCode {
    let launches = 50;
    let run = |kernel: &str| {
        fake_cuda::workload::run(kernel, launches).unwrap();
        println!("kernel {kernel} {launches}\ncopies 2");
    };
    match name {
        "cudarc" => run("of_cudarc"),
        "panics" => {
            run("of_cudarc");
            panic!("of the program");
        }
        "records_itself" => {
            let profiler = profiler_core::Profiler::builder().build().unwrap();
            let ((), profile) = profiler.record(|| run("of_itself")).unwrap();
            profile.health().assert_complete();
            assert_eq!(profile.kernels().count(), launches);
        }
        _ => panic!("{name}"),
    }
    ExitCode::SUCCESS
}
