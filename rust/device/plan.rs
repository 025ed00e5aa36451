// SPDX-License-Identifier: GPL-2.0

//! Commands on a plan.

use super::{
    copy::fetch_sized,
    number,
    waiting,
    NR_RUN,
    NR_SAMPLER, //
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
    sampler::Samplers,
};
use kernel::{
    ioctl::_IOC_SIZE,
    mm::virt::VmaNew,
    prelude::*,
    sync::Arc,
    uaccess::UserPtr, //
};

/// The state of a plan's descriptor.
pub(super) struct PlanFile {
    pub(super) plan: Pin<KBox<Plan>>,
    pub(super) samplers: Arc<Samplers>,
}

impl Descriptor for PlanFile {
    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result {
        let size = _IOC_SIZE(cmd);
        match number(cmd)? {
            NR_RUN => self.run(arg, size),
            NR_SAMPLER => self.sampler(arg, size),
            _ => Err(ENOTTY),
        }
    }

    fn mmap(&self, vma: &VmaNew) -> Result {
        self.plan.map(vma)
    }
}

impl PlanFile {
    #[inline(never)]
    fn run(&self, arg: UserPtr, size: usize) -> Result {
        let header: uapi::Run = fetch_sized(arg, size, |header: &uapi::Run| header.size)?;
        let mapped = header.flags & uapi::CPUPEEK_RUN_MAPPED != 0;
        let (manner, tsc) = waiting(header.flags & !uapi::CPUPEEK_RUN_MAPPED, header.tsc)?;
        let expected = if mapped { 0 } else { self.plan.len() };
        if header.nr_results as usize != expected || (mapped && header.results != 0) {
            return Err(EINVAL);
        }
        self.plan.perform(&RunRequest {
            results: (!mapped).then(|| UserPtr::from_addr(header.results as usize)),
            timeout_ms: header.timeout_ms,
            manner,
            tsc,
        })
    }
}
