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
    logic::{
        policy::registers::{
            class_of,
            Class, //
        },
        replacement::{
            Number,
            Replacement, //
        },
    },
};
use kernel::{
    cpu::nr_cpu_ids,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Mutex, //
    },
};

struct KernelNumber(Atomic<u64>);

impl Number for KernelNumber {
    #[inline]
    fn load(&self) -> u64 {
        self.0.load(Acquire)
    }

    fn store(&self, number: u64) {
        self.0.store(number, Release);
    }
}

/// What holds for the whole machine.
#[pin_data]
pub(crate) struct Policy {
    allowed: RcuArc<AllowList>,
    /// The list's number. A look at it says whether another look at the list is needed.
    generation: Replacement<KernelNumber>,
    refusals: Refusals,
    /// Held while the list is replaced.
    #[pin]
    replacing: Mutex<()>,
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
                generation: Replacement::new(KernelNumber(Atomic::new(list.generation()))),
                allowed: RcuArc::new(Some(list)),
                refusals: Refusals::new()?,
                replacing <- new_mutex!((), "cpupeek_allow"),
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
        self.generation.number()
    }

    /// Makes `list` the allowlist, after `announce` was given its number. Nothing changes if that
    /// fails.
    pub(crate) fn allow(
        &self,
        mut list: AllowList,
        announce: impl FnOnce(u64) -> Result,
    ) -> Result {
        let _replacing = self.replacing.lock();
        self.generation.replace(|generation| {
            list.set_generation(generation);
            let list = Arc::new(list, GFP_KERNEL)?;
            announce(generation)?;
            self.allowed.replace(Some(list));
            Ok::<_, Error>(())
        })?;
        // What was missing may be on the list now.
        self.refusals.clear();
        Ok(())
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
    /// Whose account the use of other CPUs is on, if on anybody's: see [`Self::user`].
    user: OpenUser,
    narrowing: RcuArc<Narrowing>,
}

impl Access {
    /// What the current task may do with a descriptor that it opens now.
    pub(crate) fn of_current(policy: Arc<Policy>) -> Result<Self> {
        let rawio = task::has_rawio();
        Ok(Self {
            rawio,
            nice: task::has_nice(),
            // Asking is logged, and nobody else's rights depend on it.
            confidential: rawio && task::is_confidential(),
            at_open: policy.allowed()?,
            user: policy.users.current()?,
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
    ///
    /// Root's is on nobody's, but for a descriptor that was narrowed: those are handed to others.
    pub(crate) fn user(&self) -> Option<&User> {
        (!self.rawio || self.is_narrowed()).then_some(&*self.user)
    }

    /// Who has opened it, whether anything is on his account or not.
    pub(crate) fn opener(&self) -> &User {
        &self.user
    }

    /// The number of the allowlist now.
    pub(crate) fn generation(&self) -> u64 {
        self.policy.generation()
    }

    /// Checks that the descriptor may change the policy; [`EPERM`] if not.
    pub(crate) fn may_set_policy(&self) -> Result {
        if self.rawio && !self.is_narrowed() {
            Ok(())
        } else {
            Err(EPERM)
        }
    }

    /// Makes `list` the allowlist, after `announce` was given its number.
    pub(crate) fn allow(&self, list: AllowList, announce: impl FnOnce(u64) -> Result) -> Result {
        self.policy.allow(list, announce)
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
        let to = Arc::new(to, GFP_KERNEL_ACCOUNT)?;
        self.narrowing.update(|before| match before {
            Some(before) => Ok(Arc::new(before.and(&to)?, GFP_KERNEL_ACCOUNT)?),
            None => Ok(to.clone()),
        })
    }

    /// Whether any register and CPU is allowed, and stays so.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.rawio && !self.confidential && !self.is_narrowed() && !task::are_cpus_isolated()
    }

    /// Checks an operation, whatever its CPU is doing.
    ///
    /// [`EINVAL`] for a malformed one, [`EACCES`] for a register that is not for this descriptor,
    /// [`ENXIO`] for a CPU number that no CPU of this machine has.
    #[inline]
    pub(crate) fn check(&self, op: &Op) -> Result {
        self.check_as(op, self.is_narrowed())
    }

    /// Whether rights were taken away.
    #[inline]
    pub(crate) fn is_narrowed(&self) -> bool {
        !self.narrowing.is_none()
    }

    /// The same as [`Self::check`] for who has asked already [whether rights were taken
    /// away](Self::is_narrowed): a single read asks once.
    #[inline(never)]
    pub(crate) fn check_as(&self, op: &Op, is_narrowed: bool) -> Result {
        Self::check_form(op)?;
        let is_msr = u32::from(op.kind) == CPUPEEK_MSR;
        let refused = (is_msr && !self.may_read(op.reg))
            || (is_narrowed && !self.is_in_narrowing(is_msr, op.reg));
        if refused {
            return Err(self.refuse_register(is_msr, op.reg));
        }
        if op.cpu != CPU_SELF && op.cpu >= nr_cpu_ids() {
            return Err(ENXIO);
        }
        Ok(())
    }

    /// Checks only that an operation is well-formed, whatever its register and CPU; [`EINVAL`] if not.
    /// Enough for who [may read everything](Self::is_unlimited).
    #[inline]
    pub(crate) fn check_form(op: &Op) -> Result {
        let well_formed = match u32::from(op.kind) {
            CPUPEEK_MSR => op.subleaf == 0,
            CPUPEEK_CPUID => true,
            _ => false,
        };
        let flags = u32::from(op.flags);
        if !well_formed || flags & !CPUPEEK_OP_DISTURB != 0 || op.reserved != 0 {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// What is rare is kept out of the way of what is not, here and in `is_in_narrowing()`: a single
    /// read feels it.
    #[cold]
    fn refuse_register(&self, is_msr: bool, reg: u32) -> Error {
        if is_msr {
            self.policy.refusals.count(reg);
        }
        EACCES
    }

    #[inline(never)]
    fn is_in_narrowing(&self, is_msr: bool, reg: u32) -> bool {
        self.narrowing
            .read(|narrowing| narrowing.is_none_or(|n| n.allows(is_msr, reg)))
    }

    #[cold]
    fn may_be_seen_when_confidential(reg: u32) -> bool {
        class_of(reg).0 != Class::Never
    }

    #[inline]
    fn may_read(&self, reg: u32) -> bool {
        if self.rawio {
            return !self.confidential || Self::may_be_seen_when_confidential(reg);
        }
        if !self.at_open.contains(reg) {
            return false;
        }
        let now = |list: Option<&AllowList>| list.is_some_and(|list| list.contains(reg));
        let in_force = || self.policy.allowed.read(now);
        let own = self.at_open.generation();
        self.policy.generation.allows(own, in_force)
    }

    /// Checks that a descriptor which was narrowed was not narrowed to other CPUs; [`EPERM`] if so.
    #[inline]
    pub(crate) fn check_narrowed_cpu(&self, cpu: u32) -> Result {
        if self.is_narrowed() && !self.is_cpu_in_narrowing(cpu) {
            return Err(EPERM);
        }
        Ok(())
    }

    #[inline(never)]
    fn is_cpu_in_narrowing(&self, cpu: u32) -> bool {
        self.narrowing
            .read(|narrowing| narrowing.is_none_or(|n| n.allows_cpu(cpu)))
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
        self.check_isolation(op)
    }

    /// Checks that this operation's CPU is not isolated, or that it may be interrupted all the same;
    /// [`EPERM`] if not.
    pub(crate) fn check_isolation(&self, op: &Op) -> Result {
        let disturb = self.nice && u32::from(op.flags) & CPUPEEK_OP_DISTURB != 0;
        if !disturb && task::is_isolated(op.cpu) {
            return Err(EPERM);
        }
        Ok(())
    }
}
