// SPDX-License-Identifier: GPL-2.0
//! This side of the glass: the repository, its scripts, the tool root and the prepared kernels.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Context, Error, Result};
use crate::options::Flavour;

/// Where things are on this host.
pub struct Host {
    /// The repository.
    pub repo: PathBuf,
    /// The kernel line.
    pub line: String,
}

/// A kernel as scripts/kernel describes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its release, as `uname -r` has it.
    pub release: String,
    /// The bootable image.
    pub image: PathBuf,
    /// The directory that holds lib/modules/RELEASE, if the kernel has modules.
    pub modules: Option<PathBuf>,
}

impl Host {
    /// The repository at `repo`, made absolute.
    pub fn new(repo: &Path, line: String) -> Result<Self> {
        let repo = fs::canonicalize(repo).context(|| {
            format!(
                "find the repository '{}' (use qemu/run, which names it)",
                repo.display()
            )
        })?;
        Ok(Self { repo, line })
    }

    /// A command that runs in the tool root.
    pub fn in_root(&self) -> Command {
        let mut command = self.script("in-root");
        command.arg(&self.line).arg("--");
        command
    }

    /// One of the repository's scripts, which a signal ends although this process holds its own back.
    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(self.repo.join("scripts").join(name));
        // SAFETY: between fork and exec only sigemptyset() and sigprocmask() are called, which are safe there; the set is
        // initialised before it is used.
        unsafe {
            command.pre_exec(|| {
                let mut none = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
                Ok(())
            });
        }
        command
    }

    /// What a command in the tool root prints.
    pub fn output_in_root(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let output = self
            .in_root()
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context(|| "run scripts/in-root".to_owned())?;
        if !output.status.success() {
            return Err(Error::new(format!(
                "'{}' failed in the tool root ({})",
                arguments.join(" "),
                output.status
            )));
        }
        Ok(output.stdout)
    }

    /// Makes sure that a kernel is there.
    pub fn kernel(&self, flavour: Flavour) -> Result<Kernel> {
        let output = self
            .script("kernel")
            .arg(&self.line)
            .arg(flavour.name())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context(|| "run scripts/kernel".to_owned())?;
        if !output.status.success() {
            return Err(Error::new(format!(
                "there is no {} kernel of the line {} (see above)",
                flavour.name(),
                self.line
            )));
        }
        kernel(&String::from_utf8_lossy(&output.stdout))
    }

    /// The module built for `release`.
    pub fn module(&self, kernel: &Kernel, flavour: Flavour) -> Result<PathBuf> {
        let path = self
            .repo
            .join("build")
            .join(&kernel.release)
            .join("cpupeek.ko");
        if path.is_file() {
            return Ok(path);
        }
        Err(Error::new(format!(
            "the module is not built for {} ({} is missing): run 'make module KERNEL={} FLAVOUR={}', or give --no-module",
            kernel.release,
            path.display(),
            self.line,
            flavour.name()
        )))
    }

    /// The library that is preloaded under QEMU, built if needed: dynamic, unlike everything else here.
    pub fn machine_library(&self) -> Result<PathBuf> {
        // It uses the C library of the root that QEMU runs in.
        let target = self
            .repo
            .join("target")
            .join(format!("machine-{}", self.line));
        let manifest = self.repo.join("Cargo.toml");
        let arguments = [
            "env",
            "RUSTFLAGS=-C target-feature=-crt-static",
            "cargo",
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--package=cpupeek-machine",
            "--manifest-path",
            &manifest.to_string_lossy(),
            "--target-dir",
            &target.to_string_lossy(),
        ];
        self.output_in_root(&arguments)?;
        Ok(target.join("x86_64-unknown-linux-gnu/release/libcpupeek_machine.so"))
    }

    /// A release binary of the workspace.
    pub fn binary(&self, name: &str) -> Option<PathBuf> {
        let path = self
            .repo
            .join("target/x86_64-unknown-linux-gnu/release")
            .join(name);
        path.is_file().then_some(path)
    }
}

/// Where slow things are kept, as scripts/lib.sh has it.
pub fn cache() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(cache) = set("CPUPEEK_CACHE") {
        return Ok(cache.into());
    }
    set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .map(|base| base.join("cpupeek"))
        .ok_or_else(|| {
            Error::new("there is no HOME to keep a cache in: set CPUPEEK_CACHE to a folder")
        })
}

fn kernel(text: &str) -> Result<Kernel> {
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim_matches(['\'', '"']).to_owned())
            .filter(|value| !value.is_empty())
    };
    let needed = |name: &str| {
        field(name).ok_or_else(|| Error::new(format!("scripts/kernel printed no {name}= line")))
    };
    Ok(Kernel {
        release: needed("RELEASE")?,
        image: needed("IMAGE")?.into(),
        modules: field("MODULES").map(PathBuf::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_script_is_understood() {
        let found = kernel("RELEASE=7.2.12+x\nKDIR=/k\nIMAGE='/i mage'\nMODULES=\n").unwrap();
        assert_eq!(found.release, "7.2.12+x");
        assert_eq!(found.image, Path::new("/i mage"));
        assert_eq!(found.modules, None);
        let error = kernel("RELEASE=1\n").unwrap_err();
        assert!(error.to_string().contains("IMAGE="));
    }
}
