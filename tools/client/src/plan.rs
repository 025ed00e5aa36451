// SPDX-License-Identifier: GPL-2.0

//! Plans: operations that are checked once and performed many times.

use crate::device::BatchOptions;
use crate::error::{DeviceError, OpError};
use crate::ioctl;
use crate::op::{Op, Reading};
use crate::sampler::{Sampler, SamplerOptions};
use crate::uapi;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Operations that the module has checked and keeps, to be performed again and
/// again; made by [`Device::prepare`](crate::Device::prepare).
///
/// It has the rights of the device's descriptor, which may be closed meanwhile.
/// The policy is asked anew at each run.
pub struct Plan {
    fd: OwnedFd,
    ops: Vec<Op>,
    results: Vec<uapi::cpupeek_result>,
}

impl Plan {
    pub(crate) fn new(fd: OwnedFd, ops: &[Op]) -> Self {
        let mut ops = ops.to_vec();
        ops.iter_mut().for_each(Op::forget_answer);
        let results = vec![Default::default(); ops.len()];
        Plan { fd, ops, results }
    }

    /// Performs all operations, all CPUs at once, and leaves the answers in
    /// [`Plan::ops`].
    ///
    /// On an error all of them say [`OpError::NotRead`].
    pub fn run(&mut self, options: BatchOptions) -> Result<(), DeviceError> {
        self.ops.iter_mut().for_each(Op::forget_answer);
        ioctl::run(&self.fd, options.run_header(), &mut self.results)
            .map_err(|errno| DeviceError::from_command("RUN", errno))?;
        for (op, result) in self.ops.iter_mut().zip(&self.results) {
            op.take_answer(result);
        }
        Ok(())
    }

    /// Samples the plan's operations, see [`Device::sample`](crate::Device::sample).
    pub fn sample(&self, options: &SamplerOptions) -> Result<Sampler, DeviceError> {
        Sampler::new(self.fd.as_fd(), &self.ops, true, options)
    }

    /// The operations in the order in which they were given, with the answers
    /// of the last run.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The answers of the last run alone, in the same order.
    pub fn results(&self) -> impl ExactSizeIterator<Item = Result<Reading, OpError>> + '_ {
        self.ops.iter().map(Op::result)
    }
}

impl AsFd for Plan {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("fd", &self.fd)
            .field("ops", &self.ops)
            .finish_non_exhaustive()
    }
}
