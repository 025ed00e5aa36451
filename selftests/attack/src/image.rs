// SPDX-License-Identifier: GPL-2.0

//! The memory of a command, in parts that can be made to end too early.

use cpupeek_selftests::sys::{Pages, PAGE};

/// How the memory of an image ends.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Number of the part; the structure itself is part 0.
    pub part: usize,
    /// So many bytes at its end lie in the page after it.
    pub bytes: usize,
    /// What may be done with that page.
    pub prot: i32,
}

struct Part {
    pages: Pages,
    start: usize,
    len: usize,
    guard: usize,
}

/// A command's structure and what it points to, each part at the end of pages of its own. The page
/// after it cannot be used at all, so that a command that touches a byte too many fails.
pub struct Image {
    parts: Vec<Part>,
    cut: Option<Cut>,
}

impl Image {
    pub fn new(cut: Option<Cut>) -> Self {
        Self {
            parts: Vec::new(),
            cut,
        }
    }

    /// Another part, all zero. Returns its number.
    pub fn part(&mut self, len: usize) -> usize {
        let number = self.parts.len();
        let guard = len.div_ceil(PAGE).max(1);
        let over = match self.cut {
            Some(cut) if cut.part == number => cut.bytes,
            _ => 0,
        };
        assert!(over <= len);
        self.parts.push(Part {
            pages: Pages::new(guard + 1, false),
            start: guard * PAGE - len + over,
            len,
            guard,
        });
        number
    }

    /// Lengths of the parts.
    pub fn lens(&self) -> Vec<usize> {
        self.parts.iter().map(|part| part.len).collect()
    }

    pub fn address(&self, part: usize) -> usize {
        let part = &self.parts[part];
        part.pages.address(part.start)
    }

    /// What a command is given: where its structure is, or nothing if it has none.
    pub fn argument(&self) -> usize {
        match self.parts.is_empty() {
            true => 0,
            false => self.address(0),
        }
    }

    pub fn put<T: Copy>(&self, part: usize, at: usize, value: T) {
        let part = &self.parts[part];
        assert!(at + size_of::<T>() <= part.len);
        for i in 0..size_of::<T>() {
            // SAFETY: The byte is inside `value`; the structures of the UAPI have no padding.
            let byte = unsafe { (&raw const value).cast::<u8>().add(i).read() };
            part.pages.write(part.start + at + i, byte);
        }
    }

    pub fn get<T: Copy>(&self, part: usize, at: usize) -> T {
        let bytes = self.bytes(part, at, size_of::<T>());
        // SAFETY: So many bytes are there, and the structures of the UAPI are integers alone.
        unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
    }

    pub fn bytes(&self, part: usize, at: usize, len: usize) -> Vec<u8> {
        let part = &self.parts[part];
        assert!(at + len <= part.len);
        part.pages.bytes(part.start + at, len)
    }

    /// Everything is laid out: what lies behind the parts cannot be used any more.
    pub fn seal(&self) {
        for (number, part) in self.parts.iter().enumerate() {
            let prot = match self.cut {
                Some(cut) if cut.part == number => cut.prot,
                _ => libc::PROT_NONE,
            };
            part.pages.protect(part.guard, prot);
        }
    }
}
