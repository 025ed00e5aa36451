// SPDX-License-Identifier: GPL-2.0

//! Pages that the module writes and user space reads.

use kernel::{
    alloc::flags::__GFP_ZERO,
    mm::virt::VmaNew,
    page::{
        Page,
        PAGE_SIZE, //
    },
    prelude::*,
    transmute::AsBytes, //
};

/// Zeroed pages on the account of the caller's cgroup. Mappings keep the pages that they show.
pub(crate) struct SharedPages(KVVec<Page>);

impl SharedPages {
    /// Enough pages for `size` bytes.
    pub(crate) fn new(size: usize) -> Result<Self> {
        let count = size.div_ceil(PAGE_SIZE);
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            let page = Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
            pages.push(page, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self(pages))
    }

    /// Writes `value` at `offset`. [`EINVAL`] if that is not within one page of these.
    pub(crate) fn write<T: AsBytes>(&self, offset: usize, value: &T) -> Result {
        let page = self.0.get(offset / PAGE_SIZE).ok_or(EINVAL)?;
        let bytes = value.as_bytes();
        // SAFETY: `bytes` can be read. User space may read the page at the same time, and gets what
        // it deserves; another thread in the kernel only writes it here, bytes that nobody reads
        // back.
        unsafe { page.write_raw(bytes.as_ptr(), offset % PAGE_SIZE, bytes.len()) }
    }

    /// Shows the pages in a new mapping, which must be for reading only ([`EACCES`]), at offset 0 and
    /// not larger than they are ([`EINVAL`]).
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        if vma.writable() {
            return Err(EACCES);
        }
        vma.try_clear_maywrite()?;
        let count = (vma.end() - vma.start()) / PAGE_SIZE;
        let pages = self.0.get(..count).ok_or(EINVAL)?;
        // SAFETY: A VMA's offset can be read.
        if unsafe { (*vma.as_ptr()).vm_pgoff } != 0 {
            return Err(EINVAL);
        }
        vma.set_dontexpand();
        let mapping = vma.set_mixedmap();
        for (i, page) in pages.iter().enumerate() {
            mapping.vm_insert_page(vma.start() + i * PAGE_SIZE, page)?;
        }
        Ok(())
    }
}
