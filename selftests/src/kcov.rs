// SPDX-License-Identifier: GPL-2.0

//! Which of the module's code a task has run, as KCOV says (Documentation/dev-tools/kcov.rst). On
//! kernels with CONFIG_KCOV the module is built to be seen by it. Code in hard interrupts is not seen.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use crate::guest;
use crate::sys;

const FILE: &str = "/sys/kernel/debug/kcov";
const INIT_TRACE: u32 = 0x8008_6301;
const ENABLE: u32 = 0x6364;
const DISABLE: u32 = 0x6365;
const TRACE_PC: usize = 0;

/// Room for addresses, and for their number before them.
const WORDS: usize = 1 << 18;

pub fn is_there() -> bool {
    Path::new(FILE).exists()
}

/// The addresses that the calling thread comes through in the module.
pub struct Kcov {
    fd: OwnedFd,
    words: NonNull<u64>,
}

impl Kcov {
    /// Begins, for the calling thread.
    pub fn start() -> Self {
        let fd = sys::open(FILE, libc::O_RDWR).expect("root may open it");
        sys::ioctl(fd.as_raw_fd(), INIT_TRACE, WORDS).expect("KCOV_INIT_TRACE");
        // SAFETY: A new mapping at an address of the kernel's choice harms nobody.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                WORDS * size_of::<u64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        assert!(start != libc::MAP_FAILED, "mmap: {:?}", sys::last_error());
        let words = NonNull::new(start.cast()).expect("mmap returned 0");
        sys::ioctl(fd.as_raw_fd(), ENABLE, TRACE_PC).expect("KCOV_ENABLE");
        Self { fd, words }
    }

    /// Calls `f` with each address since this was last called.
    pub fn take(&mut self, mut f: impl FnMut(u64)) {
        // SAFETY: The mapping has so many words; the kernel writes them as this thread is in it.
        let word = |i: usize| unsafe { self.words.add(i) };
        // SAFETY: As above.
        let count = unsafe { word(0).read_volatile() } as usize;
        for i in 1..=count.min(WORDS - 1) {
            // SAFETY: As above.
            f(unsafe { word(i).read_volatile() });
        }
        // SAFETY: As above.
        unsafe { word(0).write_volatile(0) };
    }
}

impl Drop for Kcov {
    fn drop(&mut self) {
        let _ = sys::ioctl(self.fd.as_raw_fd(), DISABLE, 0);
        // SAFETY: The mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), WORDS * size_of::<u64>()) };
    }
}

/// The module's sections of code, with their addresses.
fn sections() -> Vec<(u64, String)> {
    let mut sections = Vec::new();
    let Ok(entries) = fs::read_dir("/sys/module/cpupeek/sections") else {
        return sections;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.contains("text") {
            continue;
        }
        let text = guest::read(entry.path()).unwrap_or_default();
        let digits = text.trim().trim_start_matches("0x");
        if let Ok(address) = u64::from_str_radix(digits, 16) {
            sections.push((address, name));
        }
    }
    sections.sort();
    sections
}

/// Addresses as places in the module's file, some to a line: "cover: .text 1a4 1c0 ...".
pub fn places(addresses: &BTreeSet<u64>) -> String {
    let sections = sections();
    let mut text = String::new();
    for (i, (start, name)) in sections.iter().enumerate() {
        let end = sections.get(i + 1).map_or(start + (1 << 20), |next| next.0);
        let here: Vec<_> = addresses.range(*start..end).collect();
        for some in here.chunks(60) {
            let _ = write!(text, "cover: {name}");
            for address in some {
                let _ = write!(text, " {:x}", *address - start);
            }
            text.push('\n');
        }
    }
    text
}

/// Where processes of a run with `CPUPEEK_COVER` set leave what they came through.
const DIRECTORY: &str = "/tmp/cover";

thread_local! {
    static OWN: RefCell<Option<Kcov>> = const { RefCell::new(None) };
}

fn is_wanted() -> bool {
    std::env::var_os("CPUPEEK_COVER").is_some() && is_there()
}

/// A process begins that is to be looked at, if that is wanted.
pub fn begin() {
    if is_wanted() {
        // What came with the fork is the parent's.
        std::mem::forget(OWN.take());
        OWN.set(Some(Kcov::start()));
    }
}

/// The process is about to end.
pub fn end() {
    let Some(mut own) = OWN.take() else {
        return;
    };
    let mut addresses = BTreeSet::new();
    own.take(|address| {
        addresses.insert(address);
    });
    drop(own);
    if fs::create_dir(DIRECTORY).is_ok() {
        sys::set_mode(DIRECTORY, 0o777);
    }
    let _ = fs::write(
        format!("{DIRECTORY}/{}", std::process::id()),
        places(&addresses),
    );
}

/// What all of them have left, each place once.
pub fn collect() -> String {
    let mut lines = BTreeSet::new();
    for entry in fs::read_dir(DIRECTORY).into_iter().flatten().flatten() {
        let text = guest::read(entry.path()).unwrap_or_default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let section = words.nth(1).unwrap_or_default().to_owned();
            lines.extend(words.map(|word| format!("cover: {section} {word}")));
        }
    }
    let lines: Vec<_> = lines.into_iter().collect();
    lines.join("\n")
}
