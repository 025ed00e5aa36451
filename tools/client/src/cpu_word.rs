// SPDX-License-Identifier: GPL-2.0

//! The number of the CPU that a thread is on, without a system call.

use crate::device::Device;
use crate::error::DeviceError;
use crate::ioctl;
use crate::uapi;
use rustix::io::Errno;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of the calling thread's CPU, kept in its memory by the kernel;
/// made by [`Device::cpu_word`].
///
/// It is the thread's own, and stays in it. A thread has one at most. In a child
/// made by fork() it does not change any more.
pub struct CpuWord<'a> {
    device: &'a Device,
    word: Option<Box<AtomicU32>>,
    _of_the_thread: PhantomData<*const ()>,
}

impl Device {
    /// Has the kernel keep the number of the calling thread's CPU in memory.
    ///
    /// The module [can do that](crate::Info::has_cpu_word) only if it was loaded
    /// with `cpu_word=1`.
    pub fn cpu_word(&self) -> Result<CpuWord<'_>, DeviceError> {
        let word = Box::new(AtomicU32::new(uapi::CPUPEEK_CONST_NO_CPU));
        // SAFETY: The word stays in its box, which lasts until the kernel no
        // longer knows it, and all accesses to it are atomic.
        unsafe { ioctl::set_cpu_word(self.file(), &raw const *word) }
            .map_err(|errno| DeviceError::from_command("SET_CPU_WORD", errno))?;
        Ok(CpuWord {
            device: self,
            word: Some(word),
            _of_the_thread: PhantomData,
        })
    }
}

impl CpuWord<'_> {
    /// The number of the CPU that the thread was on an instant ago, or nothing
    /// if the kernel no longer keeps it.
    #[inline]
    pub fn get(&self) -> Option<u32> {
        match self.word.as_ref()?.load(Relaxed) {
            uapi::CPUPEEK_CONST_NO_CPU => None,
            cpu => Some(cpu),
        }
    }
}

impl fmt::Debug for CpuWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CpuWord").field(&self.get()).finish()
    }
}

impl Drop for CpuWord<'_> {
    fn drop(&mut self) {
        match ioctl::clear_cpu_word(self.device.file()) {
            // It is not this thread's in a child, and may have ended.
            Ok(()) | Err(Errno::NOENT) => {}
            // The kernel may still know the memory, which then must stay.
            Err(_) => std::mem::forget(self.word.take()),
        }
    }
}
