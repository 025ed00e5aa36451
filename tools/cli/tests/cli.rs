// SPDX-License-Identifier: GPL-2.0

//! The command as a process, as far as it goes without the module.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

/// A path where there is certainly no device.
const NO_DEVICE: &str = "/nonexistent/cpupeek";

fn cpupeek() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpupeek"));
    command.env_remove("CPUPEEK_DEVICE").stdin(Stdio::null());
    command
}

fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    cpupeek().args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Fails with `status`, says `words` in its first line, and prints nothing.
#[track_caller]
fn refused<S: AsRef<OsStr>>(args: &[S], status: i32, words: &str) {
    let output = run(args);
    let first = text(&output.stderr).lines().next().unwrap_or("");
    assert_eq!(output.status.code(), Some(status), "{first}");
    assert!(first.contains(words), "{first}");
    assert!(output.stdout.is_empty());
}

#[test]
fn help_fits_one_screen() {
    for args in [
        &["--help"][..],
        &["info", "--help"],
        &["msr", "--help"],
        &["cpuid", "--help"],
        &["list", "--help"],
        &["show", "--help"],
    ] {
        let output = run(args);
        let help = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0));
        assert!(help.contains("Exit status:"), "{help}");
        assert!(help.lines().count() <= 24, "{help}");
        for line in help.lines() {
            assert!(line.len() <= 80, "{line}");
        }
    }
}

#[test]
fn the_version_is_the_packages() {
    let output = run(&["--version"]);
    assert_eq!(
        text(&output.stdout),
        concat!("cpupeek ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn bad_command_lines() {
    refused::<&str>(&[], 2, "requires a subcommand");
    refused(&["frobnicate"], 2, "'frobnicate'");
    refused(&["msr"], 2, "required");
    refused(&["cpuid"], 2, "required");
    refused(&["info", "extra"], 2, "'extra'");
    refused(&["msr", "xyz"], 2, "'xyz'");
    refused(&["msr", "c0000103"], 2, "in hex (0xc0000103)");
    refused(&["msr", "0x100000000"], 2, "too large");
    refused(&["msr", "16.1"], 2, "'16.1'");
    refused(&["msr", "--", "-1"], 2, "'-1'");
    refused(&["cpuid", "4."], 2, "'4.'");
    refused(&["msr", "16", "--cpu", ""], 2, "--cpu");
    refused(&["msr", "16", "--cpu", "1-"], 2, "a list such as 0-3,7");
    refused(&["msr", "16", "--cpu", "3-1"], 2, "write 1-3");
    refused(&["msr", "16", "--repeat", "0"], 2, "--repeat");
    refused(&["msr", "16", "--interval", "1x"], 2, "such as 100ms");
}

#[test]
fn arguments_that_are_not_utf8() {
    let bad = OsStr::from_bytes(b"0x1\xff");
    refused(&[OsStr::new("msr"), bad], 2, "UTF-8");
    refused(&[bad], 2, "unrecognized");
    let path = OsStr::from_bytes(b"/nonexistent/\xff");
    refused(
        &[OsStr::new("--device"), path, OsStr::new("info")],
        3,
        "modprobe cpupeek",
    );
}

/// The machine that this is built on has no module, and so no values.
#[test]
fn named_values_without_the_module() {
    refused(&["list"], 3, "modprobe cpupeek");
    refused(&["list", "--json"], 3, "modprobe cpupeek");
    refused(&["show"], 3, "modprobe cpupeek");
    refused(&["show", "tsc", "--watch"], 3, "modprobe cpupeek");
    refused(&["list", "tsc"], 2, "'tsc'");
    refused(&["show", "--watch", "tsc"], 2, "before --watch");
    refused(&["show", "--watch", "0"], 2, "1s or 100ms");
    refused(&["show", "--cpu", "x"], 2, "a list such as 0-3,7");
}

#[test]
fn the_catalogue_needs_no_module() {
    let output = run(&["list", "--all"]);
    assert_eq!(output.status.code(), Some(0));
    let list = text(&output.stdout);
    assert!(list.contains("\nfreq_khz"), "{list}");
    assert!(list.lines().all(|line| line.len() <= 80), "{list}");
    let output = run(&["list", "--all", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("\"name\": \"freq_khz\""));
}

#[test]
fn a_bad_command_line_comes_before_a_missing_device() {
    refused(&["--device", NO_DEVICE, "msr", "xyz"], 2, "'xyz'");
}

#[test]
fn missing_device() {
    for args in [
        &["info"][..],
        &["info", "--json"],
        &["msr", "0x10"],
        &["cpuid", "0", "--json"],
    ] {
        let mut all = vec!["--device", NO_DEVICE];
        all.extend(args);
        refused(&all, 3, "modprobe cpupeek");
    }
    // Also behind the subcommand.
    refused(&["info", "--device", NO_DEVICE], 3, NO_DEVICE);
}

#[test]
fn other_files_are_not_the_device() {
    for path in ["/", "/dev/null", "/proc/self/status"] {
        refused(&["--device", path, "info"], 3, "is not a cpupeek device");
    }
}

#[test]
fn the_device_may_come_from_the_environment() {
    let output = cpupeek()
        .arg("info")
        .env("CPUPEEK_DEVICE", NO_DEVICE)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains(NO_DEVICE));

    let output = cpupeek()
        .args(["--device", "/dev/null", "info"])
        .env("CPUPEEK_DEVICE", NO_DEVICE)
        .output()
        .expect("the command starts");
    assert!(text(&output.stderr).contains("/dev/null is not"));
}

#[test]
fn output_that_cannot_be_written() {
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let output = cpupeek()
        .arg("--help")
        .stdout(full)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).starts_with("cpupeek: cannot write the output: "));
}

/// The writing end of a pipe that nobody reads any more.
fn closed_pipe() -> Stdio {
    let mut reader = Command::new("true")
        .stdin(Stdio::piped())
        .spawn()
        .expect("true(1) starts");
    let pipe = reader.stdin.take().expect("it was asked for");
    reader.wait().expect("true(1) ends");
    pipe.into()
}

#[test]
fn nobody_listens() {
    let status = cpupeek()
        .args(["--device", NO_DEVICE, "info"])
        .stdout(closed_pipe())
        .stderr(closed_pipe())
        .status()
        .expect("the command starts");
    assert_eq!(status.code(), Some(3));

    let output = cpupeek()
        .arg("--help")
        .stdout(closed_pipe())
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn no_colours_are_sent_anywhere() {
    let output = run(&["msr", "xyz"]);
    assert!(!output.stderr.contains(&0x1b));
}
