// SPDX-License-Identifier: GPL-2.0

//! Many operations from user space, and their answers to user space, without a call for each.
//!
//! The bounds of user memory are checked here; a fault is [`EFAULT`].

use super::{
    errno::to_result,
    helpers,
    uapi::{
        Op,
        OpResult, //
    },
};
use kernel::{
    prelude::*,
    uaccess::UserPtr, //
};

/// Reads operations that are `stride` bytes apart, each byte once.
pub(crate) fn fetch(from: UserPtr, stride: usize, to: &mut [Op]) -> Result {
    // SAFETY: `to` can be written, and its type is bindgen's for the same structure.
    to_result(unsafe {
        helpers::cpupeek_helper_get_ops(
            to.as_mut_ptr().cast(),
            from.as_const_ptr(),
            to.len(),
            stride,
        )
    })
}

/// Writes the answers in `ops` to operations that are `stride` bytes apart, each to the one with the
/// number in its `reserved`, of `count`.
pub(crate) fn store_answers(to: UserPtr, stride: usize, count: usize, ops: &[Op]) -> Result {
    let size = count.checked_mul(stride).ok_or(EFAULT)?;
    // SAFETY: `ops` can be read, and their type is bindgen's for the same structure.
    to_result(unsafe {
        helpers::cpupeek_helper_put_answers(
            to.as_mut_ptr(),
            size,
            stride,
            ops.as_ptr().cast(),
            ops.len(),
        )
    })
}

/// Writes the answer to a single operation, and which CPU it was.
pub(crate) fn store_answer(to: UserPtr, op: &Op) -> Result {
    // SAFETY: `op` can be read, and its type is bindgen's for the same structure.
    to_result(unsafe {
        helpers::cpupeek_helper_put_op(to.as_mut_ptr().cast(), core::ptr::from_ref(op).cast())
    })
}

/// Writes the answers in `ops` as results, each to the one with the number in its `reserved`, of
/// `count`.
pub(crate) fn store_results(to: UserPtr, count: usize, ops: &[Op]) -> Result {
    let size = count.checked_mul(size_of::<OpResult>()).ok_or(EFAULT)?;
    // SAFETY: `ops` can be read, and their type is bindgen's for the same structure.
    to_result(unsafe {
        helpers::cpupeek_helper_put_results(
            to.as_mut_ptr().cast(),
            size,
            ops.as_ptr().cast(),
            ops.len(),
        )
    })
}

/// Stores a number at an address of the calling task's, in one store. [`EFAULT`] if that fails.
pub(crate) fn put_u32(to: UserPtr, value: u32) -> Result {
    // SAFETY: The function checks the address, and process context may fault.
    let ret = unsafe { helpers::cpupeek_helper_put_u32(value, to.as_mut_ptr().cast()) };
    to_result(ret)
}
