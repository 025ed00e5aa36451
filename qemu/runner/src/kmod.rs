// SPDX-License-Identifier: GPL-2.0
//! Finds the kernel's own modules and what they depend on.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::host::{Host, Kernel};
use crate::initramfs::read;

/// A kernel module, uncompressed.
#[derive(Debug)]
pub struct Module {
    /// Its file name.
    pub file: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// The modules `names` and all that they need, in the order of loading.
pub fn with_dependencies(host: &Host, kernel: &Kernel, names: &[String]) -> Result<Vec<Module>> {
    let root = kernel
        .modules
        .as_ref()
        .map(|dir| dir.join("lib/modules").join(&kernel.release))
        .ok_or_else(|| {
            Error::new(format!(
                "the kernel {} was built without loadable modules of its own",
                kernel.release
            ))
        })?;
    let mut index = HashMap::new();
    list(&root, &mut index)?;
    let mut order = Vec::new();
    for name in names {
        visit(host, kernel, &index, &normal(name), &mut order)?;
    }
    Ok(order)
}

fn visit(
    host: &Host,
    kernel: &Kernel,
    index: &HashMap<String, PathBuf>,
    name: &str,
    order: &mut Vec<Module>,
) -> Result<()> {
    let file = format!("{name}.ko");
    if order.iter().any(|module| module.file == file) {
        return Ok(());
    }
    let path = index.get(name).ok_or_else(|| {
        Error::new(format!(
            "the kernel {} has no module '{name}'",
            kernel.release
        ))
    })?;
    let bytes = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => host.output_in_root(&["xz", "-dc", &path.to_string_lossy()])?,
        Some("zst") => host.output_in_root(&["zstd", "-qdc", &path.to_string_lossy()])?,
        _ => read(path)?,
    };
    for dependency in dependencies(&bytes) {
        visit(host, kernel, index, &normal(&dependency), order)?;
    }
    order.push(Module { file, bytes });
    Ok(())
}

fn list(directory: &Path, index: &mut HashMap<String, PathBuf>) -> Result<()> {
    let what = || format!("list the kernel's modules in '{}'", directory.display());
    for entry in fs::read_dir(directory).context(what)? {
        let entry = entry.context(what)?;
        let kind = entry.file_type().context(what)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            list(&entry.path(), index)?;
        } else if let Some((stem, "" | ".xz" | ".zst")) = name.split_once(".ko") {
            index.insert(normal(stem), entry.path());
        }
    }
    Ok(())
}

/// The kernel does not tell `-` from `_` in module names.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// The `depends=` entry of a module's .modinfo section, whose entries end with NUL.
fn dependencies(bytes: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = bytes.windows(key.len()).position(|window| window == key) else {
        return Vec::new();
    };
    let value = &bytes[at + key.len()..];
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modinfo_names_dependencies() {
        let bytes = b"ELF\0license=GPL\0depends=kvm,irqbypass\0name=kvm_amd\0";
        assert_eq!(dependencies(bytes), ["kvm", "irqbypass"]);
        assert!(dependencies(b"x\0depends=\0y").is_empty());
        assert!(dependencies(b"nothing").is_empty());
        assert_eq!(normal("kvm-amd"), "kvm_amd");
    }
}
