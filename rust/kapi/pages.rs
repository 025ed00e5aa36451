// SPDX-License-Identifier: GPL-2.0

//! Pages that the module writes and user space reads.

use crate::logic::sampling::slot::Sequence;
use core::ptr::NonNull;
use kernel::{
    alloc::{
        allocator::VmallocPageIter,
        flags::{
            __GFP_NOWARN,
            __GFP_ZERO, //
        },
    },
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed,
        Release, //
    },
    transmute::AsBytes, //
};

const WORD: usize = size_of::<u64>();

#[repr(C, align(4096))]
struct Frame([u8; PAGE_SIZE]);

/// Zeroed pages on the account of the caller's cgroup, one after the other in the kernel's address
/// space. Mappings keep the pages that they show.
///
/// # Invariants
///
/// `frames` is initialised, and its memory is only accessed through atomic words.
pub(crate) struct SharedPages {
    frames: VVec<Frame>,
}

impl SharedPages {
    /// Enough pages for `size` bytes.
    pub(crate) fn new(size: usize) -> Result<Self> {
        let count = size.div_ceil(PAGE_SIZE);
        let flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
        // The allocator says how much there is, the vector's length stays 0.
        Ok(Self {
            frames: VVec::with_capacity(count, flags)?,
        })
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.frames.capacity().saturating_mul(PAGE_SIZE)
    }

    fn start(&self) -> *mut u8 {
        self.frames.as_ptr().cast_mut().cast()
    }

    /// Place of `size` bytes at `offset`, which must be a multiple of that.
    fn place(&self, offset: usize, size: usize) -> Option<*mut u8> {
        let end = offset.checked_add(size)?;
        let inside = end <= self.size() && offset % size == 0;
        // SAFETY: Within the allocation.
        inside.then(|| unsafe { self.start().add(offset) })
    }

    /// Writes `value` at `offset`; see [`Self::write_bytes`].
    pub(crate) fn write<T: AsBytes>(&self, offset: usize, value: &T) -> Result {
        self.write_bytes(offset, value.as_bytes())
    }

    /// Writes `bytes` at `offset`, in words; both are whole ones, else [`EINVAL`].
    pub(crate) fn write_bytes(&self, offset: usize, bytes: &[u8]) -> Result {
        let words = bytes.chunks_exact(WORD);
        if !words.remainder().is_empty() {
            return Err(EINVAL);
        }
        for (i, bytes) in words.enumerate() {
            let mut word = [0; WORD];
            word.copy_from_slice(bytes);
            let offset = offset.wrapping_add(i.wrapping_mul(WORD));
            let place = self.place(offset, WORD).ok_or(EINVAL)?;
            // SAFETY: The place is aligned and within memory that is initialised, lives as long as
            // this, and is only accessed through atomics by the type invariant. (User space only
            // reads it, and gets what it deserves.)
            unsafe { Atomic::from_ptr(place.cast::<u64>()) }
                .store(u64::from_ne_bytes(word), Relaxed);
        }
        Ok(())
    }

    /// The sequence count at `offset`, which nothing else is written to.
    pub(crate) fn sequence(&self, offset: usize) -> Result<PageSequence<'_>> {
        let place = self.place(offset, size_of::<u32>()).ok_or(EINVAL)?;
        // SAFETY: As in `write()`.
        Ok(PageSequence(unsafe {
            Atomic::from_ptr(place.cast::<u32>())
        }))
    }

    /// Shows the pages in a new mapping, which must be for reading only ([`EACCES`]), at offset 0 and
    /// not larger than they are ([`EINVAL`]).
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        if vma.writable() {
            return Err(EACCES);
        }
        vma.try_clear_maywrite()?;
        let size = vma.end() - vma.start();
        // SAFETY: A VMA's offset can be read.
        if size > self.size() || unsafe { (*vma.as_ptr()).vm_pgoff } != 0 {
            return Err(EINVAL);
        }
        let Some(start) = NonNull::new(self.start()) else {
            return Err(EINVAL);
        };
        vma.set_dontexpand();
        let mapping = vma.set_mixedmap();
        // SAFETY: That many bytes are there, since the size is not 0, and stay so for this call.
        let pages = unsafe { VmallocPageIter::new(start, size) };
        for (i, page) in pages.enumerate() {
            mapping.vm_insert_page(vma.start() + i * PAGE_SIZE, &page)?;
        }
        Ok(())
    }
}

/// The sequence count of a slot.
pub(crate) struct PageSequence<'a>(&'a Atomic<u32>);

impl Sequence for PageSequence<'_> {
    fn load(&self) -> u32 {
        self.0.load(Relaxed)
    }

    fn store(&self, value: u32) {
        self.0.store(value, Relaxed);
    }

    fn store_release(&self, value: u32) {
        self.0.store(value, Release);
    }

    fn fence_release(&self) {
        // SAFETY: Has no preconditions.
        unsafe { super::helpers::cpupeek_helper_smp_wmb() };
    }
}
