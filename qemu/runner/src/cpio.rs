// SPDX-License-Identifier: GPL-2.0
//! Writes the "newc" archives that the kernel unpacks as its initramfs.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use crate::error::{Error, Result};

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFCHR: u32 = 0o020_000;

/// An archive being written; directories appear before what they hold.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory and its parents.
    pub fn directory(&mut self, path: &str, mode: u32) -> Result<()> {
        let name = relative(path)?;
        self.parents(&name)?;
        if self.directories.insert(name.clone()) {
            self.entry(&name, S_IFDIR | mode, (0, 0), &[])?;
        }
        Ok(())
    }

    /// Adds a file with the permission bits `mode`.
    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) -> Result<()> {
        let name = relative(path)?;
        self.parents(&name)?;
        self.entry(&name, S_IFREG | (mode & 0o7777), (0, 0), contents)
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        let name = relative(path)?;
        self.parents(&name)?;
        // What is put below a link to a directory must not turn the link into a directory.
        self.directories.insert(name.clone());
        self.entry(&name, S_IFLNK | 0o777, (0, 0), target.as_bytes())
    }

    /// Adds a character device; without /dev/console the kernel starts init with no open files.
    pub fn character_device(&mut self, path: &str, mode: u32, device: (u32, u32)) -> Result<()> {
        let name = relative(path)?;
        self.parents(&name)?;
        self.entry(&name, S_IFCHR | mode, device, &[])
    }

    /// Adds the directories above `path`.
    pub fn parents_of(&mut self, path: &str) -> Result<()> {
        let name = relative(path)?;
        self.parents(&name)
    }

    /// Adds a whole archive, its end marker included: the kernel goes on after it.
    pub fn append_archive(&mut self, archive: &[u8]) {
        self.bytes.extend_from_slice(archive);
        self.pad();
    }

    /// Ends the archive.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.bytes)
    }

    fn parents(&mut self, name: &str) -> Result<()> {
        for (at, _) in name.match_indices('/') {
            let parent = &name[..at];
            if self.directories.insert(parent.to_owned()) {
                self.entry(parent, S_IFDIR | 0o755, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), contents: &[u8]) -> Result<()> {
        let size = u32::try_from(contents.len()).map_err(|_| {
            Error::new(format!(
                "'{name}' is larger than 4 GiB, which an initramfs cannot hold"
            ))
        })?;
        self.inode += 1;
        let links = if mode & S_IFDIR != 0 { 2 } else { 1 };
        let fields = [
            self.inode,
            mode,
            0, // uid
            0, // gid
            links,
            0, // mtime: equal inputs make equal archives
            size,
            0, // device of the file itself
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0, // checksum, unused in this format
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        while self.bytes.len() % 4 != 0 {
            self.bytes.push(0);
        }
    }
}

/// The archive's name for `path`: relative, and never outside the root folder.
fn relative(path: &str) -> Result<String> {
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(Error::new(format!(
                    "'{path}' leaves the guest's root folder; name it without '..'"
                )))
            }
        }
    }
    if parts.is_empty() {
        return Err(Error::new(format!(
            "'{path}' names no file inside the guest"
        )));
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let number = |at: usize| {
            let text = std::str::from_utf8(&bytes[at..at + 8]).unwrap();
            u32::from_str_radix(text, 16).unwrap() as usize
        };
        let (mut at, mut found) = (0, Vec::new());
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (mode, size, length) = (number(at + 14), number(at + 54), number(at + 94));
            let name = std::str::from_utf8(&bytes[at + 110..at + 110 + length - 1]).unwrap();
            let data = (at + 110 + length).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert_eq!(data, bytes.len());
                return found;
            }
            found.push((
                name.to_owned(),
                mode as u32,
                bytes[data..data + size].to_vec(),
            ));
            at = (data + size).next_multiple_of(4);
        }
    }

    #[test]
    fn parents_come_first_and_once() {
        let mut archive = Archive::new();
        archive.file("/a/b/one", 0o755, b"12345").unwrap();
        archive.file("a/b/two", 0o644, b"").unwrap();
        archive.symlink("/a/three", "b").unwrap();
        archive.parents_of("/a/three/four").unwrap();
        let found = names(&archive.finish().unwrap());
        let listed: Vec<_> = found.iter().map(|(n, m, _)| (n.as_str(), *m)).collect();
        assert_eq!(
            listed,
            [
                ("a", 0o40755),
                ("a/b", 0o40755),
                ("a/b/one", 0o100755),
                ("a/b/two", 0o100644),
                ("a/three", 0o120777),
            ]
        );
        assert_eq!(found[2].2, b"12345");
        assert_eq!(found[4].2, b"b");
    }

    #[test]
    fn nothing_leaves_the_root() {
        let mut archive = Archive::new();
        assert!(archive.file("/a/../../etc/x", 0o644, b"").is_err());
        assert!(archive.file("/", 0o644, b"").is_err());
    }
}
