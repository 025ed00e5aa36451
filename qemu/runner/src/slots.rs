// SPDX-License-Identifier: GPL-2.0
//! No more guests at once than this host has processors: virtual CPUs that wait for each other's spinning make guests ten
//! times slower, and then it is their time limits that are tested.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::guest::Event;
use crate::host;

const POLL: Duration = Duration::from_millis(200);

/// The right to run a guest; it ends with this value, or with this process however that ends.
#[derive(Debug)]
pub struct Slot {
    _lock: File,
}

impl Slot {
    /// Waits for a slot. `CPUPEEK_GUESTS` overrides their number.
    pub fn take(events: &Receiver<Event>) -> Result<Self> {
        let count = match std::env::var("CPUPEEK_GUESTS") {
            Ok(text) => text.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                Error::new(format!(
                    "CPUPEEK_GUESTS is a number of guests, not '{text}'"
                ))
            })?,
            Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let folder = host::cache()?.join("lock");
        fs::create_dir_all(&folder).context(|| format!("make '{}'", folder.display()))?;
        let mut waited = false;
        loop {
            for n in 0..count {
                let path = folder.join(format!("guest-{n}"));
                let file = File::options()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open(&path)
                    .context(|| format!("open '{}'", path.display()))?;
                if lock(&file).context(|| format!("lock '{}'", path.display()))? {
                    return Ok(Self { _lock: file });
                }
            }
            if !waited {
                eprintln!("qemu/run: waiting, for {count} guests run on this host already (CPUPEEK_GUESTS=N allows more)");
                waited = true;
            }
            match events.recv_timeout(POLL) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return Err(Error::new("interrupted while waiting for other guests")),
            }
        }
    }
}

/// Whether the lock could be had at once.
fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: flock() takes an open descriptor and touches no memory.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        cause if cause.kind() == io::ErrorKind::WouldBlock => Ok(false),
        cause => Err(cause),
    }
}
