// SPDX-License-Identifier: GPL-2.0

//! Which operations a descriptor may perform.

use crate::kapi::{
    task,
    uapi::{
        Op,
        CPUPEEK_CPUID,
        CPUPEEK_MSR,
        CPUPEEK_OP_DISTURB,
        CPU_SELF, //
    },
};
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*, //
};

/// The rights of a descriptor, decided once, when it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// CAP_SYS_RAWIO: every MSR.
    rawio: bool,
}

impl Rights {
    /// The rights of the current task.
    pub(crate) fn of_current() -> Self {
        Self {
            rawio: task::has_rawio(),
        }
    }

    /// Checks an operation, whatever its CPU is doing.
    ///
    /// The order is that in which a caller can mend things: [`EINVAL`] for a malformed operation,
    /// [`EACCES`] for a register that is not for this descriptor, [`ENXIO`] for a CPU number that
    /// no CPU of this machine has.
    pub(crate) fn check(self, op: &Op) -> Result {
        let kind = u32::from(op.kind);
        let well_formed = match kind {
            CPUPEEK_MSR => op.subleaf == 0,
            CPUPEEK_CPUID => true,
            _ => false,
        };
        let flags = u32::from(op.flags);
        if !well_formed || flags & !CPUPEEK_OP_DISTURB != 0 || op.reserved != 0 {
            return Err(EINVAL);
        }
        if kind == CPUPEEK_MSR && !self.rawio {
            return Err(EACCES);
        }
        if op.cpu != CPU_SELF && op.cpu >= nr_cpu_ids() {
            return Err(ENXIO);
        }
        Ok(())
    }
}
