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

/// `ENODATA`: there is no value now.
pub(crate) fn enodata() -> Error {
    Error::from_errno(-(bindings::ENODATA as c_int))
}
