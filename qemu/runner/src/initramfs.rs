// SPDX-License-Identifier: GPL-2.0
//! What the guest finds in its root folder.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cpio::Archive;
use crate::error::{Context, Error, Result};
use crate::host::{Host, Kernel};
use crate::kmod;
use crate::options::Options;
use crate::qemu::Lane;

const DIRECTORIES: &[(&str, u32)] = &[
    ("/dev", 0o755),
    ("/etc", 0o755),
    ("/home/other", 0o755),
    ("/home/user", 0o755),
    ("/proc", 0o555),
    ("/root", 0o755),
    ("/run", 0o755),
    ("/sys", 0o555),
    ("/tmp", 0o1777),
    ("/var/log", 0o755),
];

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/:/bin/false
user:x:1000:1000:user:/home/user:/bin/sh
other:x:1001:1001:other:/home/other:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
";

const GROUP: &str = "\
root:x:0:
daemon:x:1:
cpupeek:x:900:user
user:x:1000:
other:x:1001:
nogroup:x:65534:
";

/// The root folder with busybox and /init, before anything of this run.
pub fn base(host: &Host, archive: &mut Archive, init: &str) -> Result<()> {
    for (path, mode) in DIRECTORIES {
        archive.directory(path, *mode)?;
    }
    archive.character_device("/dev/console", 0o600, (5, 1))?;
    archive.character_device("/dev/null", 0o666, (1, 3))?;
    archive.file("/etc/passwd", 0o644, PASSWD.as_bytes())?;
    archive.file("/etc/group", 0o644, GROUP.as_bytes())?;
    archive.file("/etc/hosts", 0o644, b"127.0.0.1 localhost guest\n")?;
    let busybox = host.output_in_root(&["cat", "/usr/bin/busybox"])?;
    archive.file("/bin/busybox", 0o755, &busybox)?;
    for directory in ["/sbin", "/usr/bin", "/usr/sbin"] {
        archive.symlink(directory, "/bin")?;
    }
    let scripts = host.repo.join("qemu/init");
    archive.file("/lib/init-ports", 0o644, &read(&scripts.join("ports"))?)?;
    archive.file("/lib/init-common", 0o644, &read(&scripts.join("common"))?)?;
    archive.file("/init", 0o755, &read(&scripts.join(init))?)
}

/// What this run adds: the module, the command, the files to copy and the instructions for /init.
pub fn contents(
    host: &Host,
    kernel: &Kernel,
    options: &Options,
    lane: Lane,
    nonce: &str,
    archive: &mut Archive,
) -> Result<()> {
    let mut wanted = options.kernel_modules.clone();
    if options.machine.is_some() && kernel.modules.is_some() {
        // The machine is changed by writing registers.
        wanted.push("msr".to_owned());
    }
    let mut modules = Vec::new();
    if !wanted.is_empty() {
        for module in kmod::with_dependencies(host, kernel, &wanted)? {
            archive.file(&format!("/lib/kmod/{}", module.file), 0o644, &module.bytes)?;
            modules.push(module.file);
        }
    }
    if options.module {
        let module = host.module(kernel, options.flavour)?;
        archive.file("/lib/cpupeek.ko", 0o644, &read(&module)?)?;
    }
    match host.binary("cpupeek") {
        Some(binary) => archive.file("/bin/cpupeek", 0o755, &read(&binary)?)?,
        None if options.module => {
            return Err(Error::new(
                "the cpupeek command is not built: run 'make tools', or give --no-module",
            ))
        }
        None => {}
    }
    copies(options, archive)?;
    let machine = options
        .machine
        .as_deref()
        .and_then(Path::file_stem)
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    if options.machine.is_some() {
        let tool = host.repo.join("qemu/init/machine");
        archive.file("/bin/machine", 0o755, &read(&tool)?)?;
    }
    let yes = |on: bool| if on { "1" } else { "" };
    instructions(
        archive,
        "/etc",
        &[
            ("NONCE", nonce),
            (
                "MODULE",
                if options.module {
                    "/lib/cpupeek.ko"
                } else {
                    ""
                },
            ),
            ("MODULE_ARGS", &options.module_args),
            ("KERNEL_MODULES", &modules.join(" ")),
            ("LEAK_SCAN", yes(options.leak_scan)),
            ("CPUPEEK_LANE", lane.name()),
            ("CPUPEEK_FLAVOUR", options.flavour.name()),
            ("CPUPEEK_MACHINE", &machine),
        ],
        &options.command,
    )
}

/// A Debian's root folder with a service in it that runs the command, where systemd is /init.
pub fn rooted(
    host: &Host,
    root: &Path,
    options: &Options,
    nonce: &str,
    archive: &mut Archive,
) -> Result<()> {
    archive.append_archive(&read(root)?);
    copies(options, archive)?;
    let busybox = host.output_in_root(&["cat", "/usr/bin/busybox"])?;
    let place = |name: &str| format!("{ROOTED}/{name}");
    archive.file(&place("busybox"), 0o755, &busybox)?;
    let scripts = host.repo.join("qemu/init");
    for name in ["rooted", "ports"] {
        archive.file(&place(name), 0o644, &read(&scripts.join(name))?)?;
    }
    instructions(archive, ROOTED, &[("NONCE", nonce)], &options.command)?;
    let units = "/etc/systemd/system";
    let unit = format!("{units}/cpupeek-guest.service");
    archive.file(&unit, 0o644, &read(&scripts.join("rooted.service"))?)?;
    let wanted = format!("{units}/multi-user.target.wants/cpupeek-guest.service");
    archive.symlink(&wanted, &unit)
}

/// Where the service of a Debian has what it needs.
const ROOTED: &str = "/usr/lib/cpupeek-guest";

/// The files of `--copy`.
fn copies(options: &Options, archive: &mut Archive) -> Result<()> {
    for copy in &options.copies {
        let metadata = fs::metadata(&copy.from)
            .context(|| format!("read the --copy file '{}'", copy.from.display()))?;
        if metadata.is_dir() {
            return Err(Error::new(format!(
                "--copy takes files, and '{}' is a directory",
                copy.from.display()
            )));
        }
        archive.file(&copy.to, metadata.permissions().mode(), &read(&copy.from)?)?;
    }
    Ok(())
}

/// What the outer guest needs to run the inner one: KVM, QEMU and the inner guest's files.
pub fn outer(host: &Host, kernel: &Kernel, inner: &Inner<'_>, archive: &mut Archive) -> Result<()> {
    let wanted = ["irqbypass", "kvm", "kvm_amd"].map(str::to_owned);
    let mut modules = Vec::new();
    for module in kmod::with_dependencies(host, kernel, &wanted)? {
        archive.file(&format!("/lib/kmod/{}", module.file), 0o644, &module.bytes)?;
        modules.push(module.file);
    }
    for (path, file) in inner.files {
        archive.file(path, 0o755, &read(file)?)?;
    }
    instructions(
        archive,
        "/etc",
        &[
            ("KERNEL_MODULES", &modules.join(" ")),
            ("STREAMS", &inner.streams.join(" ")),
        ],
        inner.command,
    )?;
    qemu_files(host, inner.library, archive)
}

/// The inner guest as its outer guest sees it.
pub struct Inner<'a> {
    /// Where each file goes, and where it is on this host.
    pub files: &'a [(&'a str, PathBuf)],
    /// The streams that are passed on to the runner.
    pub streams: &'a [&'a str],
    /// What is preloaded under QEMU, by its path on this host.
    pub library: Option<&'a Path>,
    /// The inner QEMU's command line.
    pub command: &'a [OsString],
}

/// Adds the tool root's QEMU, the libraries that it needs and the firmware that the `pc` machine loads.
fn qemu_files(host: &Host, library: Option<&Path>, archive: &mut Archive) -> Result<()> {
    let script = "{ echo /usr/bin/qemu-system-x86_64 $1; ldd /usr/bin/qemu-system-x86_64 $1; } | grep -o '/[^ :]*' | sort -u; \
        for rom in bios-256k kvmvapic linuxboot_dma; do \
            ls /usr/share/seabios/$rom.bin /usr/share/qemu/$rom.bin 2>/dev/null; \
        done; true";
    let library = library.map(|path| path.to_string_lossy().into_owned());
    let library = library.as_deref().unwrap_or_default();
    let list = host.output_in_root(&["sh", "-c", script, "sh", library])?;
    let list = String::from_utf8_lossy(&list).into_owned();
    for path in list.lines() {
        archive.parents_of(path)?;
    }
    // Dereferenced: libraries are symbolic links to their versions.
    let script = "printf %s \"$1\" | cpio --quiet -oL -H newc";
    let files = host.output_in_root(&["sh", "-c", script, "sh", &list])?;
    archive.append_archive(&files);
    Ok(())
}

fn instructions(
    archive: &mut Archive,
    directory: &str,
    settings: &[(&str, &str)],
    command: &[OsString],
) -> Result<()> {
    let mut script = Vec::new();
    for (name, value) in settings {
        script.extend_from_slice(name.as_bytes());
        script.push(b'=');
        quote(OsStr::new(value), &mut script);
        script.push(b'\n');
    }
    archive.file(&format!("{directory}/run.env"), 0o644, &script)?;
    let mut script = b"exec".to_vec();
    for word in command {
        script.push(b' ');
        quote(word, &mut script);
    }
    script.push(b'\n');
    archive.file(&format!("{directory}/run.command"), 0o644, &script)
}

/// Reads a file that must be there.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).context(|| format!("read '{}'", path.display()))
}

/// Quotes one word for a shell.
fn quote(word: &OsStr, out: &mut Vec<u8>) {
    out.push(b'\'');
    for byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend_from_slice(b"'\\''"),
            _ => out.push(*byte),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for word in [
            "plain",
            "two words",
            "it's",
            "$HOME `x` \"y\" \\",
            "",
            "*\n?",
        ] {
            let mut script = b"printf %s ".to_vec();
            quote(OsStr::new(word), &mut script);
            let output = std::process::Command::new("sh")
                .arg("-c")
                .arg(OsStr::from_bytes(&script))
                .output()
                .unwrap();
            assert_eq!(output.stdout, word.as_bytes());
        }
    }
}
