// SPDX-License-Identifier: GPL-2.0

//! Commands on a plan.

use super::{
    copy::fetch_sized,
    number,
    waiting,
    NR_RUN, //
};
use crate::{
    engine::{
        Plan,
        RunRequest, //
    },
    kapi::{
        file::Descriptor,
        uapi, //
    },
};
use kernel::{
    ioctl::_IOC_SIZE,
    mm::virt::VmaNew,
    prelude::*,
    uaccess::UserPtr, //
};

impl Descriptor for Plan {
    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result {
        if number(cmd)? != NR_RUN {
            return Err(ENOTTY);
        }
        let header: uapi::Run = fetch_sized(arg, _IOC_SIZE(cmd), |header: &uapi::Run| header.size)?;
        let mapped = header.flags & uapi::CPUPEEK_RUN_MAPPED != 0;
        let (manner, tsc) = waiting(header.flags & !uapi::CPUPEEK_RUN_MAPPED, header.tsc)?;
        let expected = if mapped { 0 } else { self.len() };
        if header.nr_results as usize != expected || (mapped && header.results != 0) {
            return Err(EINVAL);
        }
        self.perform(&RunRequest {
            results: (!mapped).then(|| UserPtr::from_addr(header.results as usize)),
            timeout_ms: header.timeout_ms,
            manner,
            tsc,
        })
    }

    fn mmap(&self, vma: &VmaNew) -> Result {
        self.map(vma)
    }
}
