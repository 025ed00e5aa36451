// SPDX-License-Identifier: GPL-2.0

//! Structures from and to user space; see "General ioctl format" in the UAPI header.

use crate::kapi::{
    uapi::Op,
    user_ops, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceReader, //
    },
};
use pin_init::Zeroable;

/// Copies in a structure that says its own size, which may be larger than that of the command.
pub(super) fn fetch_sized<T: FromBytes + AsBytes + Zeroable>(
    arg: UserPtr,
    size: usize,
    said: fn(&T) -> u32,
) -> Result<T> {
    let value = fetch(arg, size)?;
    let said = said(&value) as usize;
    if said < size_of::<T>() {
        return Err(EINVAL);
    }
    if said > size {
        if said > PAGE_SIZE {
            return Err(E2BIG);
        }
        let rest = UserSlice::new(arg.wrapping_byte_add(size), said - size);
        expect_zero(&mut rest.reader())?;
    }
    Ok(value)
}

/// Copies in a structure that the caller knows with `size` bytes. See "General ioctl format" in the
/// UAPI header.
fn fetch<T: FromBytes + AsBytes + Zeroable>(arg: UserPtr, size: usize) -> Result<T> {
    if size < size_of::<T>() {
        return Err(EINVAL);
    }
    let mut reader = UserSlice::new(arg, size).reader();
    // In place: the structure is not copied once more.
    let mut value: T = pin_init::zeroed();
    reader.read_slice(value.as_bytes_mut())?;
    expect_zero(&mut reader)?;
    Ok(value)
}

/// The same for an operation, word by word: the path is short enough to feel a general copy.
#[inline(always)]
pub(super) fn fetch_op(arg: UserPtr, size: usize, op: &mut Op) -> Result {
    const KNOWN: usize = size_of::<Op>();
    if size < KNOWN {
        return Err(EINVAL);
    }
    user_ops::fetch(arg, KNOWN, core::slice::from_mut(op))?;
    if size > KNOWN {
        let rest = UserSlice::new(arg.wrapping_byte_add(KNOWN), size - KNOWN);
        expect_zero(&mut rest.reader())?;
    }
    Ok(())
}

fn expect_zero(reader: &mut UserSliceReader) -> Result {
    while !reader.is_empty() {
        let mut bytes = [0u8; 64];
        let bytes = &mut bytes[..reader.len().min(64)];
        reader.read_slice(bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Err(E2BIG);
        }
    }
    Ok(())
}

/// Copies out a structure to a caller who knows it with `size` bytes, and zeroes what is left.
/// `first` is the size that it had at first.
pub(super) fn answer<T: AsBytes>(arg: UserPtr, size: usize, value: &T, first: usize) -> Result {
    if size < first {
        return Err(EINVAL);
    }
    let bytes = value.as_bytes();
    let known = bytes.get(..size).unwrap_or(bytes);
    let mut writer = UserSlice::new(arg, size).writer();
    writer.write_slice(known)?;
    while !writer.is_empty() {
        let zeroes = [0u8; 64];
        writer.write_slice(&zeroes[..writer.len().min(64)])?;
    }
    Ok(())
}
