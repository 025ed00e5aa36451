// SPDX-License-Identifier: GPL-2.0
//! The command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};

/// What `--help` prints.
pub const HELP: &str = "\
Usage: qemu/run [OPTION]... -- COMMAND [ARG]...

Boots a guest with the cpupeek module loaded and the cpupeek command in PATH, runs COMMAND in it as root, passes its
output and exit status through, and fails if the kernel complained on the console.

  --kernel stock|rt|debug  which kernel (default: stock, Debian's cloud kernel; KERNEL=LINE chooses the line)
  --accel auto|tcg|kvm     how the CPU is made: hardware KVM if it works here, emulation, or KVM (default: auto)
  --nested                 KVM nested in emulation, even where hardware KVM works
  --machine FILE           CPUs and registers as described in FILE (qemu/machines/*.toml); implies KVM
  --icount                 emulation in which the TSC counts instructions (exact costs; slow)
  --smp N                  CPUs (default: 2, or what the machine has)
  --memory MIB             memory (default: 512; debug kernel 1536)
  --copy FILE[:DEST]       puts FILE at DEST in the guest (default: /root/NAME, which is in PATH); may be repeated
  --kmod NAME              loads one of the kernel's own modules first; may be repeated
  --module-args ARGS       parameters of the cpupeek module
  --no-module              does not load the cpupeek module
  --append ARGS            more kernel command line
  --timeout S              time limit of a whole boot (default: by kernel, accelerator and CPUs)
  --expect-console REGEX   a complaint that COMMAND provokes: lines (after the time stamp) that match are no failure,
                           and none that does is one; may be repeated
  --expect-output          a COMMAND that succeeds and prints nothing fails
  --no-leak-scan           does not wait for kmemleak at the end (debug kernel)
  --image FILE             boots FILE instead of the kernel's image
  --root FILE              boots the Debian with systemd whose root folder is in FILE, a cpio archive, and runs COMMAND in
                           it when it is up; what it has of cpupeek is up to it (implies --no-module)
  --console                shows the console on standard error while it runs
  --help                   this text

Exit status: COMMAND's, or 200 wrong usage or something missing, 201 QEMU died or did not start, 202 the guest printed
nothing, 203 it died before COMMAND began (three times), 204 the module did not load, 205 panic, 206 time limit, 207 no
result, 208 the kernel complained, 209 no line matched --expect-console, 210 no output, 211 the module did not unload.
";

/// Which kernel of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Debian's cloud kernel.
    Stock,
    /// Debian's PREEMPT_RT kernel.
    Rt,
    /// Our own, full of checks.
    Debug,
}

impl Flavour {
    /// The name that scripts/kernel knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "cloud",
            Self::Rt => "rt",
            Self::Debug => "debug",
        }
    }
}

/// The accelerator that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// Hardware KVM where it works, otherwise emulation.
    Auto,
    /// Emulation.
    Tcg,
    /// Hardware KVM where it works, otherwise nested.
    Kvm,
    /// KVM nested in emulation.
    Nested,
}

/// A file for the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// On this host.
    pub from: PathBuf,
    /// In the guest.
    pub to: String,
}

/// Everything that the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// The repository.
    pub repo: PathBuf,
    /// The kernel line.
    pub line: String,
    /// `--kernel`
    pub flavour: Flavour,
    /// `--accel`, `--nested`
    pub accel: Accel,
    /// `--machine`
    pub machine: Option<PathBuf>,
    /// `--icount`
    pub icount: bool,
    /// `--smp`
    pub cpus: Option<u32>,
    /// `--memory`
    pub memory: Option<u32>,
    /// `--copy`
    pub copies: Vec<Copy>,
    /// `--kmod`
    pub kernel_modules: Vec<String>,
    /// `--module-args`
    pub module_args: String,
    /// Whether the cpupeek module is loaded.
    pub module: bool,
    /// `--append`
    pub append: String,
    /// `--timeout`
    pub timeout: Option<Duration>,
    /// `--expect-console`
    pub expected: Vec<String>,
    /// `--expect-output`
    pub output_needed: bool,
    /// Whether kmemleak is scanned.
    pub leak_scan: bool,
    /// `--image`
    pub image: Option<PathBuf>,
    /// `--root`
    pub root: Option<PathBuf>,
    /// `--console`
    pub console: bool,
    /// What runs in the guest.
    pub command: Vec<OsString>,
}

impl Options {
    /// The number of CPUs.
    pub fn cpus(&self) -> u32 {
        self.cpus.unwrap_or(2)
    }

    /// What holds where the command line says nothing.
    pub fn new(repo: PathBuf, line: String) -> Self {
        Self {
            repo,
            line,
            flavour: Flavour::Stock,
            accel: Accel::Auto,
            machine: None,
            icount: false,
            cpus: None,
            memory: None,
            copies: Vec::new(),
            kernel_modules: Vec::new(),
            module_args: String::new(),
            module: true,
            append: String::new(),
            timeout: None,
            expected: Vec::new(),
            output_needed: false,
            leak_scan: true,
            image: None,
            root: None,
            console: false,
            command: Vec::new(),
        }
    }
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Request {
    /// The text.
    Help,
    /// A run.
    Run(Box<Options>),
}

/// The time limit, scaled by what is known to be slow.
pub fn default_limit(options: &Options, nested: bool) -> Duration {
    let kernel = if options.flavour == Flavour::Debug {
        5
    } else {
        1
    };
    let accel = if nested || options.icount { 3 } else { 1 };
    Duration::from_secs(u64::from(120 + 4 * options.cpus()) * kernel * accel)
}

/// Understands the command line after `--repo DIR`, which qemu/run adds.
pub fn parse(line: String, arguments: impl IntoIterator<Item = OsString>) -> Result<Request> {
    let mut arguments = arguments.into_iter();
    let mut o = Options::new(PathBuf::new(), line);
    let mut accel = None;
    let mut nested = false;
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.to_str() else {
            return Err(unknown(&argument.to_string_lossy()));
        };
        if text == "--" {
            o.command = arguments.by_ref().collect();
            break;
        }
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
            _ => (text, None),
        };
        let mut inline = inline;
        let mut value = || {
            inline
                .take()
                .or_else(|| arguments.next())
                .ok_or_else(|| Error::new(format!("{name} needs a value (see --help)")))
        };
        match name {
            "--help" | "-h" => return Ok(Request::Help),
            "--repo" => o.repo = value()?.into(),
            "--kernel" => {
                o.flavour = match string(name, value()?)?.as_str() {
                    "stock" => Flavour::Stock,
                    "rt" => Flavour::Rt,
                    "debug" => Flavour::Debug,
                    other => return Err(choice(name, other, "stock, rt or debug")),
                }
            }
            "--accel" => {
                accel = Some(match string(name, value()?)?.as_str() {
                    "auto" => Accel::Auto,
                    "tcg" => Accel::Tcg,
                    "kvm" => Accel::Kvm,
                    other => return Err(choice(name, other, "auto, tcg or kvm")),
                })
            }
            "--nested" => nested = true,
            "--machine" => o.machine = Some(value()?.into()),
            "--icount" => o.icount = true,
            "--smp" => o.cpus = Some(number(name, value()?, 1, 255)?),
            "--memory" => o.memory = Some(number(name, value()?, 64, 1 << 20)?),
            "--copy" => o.copies.push(copy(value()?)?),
            "--kmod" => o.kernel_modules.push(string(name, value()?)?),
            "--module-args" => words(&mut o.module_args, string(name, value()?)?),
            "--no-module" => o.module = false,
            "--append" => words(&mut o.append, string(name, value()?)?),
            "--timeout" => {
                let seconds = number(name, value()?, 1, 24 * 3600)?;
                o.timeout = Some(Duration::from_secs(seconds.into()));
            }
            "--expect-console" => o.expected.push(string(name, value()?)?),
            "--expect-output" => o.output_needed = true,
            "--no-leak-scan" => o.leak_scan = false,
            "--image" => o.image = Some(value()?.into()),
            "--root" => o.root = Some(value()?.into()),
            "--console" => o.console = true,
            _ => return Err(unknown(text)),
        }
        if let Some(left) = inline {
            return Err(Error::new(format!(
                "{name} takes no value, but got '{}'",
                left.to_string_lossy()
            )));
        }
    }
    if o.command.is_empty() {
        return Err(Error::new(
            "there is no command to run: end the options with '--' and name one, for example 'qemu/run -- cpupeek info'",
        ));
    }
    if o.root.is_some() {
        if o.machine.is_some() || !o.kernel_modules.is_empty() || !o.module_args.is_empty() {
            return Err(Error::new(
                "--root cannot be combined with --machine, --kmod or --module-args: the Debian in it loads its own modules",
            ));
        }
        o.module = false;
        o.leak_scan = false;
    }
    o.accel = settle(accel, nested, &o)?;
    Ok(Request::Run(Box::new(o)))
}

fn settle(accel: Option<Accel>, nested: bool, o: &Options) -> Result<Accel> {
    let kvm_wanted = nested || o.machine.is_some();
    if o.icount && (kvm_wanted || accel == Some(Accel::Kvm)) {
        return Err(Error::new(
            "--icount counts emulated instructions and cannot be combined with KVM, --nested or --machine",
        ));
    }
    if accel == Some(Accel::Tcg) && kvm_wanted {
        return Err(Error::new(
            "--accel tcg cannot be combined with --nested or --machine, which need KVM: leave it out",
        ));
    }
    Ok(match (accel, nested) {
        (_, true) => Accel::Nested,
        (_, false) if o.icount => Accel::Tcg,
        (_, false) if o.machine.is_some() => Accel::Kvm,
        (accel, false) => accel.unwrap_or(Accel::Auto),
    })
}

fn unknown(text: &str) -> Error {
    Error::new(format!(
        "unknown option '{text}' (see --help; the command follows '--')"
    ))
}

fn choice(name: &str, got: &str, known: &str) -> Error {
    Error::new(format!("{name} is one of {known}, not '{got}'"))
}

fn string(name: &str, value: OsString) -> Result<String> {
    value.into_string().map_err(|value| {
        Error::new(format!(
            "the value of {name} is not UTF-8: '{}'",
            value.to_string_lossy()
        ))
    })
}

fn number(name: &str, value: OsString, low: u32, high: u32) -> Result<u32> {
    let text = string(name, value)?;
    text.parse()
        .ok()
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| {
            Error::new(format!(
                "{name} is a number from {low} to {high}, not '{text}'"
            ))
        })
}

fn words(all: &mut String, more: String) {
    if !all.is_empty() {
        all.push(' ');
    }
    all.push_str(&more);
}

fn copy(value: OsString) -> Result<Copy> {
    let bytes = value.as_bytes();
    let colon = bytes.iter().rposition(|b| *b == b':');
    let (from, to) = match colon.filter(|at| bytes.get(at + 1) == Some(&b'/')) {
        Some(at) => (
            PathBuf::from(std::ffi::OsStr::from_bytes(&bytes[..at])),
            String::from_utf8_lossy(&bytes[at + 1..]).into_owned(),
        ),
        None => {
            let from = PathBuf::from(&value);
            let name = from
                .file_name()
                .ok_or_else(|| {
                    Error::new(format!(
                        "--copy '{}' names no file",
                        value.to_string_lossy()
                    ))
                })?
                .to_string_lossy()
                .into_owned();
            (from, format!("/root/{name}"))
        }
    };
    Ok(Copy { from, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arguments: &[&str]) -> Result<Options> {
        let arguments = arguments.iter().map(OsString::from);
        match parse("forky".into(), arguments)? {
            Request::Run(options) => Ok(*options),
            Request::Help => panic!("help was not asked for"),
        }
    }

    #[test]
    fn everything_after_the_dashes_is_the_command() {
        let o = run(&["--smp", "4", "--timeout=9", "--", "ls", "--smp", "--", "x"]).unwrap();
        assert_eq!(o.cpus, Some(4));
        assert_eq!(o.timeout, Some(Duration::from_secs(9)));
        assert_eq!(o.command, ["ls", "--smp", "--", "x"]);
    }

    #[test]
    fn copies_have_a_place() {
        let o = run(&[
            "--copy", "a/b", "--copy", "c:/etc/d", "--copy", "e:f", "--", "x",
        ])
        .unwrap();
        let places: Vec<_> = o.copies.iter().map(|c| c.to.as_str()).collect();
        assert_eq!(places, ["/root/b", "/etc/d", "/root/e:f"]);
    }

    #[test]
    fn mistakes_get_a_sentence() {
        for (arguments, word) in [
            (&["--smp", "0", "--", "x"][..], "--smp is a number from 1"),
            (&["--smp"], "needs a value"),
            (&["--frob", "--", "x"], "unknown option '--frob'"),
            (&["--kernel", "mine", "--", "x"], "stock, rt or debug"),
            (&["--console=1", "--", "x"], "takes no value"),
            (&["--smp", "2"], "no command"),
            (&["--"], "no command"),
            (&["--root", "f", "--kmod", "msr", "--", "x"], "--root"),
            (&["--icount", "--nested", "--", "x"], "--icount"),
            (
                &["--accel", "tcg", "--machine", "m", "--", "x"],
                "--accel tcg",
            ),
        ] {
            let error = run(arguments).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_machine_means_kvm() {
        let o = run(&["--machine", "m.toml", "--", "x"]).unwrap();
        assert_eq!(o.accel, Accel::Kvm);
        assert_eq!(run(&["--icount", "--", "x"]).unwrap().accel, Accel::Tcg);
    }
}
