// SPDX-License-Identifier: GPL-2.0

//! Memory that the module writes and this process only reads.

use crate::slot_reader::{try_read, Sequence};
use crate::uapi;
use rustix::io;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU32, Ordering};

/// A mapping of a whole sampler. Everything in it is loaded atomically, in words.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: The memory is only loaded from, atomically.
unsafe impl Send for Mapping {}
// SAFETY: As above.
unsafe impl Sync for Mapping {}

struct Count<'a>(&'a AtomicU32);

impl Sequence for Count<'_> {
    fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn load_acquire(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn fence_acquire(&self) {
        fence(Ordering::Acquire);
    }
}

impl Mapping {
    pub(crate) fn new(fd: &impl AsFd, size: usize) -> io::Result<Self> {
        // SAFETY: A new mapping at an address of the kernel's choice harms nobody.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::Errno::FAULT)?;
        Ok(Self { start, size })
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Loads the values of a slot's results, the first of which is at an offset. Returns the first
    /// status that is not 0, if one of them is not.
    pub(crate) fn read_results(&self, slot: usize, first: usize, values: &mut [u64]) -> i32 {
        const SIZE: usize = size_of::<uapi::cpupeek_result>();
        let end = values
            .len()
            .checked_mul(SIZE)
            .and_then(|size| size.checked_add(first));
        let inside = end.is_some_and(|end| end <= self.size) && first % 8 == 0;
        let (Some(count), true) = (self.half(slot), inside) else {
            return io::Errno::NODATA.raw_os_error().wrapping_neg();
        };
        let mut copy = || {
            let mut refused = 0;
            for (i, value) in values.iter_mut().enumerate() {
                // SAFETY: All of them are inside the mapping, and aligned.
                let (status, loaded) = unsafe {
                    let result = self.start.as_ptr().add(first).add(i.wrapping_mul(SIZE));
                    (load(result), load(result.add(16)))
                };
                *value = loaded;
                if refused == 0 {
                    refused = status as u32 as i32;
                }
            }
            refused
        };
        loop {
            if let Some(refused) = try_read(&Count(count), &mut copy) {
                return refused;
            }
            std::hint::spin_loop();
        }
    }

    fn half(&self, offset: usize) -> Option<&AtomicU32> {
        let inside = offset.checked_add(4)? <= self.size && offset % 4 == 0;
        // SAFETY: Aligned and inside the mapping, which lives as long as the borrow and is not
        // written through this.
        inside.then(|| unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    /// The word at an offset; in halves where the CPU has no longer ones, which the sequence count
    /// makes up for.
    pub(crate) fn word(&self, offset: usize) -> Option<u64> {
        let inside = offset.checked_add(8)? <= self.size && offset % 8 == 0;
        // SAFETY: Aligned and inside the mapping.
        inside.then(|| unsafe { load(self.start.as_ptr().add(offset)) })
    }

    /// The mapping's beginning, which never changes. Nothing if it is not as long as we know it.
    pub(crate) fn map(&self) -> Option<uapi::cpupeek_map> {
        let known = self.half(0)?.load(Ordering::Relaxed) as usize;
        if known < size_of::<uapi::cpupeek_map>() || self.size < known {
            return None;
        }
        // SAFETY: Inside the mapping, of which this part does not change; any bits are a value.
        Some(unsafe { self.start.cast().read() })
    }

    /// Copies the words of a slot at an offset; all 0 if it is not inside.
    pub(crate) fn read(&self, offset: usize, words: &mut [u64]) {
        let end = words
            .len()
            .checked_mul(8)
            .and_then(|size| size.checked_add(offset));
        let inside = end.is_some_and(|end| end <= self.size) && offset % 8 == 0;
        let (Some(count), true) = (self.half(offset), inside) else {
            words.fill(0);
            return;
        };
        let mut copy = || {
            for (i, word) in words.iter_mut().enumerate() {
                // SAFETY: All of them are inside the mapping, and aligned.
                *word = unsafe { load(self.start.as_ptr().add(offset).add(i.wrapping_mul(8))) };
            }
        };
        while try_read(&Count(count), &mut copy).is_none() {
            std::hint::spin_loop();
        }
    }

    /// Two words of the slot at an offset, of one sample; 0 for what is not inside.
    pub(crate) fn read_two(&self, slot: usize, one: usize, other: usize) -> [u64; 2] {
        let Some(count) = self.half(slot) else {
            return [0; 2];
        };
        let load = || [one, other].map(|offset| self.word(offset).unwrap_or(0));
        loop {
            if let Some(words) = try_read(&Count(count), load) {
                return words;
            }
            std::hint::spin_loop();
        }
    }
}

/// # Safety
///
/// `place` is aligned, and 8 bytes there can be read atomically.
unsafe fn load(place: *mut u8) -> u64 {
    #[cfg(target_pointer_width = "64")]
    {
        use std::sync::atomic::AtomicU64;
        // SAFETY: As the caller promises.
        unsafe { AtomicU64::from_ptr(place.cast()) }.load(Ordering::Relaxed)
    }
    #[cfg(not(target_pointer_width = "64"))]
    {
        let half = |offset| {
            // SAFETY: As the caller promises.
            let half = unsafe { AtomicU32::from_ptr(place.add(offset).cast()) };
            u64::from(half.load(Ordering::Relaxed))
        };
        half(4) << 32 | half(0)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: The mapping is ours, and nothing refers to it any more. It cannot fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}
