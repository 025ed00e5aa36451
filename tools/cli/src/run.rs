// SPDX-License-Identifier: GPL-2.0

//! `cpupeek run`: programs that know /dev/cpu/N/msr and /dev/cpu/N/cpuid only.
//!
//! The program gets a /dev of its own, in which everything is what it was but for /dev/cpu: there are
//! the module's files of each CPU, which read in the same way. They are character devices, so that it
//! does not matter whether the program is static or a shell script, and what may be read is decided where it
//! always is. A user without rights becomes nobody else: his user namespace maps himself. It maps nobody else
//! either, so that in there set-user-id programs (sudo, su) are programs like others; root needs none.

use crate::{Failure, Outcome};
use clap::Args;
use rustix::fs::{openat, Mode, OFlags, CWD};
use rustix::mount::{
    mount, mount_change, move_mount, open_tree, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{unshare_unsafe, UnshareFlags};
use std::ffi::OsString;
use std::fs::{self, ReadDir};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEV: &str = "/dev";

/// The module's files, as seen from [`DEV`].
const NODES: &str = "cpupeek-cpu";

const EXIT_STATUS: &str = "\
Exit status: COMMAND's, or
  125  COMMAND was not started: no module, or namespaces are not allowed
  126  COMMAND cannot be executed
  127  there is no such COMMAND";

const NOT_STARTED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Args, Debug)]
#[command(after_help = EXIT_STATUS)]
pub struct RunArgs {
    /// Look like root to COMMAND; that gives no rights
    #[arg(long)]
    pub root: bool,

    /// What to run, and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

pub fn run(args: &RunArgs) -> Result<Outcome, Failure> {
    let (program, rest) = args.command.split_first().ok_or_else(|| {
        Failure::Usage("name a command to run, such as cpupeek run -- rdmsr 0x10".into())
    })?;
    check(&Path::new(DEV).join(NODES)).map_err(not_started)?;
    enter(args.root).map_err(not_started)?;
    make_dev().map_err(|(what, error)| not_started(failed(&what, &error)))?;

    // Only an error comes back.
    let error = Command::new(program).args(rest).exec();
    Err(not_run(Path::new(program), &error))
}

fn not_run(program: &Path, error: &io::Error) -> Failure {
    let (status, remedy) = match error.kind() {
        io::ErrorKind::NotFound => (
            NOT_FOUND,
            "install it, or what its first line names, or say where it is",
        ),
        _ => (NOT_EXECUTABLE, "name a program that you may execute"),
    };
    let program = program.display();
    let message = format!("cpupeek run: cannot run '{program}': {error}: {remedy}");
    Failure::Status(status, message)
}

fn not_started(message: String) -> Failure {
    Failure::Status(NOT_STARTED, format!("cpupeek run: {message}"))
}

/// What a system that lets users make namespaces, or use them, has.
const ALLOW: &str =
    "run as root, or allow it (sysctl user.max_user_namespaces=15000, and where it exists \
     kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0)";

/// What could not be done, and what would change that. Some systems let everybody make namespaces, and refuse
/// everything in them.
fn failed(what: &str, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => ALLOW,
        io::ErrorKind::NotFound => "load the module (modprobe cpupeek)",
        io::ErrorKind::OutOfMemory => "free some memory",
        io::ErrorKind::StorageFull => "allow more mounts (sysctl fs.mount-max)",
        _ => "try again, or run as root",
    };
    format!("cannot {what}: {error}: {remedy}")
}

/// Whether the module's files are there and may be opened, before the program fails with an error that
/// says less.
fn check(nodes: &Path) -> Result<(), String> {
    let first = fs::read_dir(nodes).ok().and_then(|mut cpus| cpus.next());
    let Some(Ok(cpu)) = first else {
        return Err(format!(
            "there is no {}: load the module (modprobe cpupeek)",
            nodes.display()
        ));
    };
    let file = cpu.path().join("msr");
    match fs::File::open(&file) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(format!(
            "you may not open {}: run as root, or become a member of the group that \
             udev/60-cpupeek.rules gives it to",
            file.display()
        )),
        // The program is told of anything else.
        _ => Ok(()),
    }
}

/// Enters a mount namespace of our own, with a user namespace if that takes one.
fn enter(as_root: bool) -> Result<(), String> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let namespaces = [
        UnshareFlags::NEWNS,
        UnshareFlags::NEWNS | UnshareFlags::NEWUSER,
    ];
    let mut error = None;
    for flags in namespaces {
        // SAFETY: This is the only thread, and no file descriptors are shared or closed.
        match unsafe { unshare_unsafe(flags) } {
            Ok(()) if flags.contains(UnshareFlags::NEWUSER) => return map(uid, gid, as_root),
            Ok(()) => return Ok(()),
            Err(errno) => error = Some(errno),
        }
    }
    let error = error.map_or_else(String::new, |error| error.to_string());
    Err(format!(
        "this system does not let you make a user namespace ({error}): {ALLOW}"
    ))
}

/// Maps the user to himself, or to a root who has no power outside.
fn map(uid: u32, gid: u32, as_root: bool) -> Result<(), String> {
    let inside = |id: u32| if as_root { 0 } else { id };
    let files = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{} {uid} 1", inside(uid))),
        ("gid_map", format!("{} {gid} 1", inside(gid))),
    ];
    files.iter().try_for_each(|(name, text)| {
        fs::write(Path::new("/proc/self").join(name), text)
            .map_err(|error| failed(&format!("write /proc/self/{name}"), &error))
    })
}

type Step<T> = Result<T, (String, io::Error)>;

/// Says in which step an error came.
fn step<T, E: Into<io::Error>>(what: impl FnOnce() -> String, result: Result<T, E>) -> Step<T> {
    result.map_err(|error| (what(), error.into()))
}

/// Puts a /dev over the old one that has all of its entries, but the module's files as /dev/cpu.
fn make_dev() -> Step<()> {
    let dev = Path::new(DEV);
    let change = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    step(|| "keep mounts to itself".into(), mount_change("/", change))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let old = step(
        || format!("open {DEV}"),
        openat(CWD, dev, flags, Mode::empty()),
    )?;
    let entries = fs::read_dir(dev).and_then(kinds);
    let entries = step(|| format!("list {DEV}"), entries)?;

    let options = MountFlags::NOSUID | MountFlags::NOEXEC;
    step(
        || format!("mount a {DEV} of its own"),
        mount("cpupeek", dev, "tmpfs", options, c"mode=0755"),
    )?;
    for (name, kind) in entries {
        if name == "cpu" {
            continue;
        }
        let path = dev.join(&name);
        let bound = match kind {
            Kind::Link(target) => step(
                || format!("link {}", path.display()),
                symlink(target, &path),
            ),
            Kind::Directory => bind(&old, Path::new(&name), &path, true),
            Kind::File => bind(&old, Path::new(&name), &path, false),
        };
        there(bound, |(_, error)| error.kind())?;
    }
    bind(&old, Path::new(NODES), &dev.join("cpu"), true)
}

/// Devices come and go: `None` for what has gone meanwhile.
fn there<T, E>(result: Result<T, E>, kind: impl Fn(&E) -> io::ErrorKind) -> Result<Option<T>, E> {
    match result {
        Ok(it) => Ok(Some(it)),
        Err(error) if kind(&error) == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

enum Kind {
    Link(PathBuf),
    Directory,
    File,
}

/// What each entry is, while it can still be seen.
fn kinds(entries: ReadDir) -> io::Result<Vec<(OsString, Kind)>> {
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type().and_then(|kind| {
            if kind.is_symlink() {
                fs::read_link(entry.path()).map(Kind::Link)
            } else if kind.is_dir() {
                Ok(Kind::Directory)
            } else {
                Ok(Kind::File)
            }
        });
        if let Some(kind) = there(kind, io::Error::kind)? {
            all.push((entry.file_name(), kind));
        }
    }
    Ok(all)
}

/// Makes `name` of the old directory appear at `path`, with what is mounted in it. If it has gone, nothing is
/// made.
fn bind(old: &OwnedFd, name: &Path, path: &Path, is_directory: bool) -> Step<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(old, name, flags);
    let tree = step(|| format!("take over {}", path.display()), tree)?;
    let place = if is_directory {
        fs::create_dir(path)
    } else {
        fs::File::create(path).map(drop)
    };
    step(|| format!("make {}", path.display()), place)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    let moved = move_mount(&tree, "", CWD, path, flags);
    step(|| format!("show {}", path.display()), moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let error = check(Path::new("/nonexistent")).expect_err("no module");
        assert!(error.contains("modprobe cpupeek"), "{error}");
    }

    #[test]
    fn failures_have_a_remedy() {
        let says = |errno| failed("mount", &io::Error::from_raw_os_error(errno));
        assert!(says(13).contains("kernel.apparmor_restrict_unprivileged_userns=0"));
        assert!(says(1).contains("run as root"));
        for errno in [2, 12, 28, 22] {
            let cause = format!("(os error {errno}): ");
            assert!(says(errno).contains(&cause), "{}", says(errno));
        }
        let program = Path::new("x");
        let says = |errno| match not_run(program, &io::Error::from_raw_os_error(errno)) {
            Failure::Status(status, message) => (status, message),
            other => (0, format!("{other:?}")),
        };
        assert!(says(2).0 == NOT_FOUND && says(2).1.contains(": install it"));
        assert!(
            says(13).0 == NOT_EXECUTABLE
                && says(13)
                    .1
                    .ends_with(": name a program that you may execute")
        );
    }

    #[test]
    fn what_has_gone_is_passed_over() {
        let directory = std::env::temp_dir().join(format!("cpupeek-dev-{}", std::process::id()));
        fs::create_dir_all(directory.join("pts")).expect("a directory");
        fs::write(directory.join("null"), "").expect("a file");
        let gone = ["gone0", "gone1", "gone2"].map(|name| directory.join(name));
        for path in gone.iter().chain([&directory.join("stays")]) {
            symlink("x", path).expect("a link");
        }
        let mut entries = fs::read_dir(&directory).expect("entries");
        // With the first one all of them are read.
        let first = entries.next().and_then(Result::ok).expect("an entry");
        for path in &gone {
            fs::remove_file(path).expect("ours");
        }
        let others = kinds(entries).expect("those that are there");
        fs::remove_dir_all(&directory).expect("ours");
        let mut names: Vec<_> = others.into_iter().map(|(name, _)| name).collect();
        names.extend(Some(first.file_name()).filter(|name| !gone.contains(&directory.join(name))));
        names.sort();
        assert_eq!(names, ["null", "pts", "stays"]);

        let gone: Step<()> = Err(("take over".into(), io::ErrorKind::NotFound.into()));
        assert!(matches!(there(gone, |(_, error)| error.kind()), Ok(None)));
        let refused: Step<()> = Err(("take over".into(), io::ErrorKind::PermissionDenied.into()));
        assert!(there(refused, |(_, error)| error.kind()).is_err());
    }
}
