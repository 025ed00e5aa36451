// SPDX-License-Identifier: GPL-2.0

//! Where the calling thread may run, which decides what CPUs an unprivileged
//! descriptor may ask.

use std::io;
use std::marker::PhantomData;

/// A set of CPUs, as long as the kernel wants it.
type Mask = Vec<u64>;

/// The kernel's largest number of CPUs is 8192; should it grow, so do we.
const WORDS: usize = 8192 / 64;

fn affinity() -> io::Result<Mask> {
    let mut mask = vec![0u64; WORDS];
    loop {
        // SAFETY: The mask may be written, and has the length that is said.
        let ret = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                0,
                size_of_val(mask.as_slice()),
                mask.as_mut_ptr(),
            )
        };
        match usize::try_from(ret) {
            Ok(bytes) => {
                mask.truncate(bytes.div_ceil(size_of::<u64>()));
                return Ok(mask);
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.raw_os_error() != Some(libc::EINVAL) || mask.len() > 1 << 16 {
                    return Err(error);
                }
                mask.resize(mask.len().saturating_mul(2), 0);
            }
        }
    }
}

fn set_affinity(mask: &Mask) -> io::Result<()> {
    // SAFETY: The mask may be read, and has the length that is said.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of_val(mask.as_slice()),
            mask.as_ptr(),
        )
    };
    match ret {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The CPUs that the calling thread may run on.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let mask = affinity()?;
    let mut cpus = Vec::new();
    for (base, word) in (0u32..).step_by(64).zip(&mask) {
        let set = (0..u64::BITS).filter(|bit| word >> bit & 1 != 0);
        cpus.extend(set.map(|bit| base.saturating_add(bit)));
    }
    Ok(cpus)
}

/// As long as this lives, the calling thread may run on, and an unprivileged
/// descriptor ask, every CPU of the thread's cpuset.
///
/// Without CAP_SYS_RAWIO a descriptor only asks CPUs that the calling thread
/// may run on. taskset(1) and the like make those fewer than the administrator
/// has given the thread with its cpuset; this asks the kernel for all CPUs,
/// which it bounds by the cpuset. It is left to the caller to do so, because
/// the scheduler may move the thread meanwhile.
///
/// When it is dropped, the thread may run where it might before. The kernel
/// then takes that for what the thread has asked for: a CPU that the cpuset
/// gets later is not added.
#[derive(Debug)]
pub struct WidenedAffinity {
    before: Mask,
    /// It is the thread's own.
    _thread: PhantomData<*const ()>,
}

impl WidenedAffinity {
    /// Widens the calling thread's affinity to its cpuset.
    pub fn new() -> io::Result<Self> {
        let before = affinity()?;
        set_affinity(&vec![u64::MAX; before.len().max(WORDS)])?;
        Ok(WidenedAffinity {
            before,
            _thread: PhantomData,
        })
    }
}

impl Drop for WidenedAffinity {
    fn drop(&mut self) {
        // It fails if the cpuset has lost all of these CPUs; then there is
        // nothing to go back to.
        let _ = set_affinity(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_is_undone() {
        let all = allowed_cpus().expect("a mask");
        assert!(!all.is_empty());
        let first = all[0];
        let mut narrow = vec![0u64; (first / 64 + 1) as usize];
        narrow[(first / 64) as usize] = 1 << (first % 64);
        // In a thread of its own, whose affinity ends with it.
        std::thread::spawn(move || {
            set_affinity(&narrow).expect("one of our own CPUs");
            assert_eq!(allowed_cpus().expect("a mask"), [first]);
            let widened = WidenedAffinity::new().expect("never refused");
            assert!(allowed_cpus().expect("a mask").len() >= all.len());
            drop(widened);
            assert_eq!(allowed_cpus().expect("a mask"), [first]);
        })
        .join()
        .expect("no panic");
    }
}
