// SPDX-License-Identifier: GPL-2.0

//! Error codes that the `kernel` crate has no name for.

use kernel::{
    bindings,
    prelude::*, //
};

/// `ETIME`: not answered in time.
pub(crate) fn etime() -> Error {
    Error::from_errno(-(bindings::ETIME as c_int))
}

/// `EOPNOTSUPP`: not in this kernel, or not asked for.
pub(crate) fn eopnotsupp() -> Error {
    Error::from_errno(-(bindings::EOPNOTSUPP as c_int))
}

/// `ENODATA`: there is no value now.
pub(crate) fn enodata() -> Error {
    Error::from_errno(-(bindings::ENODATA as c_int))
}

/// `ECANCELED`: stopped.
pub(crate) fn ecanceled() -> Error {
    Error::from_errno(-(bindings::ECANCELED as c_int))
}

/// What a C function has returned: 0, or a negative errno.
///
/// The `kernel` crate's function is a call, which short paths feel.
#[inline]
pub(super) fn to_result(ret: c_int) -> Result {
    match ret {
        0 => Ok(()),
        error => kernel::error::to_result(error),
    }
}
