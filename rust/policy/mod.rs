// SPDX-License-Identifier: GPL-2.0

//! Which operations a descriptor may perform.
//!
//! Rights are decided once, when the device is opened: with CAP_SYS_RAWIO every MSR, else the
//! allowlist, as it was then and as it is now. A descriptor can be narrowed, never widened.

mod allowlist;
mod narrowing;
mod refusals;
mod user;

pub(crate) use allowlist::{
    AllowList,
    Refusal, //
};
pub(crate) use narrowing::{
    Narrowing,
    MAX_RANGES, //
};
use refusals::Refusals;
use user::OpenUser;
pub(crate) use user::{
    User,
    Users, //
};

use crate::{
    kapi::{
        rcu_arc::RcuArc,
        task,
        uapi::{
            Op,
            CPUPEEK_CPUID,
            CPUPEEK_MSR,
            CPUPEEK_OP_DISTURB,
            CPU_SELF, //
        },
    },
    logic::policy::registers::{
        class_of,
        Class, //
    },
};
use kernel::{
    cpu::nr_cpu_ids,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

/// What holds for the whole machine.
#[pin_data]
pub(crate) struct Policy {
    allowed: RcuArc<AllowList>,
    /// The list's number. A look at it says whether another look at the list is needed.
    generation: Atomic<u64>,
    refusals: Refusals,
    /// Held while the list is replaced.
    #[pin]
    replacing: Mutex<()>,
    /// Held while a descriptor is narrowed; whoever narrows does not keep the list waiting.
    #[pin]
    narrowing: Mutex<()>,
    /// Who uses how much of which CPU.
    #[pin]
    pub(crate) users: Users,
}

impl Policy {
    /// The policy of a module that was just loaded: the default list.
    pub(crate) fn new(unprivileged_permille: u32) -> Result<Arc<Self>> {
        let list = AllowList::of_harmless()?;
        Arc::pin_init(
            try_pin_init!(Self {
                generation: Atomic::new(list.generation()),
                allowed: RcuArc::new(Some(list)),
                refusals: Refusals::new()?,
                replacing <- new_mutex!((), "cpupeek_allow"),
                narrowing <- new_mutex!((), "cpupeek_narrow"),
                users <- Users::new(unprivileged_permille)?,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// The allowlist now.
    pub(crate) fn allowed(&self) -> Result<Arc<AllowList>> {
        self.allowed.get().ok_or(ENOENT)
    }

    /// The number of the allowlist now.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Makes `list` the allowlist. Returns its number.
    pub(crate) fn allow(&self, mut list: AllowList) -> Result<u64> {
        let _replacing = self.replacing.lock();
        let generation = self.generation().wrapping_add(1);
        list.set_generation(generation);
        let list = Arc::new(list, GFP_KERNEL)?;
        // From here on nobody goes by a list of his own alone.
        self.generation.store(generation, Relaxed);
        self.allowed.replace(Some(list));
        // What was missing may be on the list now.
        self.refusals.clear();
        Ok(generation)
    }
}

/// What a descriptor may do.
pub(crate) struct Access {
    policy: Arc<Policy>,
    /// CAP_SYS_RAWIO: every MSR, every CPU.
    rawio: bool,
    /// CAP_SYS_NICE: isolated CPUs, for operations that ask for it.
    nice: bool,
    /// The kernel is locked down for confidentiality: not even root sees its secrets.
    confidential: bool,
    /// The allowlist when the descriptor was opened.
    at_open: Arc<AllowList>,
    /// Whose account the use of other CPUs is on, if on anybody's.
    user: Option<OpenUser>,
    narrowing: RcuArc<Narrowing>,
}

impl Access {
    /// What the current task may do with a descriptor that it opens now.
    pub(crate) fn of_current(policy: Arc<Policy>) -> Result<Self> {
        let rawio = task::has_rawio();
        let user = if rawio {
            None
        } else {
            Some(policy.users.current()?)
        };
        Ok(Self {
            rawio,
            nice: task::has_nice(),
            confidential: task::is_confidential(),
            at_open: policy.allowed()?,
            user,
            narrowing: RcuArc::new(None),
            policy,
        })
    }

    /// The same rights for a plan, which are not narrowed any further with the descriptor's.
    pub(crate) fn for_plan(&self) -> Self {
        Self {
            policy: self.policy.clone(),
            rawio: self.rawio,
            nice: self.nice,
            confidential: self.confidential,
            at_open: self.at_open.clone(),
            user: self.user.clone(),
            narrowing: RcuArc::new(self.narrowing.get()),
        }
    }

    /// Whose account the use of other CPUs is on, if on anybody's.
    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_deref()
    }

    /// The number of the allowlist now.
    pub(crate) fn generation(&self) -> u64 {
        self.policy.generation()
    }

    /// Checks that the descriptor may change the policy; [`EPERM`] if not.
    pub(crate) fn may_set_policy(&self) -> Result {
        let narrowed = self.narrowing.read(|narrowing| narrowing.is_some());
        if self.rawio && !narrowed {
            Ok(())
        } else {
            Err(EPERM)
        }
    }

    /// Makes `list` the allowlist. Returns its number.
    pub(crate) fn allow(&self, list: AllowList) -> Result<u64> {
        self.policy.allow(list)
    }

    /// The allowlist now.
    pub(crate) fn allowed(&self) -> Result<Arc<AllowList>> {
        self.policy.allowed()
    }

    /// Which registers were refused.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.policy.refusals
    }

    /// Takes rights away.
    pub(crate) fn narrow(&self, to: Narrowing) -> Result {
        let _narrowing = self.policy.narrowing.lock();
        let narrowing = match self.narrowing.get() {
            Some(before) => before.and(&to)?,
            None => to,
        };
        let narrowing = Arc::new(narrowing, GFP_KERNEL_ACCOUNT)?;
        self.narrowing.replace(Some(narrowing));
        Ok(())
    }

    /// Whether any register and CPU is allowed, and stays so.
    pub(crate) fn is_unlimited(&self) -> bool {
        let narrowed = self.narrowing.read(|narrowing| narrowing.is_some());
        self.rawio && !narrowed && !task::are_cpus_isolated()
    }

    /// Checks an operation, whatever its CPU is doing.
    ///
    /// [`EINVAL`] for a malformed one, [`EACCES`] for a register that is not for this descriptor,
    /// [`ENXIO`] for a CPU number that no CPU of this machine has.
    pub(crate) fn check(&self, op: &Op) -> Result {
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
        let is_msr = kind == CPUPEEK_MSR;
        let refused = (is_msr && !self.may_read(op.reg))
            || self
                .narrowing
                .read(|narrowing| narrowing.is_some_and(|n| !n.allows(is_msr, op.reg)));
        if refused {
            if is_msr {
                self.policy.refusals.count(op.reg);
            }
            return Err(EACCES);
        }
        if op.cpu != CPU_SELF && op.cpu >= nr_cpu_ids() {
            return Err(ENXIO);
        }
        Ok(())
    }

    fn may_read(&self, reg: u32) -> bool {
        if self.rawio {
            return !self.confidential || class_of(reg).0 != Class::Never;
        }
        if !self.at_open.contains(reg) {
            return false;
        }
        let now = |list: Option<&AllowList>| list.is_some_and(|list| list.contains(reg));
        self.at_open.generation() == self.policy.generation() || self.policy.allowed.read(now)
    }

    /// Checks that a descriptor which was narrowed was not narrowed to other CPUs; [`EPERM`] if so.
    pub(crate) fn check_narrowed_cpu(&self, cpu: u32) -> Result {
        let refused = |narrowing: &Narrowing| !narrowing.allows_cpu(cpu);
        if self.narrowing.read(|n| n.is_some_and(refused)) {
            return Err(EPERM);
        }
        Ok(())
    }

    /// Checks that the current task may have this operation's CPU interrupted, or use it as the one
    /// it is on, `here`; [`EPERM`] if not.
    pub(crate) fn check_cpu(&self, op: &Op, here: u32) -> Result {
        self.check_narrowed_cpu(op.cpu)?;
        if op.cpu == here {
            return Ok(());
        }
        if !self.rawio && !task::may_run_on(op.cpu) {
            return Err(EPERM);
        }
        let disturb = self.nice && u32::from(op.flags) & CPUPEEK_OP_DISTURB != 0;
        if !disturb && task::is_isolated(op.cpu) {
            return Err(EPERM);
        }
        Ok(())
    }
}
