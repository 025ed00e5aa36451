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

/// What an interrupt is taken to cost its CPU, in nanoseconds. Paid in advance: what a user does not
/// wait for costs as much.
const INTERRUPT_NS: u64 = 10_000;

/// The same for an operation. What the handlers say that they took comes on top.
const OPERATION_NS: u64 = 500;

/// A user, and for each CPU until when its time that the user has used would last.
pub(crate) struct User {
    id: u32,
    /// Descriptors and plans that are open.
    open: Atomic<u32>,
    until: KVVec<Atomic<u64>>,
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
    /// Nobody yet. [`EINVAL`] if `permille` is out of range.
    pub(super) fn new(permille: u32) -> Result<impl PinInit<Self>> {
        let shared = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        set_permille(&shared, permille.into())?;
        Ok(pin_init!(Self {
            known <- new_mutex!(KVec::new(), "cpupeek_users"),
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
            let waits = || user.until.iter().any(|until| until.load(Relaxed) > now);
            user.open.load(Relaxed) != 0 || waits()
        });
        if let Some(user) = known.iter().find(|user| user.id == id) {
            return Ok(OpenUser::new(user.clone()));
        }
        let mut until = KVVec::with_capacity(nr_cpu_ids() as usize, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..nr_cpu_ids() {
            until.push(Atomic::new(0), GFP_KERNEL_ACCOUNT)?;
        }
        let user = User {
            id,
            open: Atomic::new(0),
            until,
            permille: self.permille.clone(),
        };
        let user = Arc::new(user, GFP_KERNEL_ACCOUNT)?;
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
    fn throttle(&self) -> Throttle {
        Throttle {
            permille: self.permille.load(Relaxed),
            burst_ns: BURST_NS,
        }
    }

    /// How long the user has to wait before `cpu` may be interrupted for him, in nanoseconds.
    pub(crate) fn wait_ns(&self, cpu: u32) -> u64 {
        let until = self.until.get(cpu as usize).map_or(0, |t| t.load(Relaxed));
        self.throttle().wait_ns(until, task::now_ns())
    }

    /// Is about to have `cpu` interrupted for a number of operations. What that is taken to cost is on
    /// the account from now on, whether somebody waits for the answer or not.
    pub(crate) fn charge_call(&self, cpu: u32, ops: u32) {
        let ops = u64::from(ops).saturating_mul(OPERATION_NS);
        self.charge(cpu, ops.saturating_add(INTERRUPT_NS));
    }

    /// Has used `ns` of the time of `cpu`.
    pub(crate) fn charge(&self, cpu: u32, ns: u64) {
        let Some(shared) = self.until.get(cpu as usize) else {
            return;
        };
        let now = task::now_ns();
        let mut until = shared.load(Relaxed);
        loop {
            let charged = self.throttle().charge(until, now, ns);
            match shared.cmpxchg(until, charged, Relaxed) {
                Ok(_) => return,
                Err(changed) => until = changed,
            }
        }
    }
}
