// SPDX-License-Identifier: GPL-2.0

//! Users without CAP_SYS_RAWIO, and how much of other CPUs' time they use.

use crate::{
    kapi::task,
    logic::policy::Throttle, //
};
use core::ops::Deref;
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

/// What a user may use at once, in the time that it would take at the rate that is allowed. So 10 ms
/// of a CPU's time at 5 %.
const BURST_NS: u64 = 200_000_000;

/// What an interrupt is taken to cost its CPU at least, in nanoseconds. What handlers were seen to
/// take does not include its entry and exit.
const INTERRUPT_NS: u64 = 10_000;

/// The same for an operation. What the handlers say that they took comes on top.
const OPERATION_NS: u64 = 500;

/// Root's id.
const ROOT: u64 = 0;

/// What there is about a user and a CPU.
struct CpuAccount {
    /// Until when the time that he has used of it would last.
    until: Atomic<u64>,
    /// How many samplers of his have a timer there.
    samplers: Atomic<u32>,
}

/// A user.
pub(crate) struct User {
    id: u64,
    /// Descriptors and plans that are open.
    open: Atomic<u32>,
    cpus: KVVec<CpuAccount>,
    permille: Arc<Atomic<u32>>,
}

/// Keeps a user known, so that all that he opens is on one account.
pub(crate) struct OpenUser(Arc<User>);

impl OpenUser {
    fn new(user: Arc<User>) -> Self {
        user.open.add(1u32, Relaxed);
        Self(user)
    }
}

impl Clone for OpenUser {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Deref for OpenUser {
    type Target = User;

    fn deref(&self) -> &User {
        &self.0
    }
}

impl Drop for OpenUser {
    fn drop(&mut self) {
        self.open.fetch_sub(1u32, Relaxed);
    }
}

/// The users that there are.
#[pin_data]
pub(crate) struct Users {
    #[pin]
    known: Mutex<KVec<Arc<User>>>,
    permille: Arc<Atomic<u32>>,
}

impl Users {
    /// Only root, who is never forgotten: most descriptors are his, and need no account until they are
    /// narrowed. [`EINVAL`] if `permille` is out of range.
    pub(super) fn new(permille: u32) -> Result<impl PinInit<Self>> {
        let shared = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        set_permille(&shared, permille.into())?;
        let root = User::new(ROOT, shared.clone())?;
        root.open.store(1, Relaxed);
        let mut known = KVec::new();
        known.push(root, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            known <- new_mutex!(known, "cpupeek_users"),
            permille: shared,
        }))
    }

    /// How much of a CPU's time a user may use, in permille.
    pub(crate) fn permille(&self) -> u32 {
        self.permille.load(Relaxed)
    }

    /// Sets that; [`EINVAL`] if it is out of range.
    pub(crate) fn set_permille(&self, permille: u64) -> Result {
        set_permille(&self.permille, permille)
    }

    /// The user that the current task is.
    pub(super) fn current(&self) -> Result<OpenUser> {
        let id = task::user();
        let now = task::now_ns();
        let mut known = self.known.lock();
        // Those who have nothing open and nothing to wait for need not be remembered.
        known.retain(|user| {
            let waits = || user.cpus.iter().any(|cpu| cpu.until.load(Relaxed) > now);
            user.open.load(Relaxed) != 0 || waits()
        });
        if let Some(user) = known.iter().find(|user| user.id == id) {
            return Ok(OpenUser::new(user.clone()));
        }
        let user = User::new(id, self.permille.clone())?;
        known.push(user.clone(), GFP_KERNEL_ACCOUNT)?;
        Ok(OpenUser::new(user))
    }
}

fn set_permille(shared: &Atomic<u32>, permille: u64) -> Result {
    if !(1..=1000).contains(&permille) {
        return Err(EINVAL);
    }
    shared.store(permille as u32, Relaxed);
    Ok(())
}

impl User {
    fn new(id: u64, permille: Arc<Atomic<u32>>) -> Result<Arc<Self>> {
        let mut cpus = KVVec::with_capacity(nr_cpu_ids() as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..nr_cpu_ids() {
            let unused = CpuAccount {
                until: Atomic::new(0),
                samplers: Atomic::new(0),
            };
            cpus.push(unused, GFP_KERNEL_ACCOUNT)?;
        }
        let user = Self {
            id,
            open: Atomic::new(0),
            cpus,
            permille,
        };
        Ok(Arc::new(user, GFP_KERNEL_ACCOUNT)?)
    }

    fn throttle(&self) -> Throttle {
        Throttle {
            permille: self.permille.load(Relaxed),
            burst_ns: BURST_NS,
        }
    }

    /// How long the user has to wait before `cpu` may be interrupted for him, in nanoseconds.
    pub(crate) fn wait_ns(&self, cpu: u32) -> u64 {
        let account = self.cpus.get(cpu as usize);
        let until = account.map_or(0, |account| account.until.load(Relaxed));
        self.throttle().wait_ns(until, task::now_ns())
    }

    /// The same for a sampler, each of whose looks costs `look_ns`. It waits so long that the looks of all
    /// of his samplers on that CPU stay within his share: what he may have in that time is not lost.
    pub(crate) fn sampler_wait_ns(&self, cpu: u32, look_ns: u64) -> u64 {
        match self.wait_ns(cpu) {
            0 => 0,
            wait => {
                let account = self.cpus.get(cpu as usize);
                let samplers = account.map_or(0, |account| account.samplers.load(Relaxed));
                let looks = look_ns.saturating_mul(samplers.into());
                wait.max(self.throttle().lasts_ns(looks))
            }
        }
    }

    /// Another sampler of his has a timer on `cpu`, or had.
    pub(crate) fn count_sampler(&self, cpu: u32, begins: bool) {
        if let Some(account) = self.cpus.get(cpu as usize) {
            if begins {
                account.samplers.add(1u32, Relaxed);
            } else {
                account.samplers.fetch_sub(1u32, Relaxed);
            }
        }
    }

    /// Is about to have `cpu` interrupted for a number of operations, where an interrupt alone usually
    /// takes `overhead_ns`. What that is taken to cost is on the account from now on, whether somebody
    /// waits for the answer or not.
    pub(crate) fn charge_call(&self, cpu: u32, ops: u32, overhead_ns: u64) {
        let ops = u64::from(ops).saturating_mul(OPERATION_NS);
        self.charge(cpu, ops.saturating_add(overhead_ns.max(INTERRUPT_NS)));
    }

    /// Some of the operations that the last such call was charged for were left out, because those of
    /// others came before them.
    pub(crate) fn refund_ops(&self, cpu: u32, ops: u32) {
        if ops != 0 {
            let unused = u64::from(ops).saturating_mul(OPERATION_NS);
            self.update(cpu, |throttle, until| throttle.refund(until, unused));
        }
    }

    /// Has used `ns` of the time of `cpu`.
    pub(crate) fn charge(&self, cpu: u32, ns: u64) {
        let now = task::now_ns();
        self.update(cpu, |throttle, until| throttle.charge(until, now, ns));
    }

    fn update(&self, cpu: u32, change: impl Fn(Throttle, u64) -> u64) {
        let Some(CpuAccount { until: shared, .. }) = self.cpus.get(cpu as usize) else {
            return;
        };
        let mut until = shared.load(Relaxed);
        loop {
            let changed = change(self.throttle(), until);
            match shared.cmpxchg(until, changed, Relaxed) {
                Ok(_) => return,
                Err(changed) => until = changed,
            }
        }
    }
}
