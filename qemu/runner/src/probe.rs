// SPDX-License-Identifier: GPL-2.0
//! Whether /dev/kvm can run a guest. That it opens proves nothing: some hosts create virtual machines that then cannot
//! execute a kernel, so a guest is booted once and the answer is remembered.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::host::{self, Host, Kernel};
use crate::options::{Accel, Flavour, Options};
use crate::outcome::Outcome;
use crate::qemu::Lane;
use crate::run::{Events, Run};

/// A guest on working KVM is up in two or three seconds, even on a busy host.
const LIMIT: Duration = Duration::from_secs(20);

/// Whether a real guest boots on this host's KVM.
pub fn kvm_works(host: &Host, directory: &Path, events: Events<'_>) -> Result<bool> {
    let device = Path::new("/dev/kvm");
    if File::options().read(true).write(true).open(device).is_err() {
        return Ok(false);
    }
    let kernel = host.kernel(Flavour::Stock)?;
    let remembered = host::cache()?.join("kvm").join(key(host, &kernel)?);
    if let Ok(answer) = fs::read_to_string(&remembered) {
        return Ok(answer.starts_with("yes"));
    }
    eprintln!(
        "qemu/run: trying this host's KVM with a guest (once, at most {} s)",
        LIMIT.as_secs()
    );
    let outcome = boot(host, &kernel, directory, events)?;
    let works = outcome == Outcome::Finished(0);
    if let Outcome::Interrupted(_) = outcome {
        return Err(Error::new("interrupted while trying this host's KVM"));
    }
    eprintln!(
        "qemu/run: this host's KVM {} ({outcome}); remembered in {}",
        if works { "works" } else { "cannot run a guest" },
        remembered.display()
    );
    remember(
        &remembered,
        &format!("{} {outcome}\n", if works { "yes" } else { "no" }),
    )?;
    Ok(works)
}

fn boot(host: &Host, kernel: &Kernel, directory: &Path, events: Events<'_>) -> Result<Outcome> {
    let directory = directory.join("kvm-probe");
    fs::create_dir_all(&directory).context(|| format!("make '{}'", directory.display()))?;
    let options = Options {
        accel: Accel::Kvm,
        module: false,
        timeout: Some(LIMIT),
        command: vec!["true".into()],
        ..Options::new(host.repo.clone(), host.line.clone())
    };
    let run = Run {
        options: &options,
        host,
        kernel,
        lane: Lane::Kvm,
        machine: None,
        directory: &directory,
    };
    Ok(run.until_it_counts(events)?.outcome)
}

/// What the answer depends on: the host's kernel and CPU, QEMU and the guest's kernel.
fn key(host: &Host, kernel: &Kernel) -> Result<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let cpu: Vec<_> = cpuinfo
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| {
            ["model name", "stepping", "microcode", "flags"]
                .iter()
                .any(|k| line.starts_with(k))
        })
        .collect();
    let qemu = host.output_in_root(&["qemu-system-x86_64", "--version"])?;
    let text = format!(
        "{}{}{}{}",
        read("/proc/sys/kernel/osrelease"),
        cpu.join("\n"),
        String::from_utf8_lossy(&qemu),
        kernel.release
    );
    Ok(format!("{:016x}", fnv1a(text.as_bytes())))
}

/// Stable over versions of Rust, unlike the standard library's hashes.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Written beside and renamed: an interrupted run leaves no half answer.
fn remember(path: &Path, answer: &str) -> Result<()> {
    let what = || format!("remember the answer in '{}'", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).context(what)?;
    }
    let partial = path.with_extension(std::process::id().to_string());
    fs::write(&partial, answer).context(what)?;
    fs::rename(&partial, path).context(what)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(super::fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fnv1a(b"foobar"), 0x85944171f73967e8);
    }
}
