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
    has_a_remedy(text(&output.stderr));
}

/// A complaint is one line with cause and remedy, or the command line's with a hint at the help; and no colours.
#[track_caller]
fn has_a_remedy(said: &str) {
    let first = said.lines().next().unwrap_or("");
    let own = first.strip_prefix("cpupeek: ");
    match own {
        Some(own) => {
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(own.contains(": "), "no remedy: {own}");
            // The words of an errno are a cause.
            let last = own.rsplit(": ").next().unwrap_or(own);
            assert!(!last.contains("(os error "), "no remedy: {own}");
        }
        None => {
            assert!(first.starts_with("error: "), "{said}");
            assert!(said.contains("--help"), "{said}");
        }
    }
    assert!(said.ends_with('\n'), "{said}");
    assert!(
        !said.contains('\x1b') && !said.contains("panicked"),
        "{said}"
    );
}

/// rdmsr's statuses are msr-tools', however it is called.
#[test]
fn rdmsr_has_statuses_of_its_own() {
    let status = |args: &[&str]| run(args).status.code();
    for args in [
        &["rdmsr", "-q", "1"][..],
        &["--device", NO_DEVICE, "rdmsr", "-q", "1"],
        &["--device=/nonexistent", "rdmsr"],
        &["--device", "rdmsr", "rdmsr", "x"],
        &["rdmsr", "-p", "x", "1"],
        &["--device", NO_DEVICE, "rdmsr", "1"],
        &["rdmsr", "--device", "/dev/null", "1"],
    ] {
        assert_eq!(status(args), Some(127), "{args:?}");
    }
    // What is no command of that name, although the word is there.
    assert_eq!(status(&["--device", "rdmsr", "msr", "x"]), Some(2));
    assert_eq!(status(&["msr", "rdmsr"]), Some(2));
    let full = || File::options().write(true).open("/dev/full");
    for args in [&["rdmsr", "--help"][..], &["rdmsr", "--version"]] {
        let mut command = cpupeek();
        command.args(args).stdout(full().expect("/dev/full"));
        let output = command.output().expect("the command starts");
        assert_eq!(output.status.code(), Some(127), "{args:?}");
    }
    // Nobody to complain to is no success.
    let mut command = cpupeek();
    command.args(["--device", NO_DEVICE, "rdmsr", "1"]);
    let ended = command.stderr(full().expect("/dev/full")).status();
    assert_eq!(ended.expect("the command starts").code(), Some(127));
}

#[test]
fn no_time_is_endless() {
    let long = "10000000000000000000";
    refused(&["top", "--interval", long], 2, "too long");
    refused(&["show", "--watch", long], 2, "too long");
    refused(&["msr", "16", "--interval", long], 2, "too long");
    refused(&["cpuid", "0", "--interval", long], 2, "too long");
    refused(&["sample", "16", "--interval", long], 2, "too long");
}

/// It is not the caller's CPU, nor any.
#[test]
fn the_highest_number_is_no_cpu() {
    let (number, said) = ("4294967295", "there is no CPU 4294967295 on any machine");
    for args in [
        &["msr", "16", "--cpu", number][..],
        &["cpuid", "0", "--cpu", number],
        &["sample", "16", "--cpu", number],
        &["show", "--cpu", number],
        &["top", "--cpu", number],
        &["doctor", "0x802", "--cpu", number],
        &["doctor", "--cpu", "4294967296"],
    ] {
        refused(args, 2, "there is no CPU 429496729");
    }
    refused(&["doctor", "--cpu", number], 2, said);
    refused(&["doctor", "--cpu", "x"], 2, "no CPU number");
}

/// Names of the commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let list = help.split_once("Commands:\n").map_or("", |(_, list)| list);
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Goes through all commands that there are, so that a new one is not forgotten.
fn each_help(above: &[String], see: &mut dyn FnMut(&[String], &str)) {
    let mut args = above.to_vec();
    args.push("--help".into());
    let output = run(&args);
    let help = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    see(above, help);
    for name in commands(help) {
        let mut below = above.to_vec();
        below.push(name);
        each_help(&below, see);
    }
}

#[test]
fn help_fits_one_screen() {
    let mut seen = Vec::new();
    each_help(&[], &mut |command, help| {
        seen.push(command.join(" "));
        assert!(help.lines().count() <= 24, "{command:?}: {help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{command:?}: {line}");
        }
    });
    for known in ["", "msr", "allow load", "doctor", "show"] {
        assert!(seen.iter().any(|command| command == known), "{seen:?}");
    }
    let output = run(&["msr", "--help"]);
    assert!(text(&output.stdout).contains("Exit status:"));
    // Its help says what the columns are in less room than clap would.
    let help = run(&["top", "--help"]);
    let refusal = run(&["top", "--sort", "x"]);
    let columns = text(&refusal.stderr)
        .split_once("[possible values: ")
        .and_then(|(_, rest)| rest.split_once(']'));
    for column in columns.expect("they are named").0.split(", ") {
        assert!(text(&help.stdout).contains(column), "{column}");
    }
}

#[test]
fn sampling_has_one_form_of_output_and_a_time() {
    refused(&["sample"], 2, "required");
    refused(&["sample", "16", "--json", "--csv"], 2, "--csv");
    refused(&["sample", "16", "--interval", "1m"], 2, "--interval");
    refused(&["sample", "16", "--count", "0"], 2, "--count");
    refused(&["sample", "x"], 2, "'x'");
    let device = ["--device", NO_DEVICE];
    refused(&[&["sample", "16"], &device[..]].concat(), 3, NO_DEVICE);
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
    for command in [
        "cpuid",
        "show",
        "list",
        "doctor",
        "allow",
        "info",
        "completions",
    ] {
        refused(&[OsStr::new(command), bad], 2, "");
    }
    for option in ["--cpu", "--repeat", "--interval"] {
        refused(
            &[OsStr::new("msr"), OsStr::new("1"), OsStr::new(option), bad],
            2,
            "",
        );
    }
    let path = OsStr::from_bytes(b"/nonexistent/\xff");
    refused(
        &[OsStr::new("--device"), path, OsStr::new("info")],
        3,
        "modprobe cpupeek",
    );
}

#[test]
fn files_that_are_not_lists() {
    refused(
        &["allow", "check", "/nonexistent/list"],
        3,
        "name a list that you may read",
    );
    refused(
        &["allow", "check", "/proc"],
        3,
        "name a list that you may read",
    );
    let path = OsStr::from_bytes(b"/nonexistent/\xff");
    refused(
        &[OsStr::new("allow"), OsStr::new("check"), path],
        3,
        "name a list",
    );
    refused(&["allow", "load"], 2, "required");
    refused(&["allow", "forget"], 2, "'forget'");
    refused(
        &["--device", NO_DEVICE, "allow", "show"],
        3,
        "modprobe cpupeek",
    );
    refused(
        &["--device", NO_DEVICE, "allow", "refused"],
        3,
        "modprobe cpupeek",
    );
    let empty = ["--device", NO_DEVICE, "allow", "load", "-"];
    refused(&empty, 3, "modprobe cpupeek");
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
fn nobody_listens_to_long_texts() {
    for args in [
        &["list", "--all"][..],
        &["list", "--all", "--json"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["--version"],
    ] {
        let listen = |stdout: Stdio| {
            let mut command = cpupeek();
            command.args(args).stdout(stdout).stderr(Stdio::piped());
            let child = command.spawn().expect("the command starts");
            child.wait_with_output().expect("the command ends")
        };
        let output = listen(closed_pipe());
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full");
        let output = listen(full.into());
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        has_a_remedy(text(&output.stderr));
    }
}

#[test]
fn odd_terminals() {
    for (name, value) in [
        ("TERM", ""),
        ("TERM", "dumb"),
        ("TERM", "nonsense"),
        ("COLUMNS", "0"),
        ("COLUMNS", "-1"),
        ("COLUMNS", "99999999999999999999"),
        ("COLUMNS", "wide"),
        ("LC_ALL", "C"),
        ("NO_COLOR", "1"),
        ("CLICOLOR_FORCE", "1"),
    ] {
        let output = cpupeek()
            .args(["list", "--all"])
            .env(name, value)
            .output()
            .expect("the command starts");
        assert_eq!(output.status.code(), Some(0), "{name}={value}");
        assert!(!output.stdout.contains(&0x1b), "{name}={value}");
        assert!(output.stderr.is_empty(), "{name}={value}");
        let output = cpupeek()
            .args(["msr", "xyz"])
            .env(name, value)
            .output()
            .expect("the command starts");
        has_a_remedy(text(&output.stderr));
    }
}

/// What a terminal gets, as script(1) makes one.
#[test]
fn no_colours_without_being_asked_for() {
    for no_color in [None, Some("1")] {
        let mut script = Command::new("script");
        script
            .args([
                "-qec",
                concat!(env!("CARGO_BIN_EXE_cpupeek"), " msr xyz"),
                "/dev/null",
            ])
            .env("TERM", "xterm")
            .stdin(Stdio::null());
        if let Some(value) = no_color {
            script.env("NO_COLOR", value);
        }
        let Ok(output) = script.output() else {
            // Not every host has it.
            return;
        };
        assert!(text(&output.stdout).contains("'xyz'"), "{output:?}");
        assert!(!output.stdout.contains(&0x1b) || no_color.is_none());
    }
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let script = text(&output.stdout);
        for word in ["msr", "cpuid", "doctor"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    refused(&["completions", "tcl"], 2, "'tcl'");
}
