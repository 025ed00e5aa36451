// SPDX-License-Identifier: GPL-2.0

//! Waiting for answers: spinning while that is likely to suffice, then sleeping.

use super::Engine;
use crate::{
    kapi::{
        call_group::{
            Flight,
            Work, //
        },
        completion::Waited,
        regs,
        task, //
    },
    logic::budget::{
        Answer,
        Budget,
        Limits, //
    },
    policy::User,
    stats::Counter, //
};
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    processor::cpu_relax,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// When a call gives up, in nanoseconds of the monotonic clock; `None` is never.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Option<u64>);

impl Deadline {
    pub(super) const NEVER: Self = Self(None);

    /// `ms` from now, never if that is 0.
    pub(super) fn after_ms(ms: u32) -> Self {
        Self((ms != 0).then(|| in_ms(ms.into())))
    }

    /// `ns` later.
    pub(super) fn later(self, ns: u64) -> Self {
        Self(self.0.map(|end| end.saturating_add(ns)))
    }

    fn is_over(self) -> bool {
        self.0.is_some_and(|end| task::monotonic_ns() >= end)
    }

    /// In `ms`, or at the deadline if that is earlier.
    fn or_in_ms(self, ms: u64) -> u64 {
        let then = in_ms(ms);
        self.0.map_or(then, |end| end.min(then))
    }
}

/// The monotonic clock in `ms` milliseconds.
fn in_ms(ms: u64) -> u64 {
    task::monotonic_ns().saturating_add(ms.saturating_mul(1_000_000))
}

/// How often to look for CPUs that have another round to do, while one does not answer.
const LOOK_MS: u64 = 4;

/// How a caller wants to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Spin as long as it is likely to suffice.
    Adaptive,
    /// Never spin.
    Sleep,
    /// Spin up to the ceiling.
    Spin,
}

/// Longest time that the spinning may be set to, in microseconds.
const SPIN_MAX_US: u64 = 10_000;

/// What is known of how long answers take, by target.
pub(super) struct Spinning {
    /// Words of [`Budget`]; 0 while nothing is known. One for each CPU, for calls to that CPU alone,
    /// and one for each power of two, for calls to about that many CPUs.
    budgets: KVVec<Atomic<u32>>,
    floor_us: Atomic<u32>,
    ceiling_us: Atomic<u32>,
    /// Targets that are preempted are spun for like others.
    for_preempted: Atomic<bool>,
    tsc_khz: u32,
}

impl Spinning {
    /// Knows nothing yet. The limits are in microseconds; [`EINVAL`] if they are out of range.
    #[inline(never)]
    pub(super) fn new(floor_us: u32, ceiling_us: u32) -> Result<Self> {
        let count = nr_cpu_ids().saturating_add(u32::BITS) as usize;
        let mut budgets = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            budgets.push(Atomic::new(0), GFP_KERNEL)?;
        }
        let spinning = Self {
            budgets,
            floor_us: Atomic::new(0),
            ceiling_us: Atomic::new(0),
            for_preempted: Atomic::new(false),
            tsc_khz: regs::tsc_khz(),
        };
        spinning.set_floor_us(floor_us.into())?;
        spinning.set_ceiling_us(ceiling_us.into())?;
        Ok(spinning)
    }

    pub(super) fn floor_us(&self) -> u32 {
        self.floor_us.load(Relaxed)
    }

    pub(super) fn ceiling_us(&self) -> u32 {
        self.ceiling_us.load(Relaxed)
    }

    pub(super) fn set_floor_us(&self, us: u64) -> Result {
        Self::set(&self.floor_us, us)
    }

    pub(super) fn set_ceiling_us(&self, us: u64) -> Result {
        Self::set(&self.ceiling_us, us)
    }

    pub(super) fn for_preempted(&self) -> bool {
        self.for_preempted.load(Relaxed)
    }

    pub(super) fn set_for_preempted(&self, on: u64) -> Result {
        if on > 1 {
            return Err(EINVAL);
        }
        self.for_preempted.store(on != 0, Relaxed);
        Ok(())
    }

    fn set(limit: &Atomic<u32>, us: u64) -> Result {
        if us > SPIN_MAX_US {
            return Err(EINVAL);
        }
        limit.store(us as u32, Relaxed);
        Ok(())
    }

    /// The limits for a caller who wants to wait like that. Without a known frequency of the TSC
    /// there is no measure of time, and no spinning.
    fn limits(&self, manner: Manner) -> Limits {
        let cycles = |us: u32| {
            let cycles = u64::from(us).wrapping_mul(self.tsc_khz.into()) / 1000;
            u32::try_from(cycles).unwrap_or(u32::MAX)
        };
        let ceiling = cycles(self.ceiling_us());
        match manner {
            Manner::Adaptive => Limits {
                floor: cycles(self.floor_us()),
                ceiling,
            },
            Manner::Sleep => Limits {
                floor: 0,
                ceiling: 0,
            },
            Manner::Spin => Limits {
                floor: ceiling,
                ceiling,
            },
        }
    }

    /// Where to find what is known of the CPUs of a flight.
    fn budget<W: Work>(&self, flight: &Flight<W>) -> Option<&Atomic<u32>> {
        let index = match flight.only_cpu() {
            Some(cpu) => cpu,
            None => nr_cpu_ids().wrapping_add(flight.cpus().checked_ilog2()?),
        };
        self.budgets.get(index as usize)
    }
}

/// How spinning ended.
enum Spun {
    /// All calls are through.
    Through,
    /// A CPU is through with a round, and has another to do.
    Ready,
    /// It was for too long, or in somebody's way.
    GaveUp,
}

impl Engine {
    /// Waits for the calls in flight. Returns whether there are CPUs to be called again.
    pub(super) fn wait<W: Work>(
        &self,
        flight: &mut Flight<W>,
        deadline: Deadline,
        manner: Manner,
    ) -> Result<bool> {
        // Nobody is kept from another round by a CPU that does not answer. Rounds on the caller's
        // own CPU never sleep.
        if flight.try_wait() || flight.wants_dispatch() {
            task::cond_resched();
            if task::is_being_killed() {
                return Err(EINTR);
            }
            return Ok(flight.wants_dispatch() && !deadline.is_over());
        }

        let limits = self.spinning.limits(manner);
        let budget = self.spinning.budget(flight);
        let known = budget.and_then(|budget| Budget::from_word(budget.load(Relaxed)));
        let known = known.unwrap_or(Budget::unknown(limits));

        let start = regs::rdtsc();
        let mut spun = false;
        let waited = match self.spin(flight, start, known.spin(limits)) {
            Spun::Through => {
                self.stats.add(Counter::Spins, 1);
                spun = true;
                Waited::Done
            }
            Spun::Ready => return Ok(!deadline.is_over()),
            Spun::GaveUp => match self.sleep(flight, deadline) {
                Some(waited) => waited,
                None if task::is_being_killed() => return Err(EINTR),
                None => return Ok(!deadline.is_over()),
            },
        };
        let took = regs::rdtsc().wrapping_sub(start);
        // A spin that sufficed was not for a late answer, however long its end was held up.
        let answer = if spun {
            Answer::Spun(took.min(limits.ceiling.into()))
        } else {
            Answer::Slept(took)
        };
        // What a caller wants for itself teaches nothing.
        if let (Some(budget), Manner::Adaptive) = (budget, manner) {
            budget.store(known.learn(answer, limits).into_word(), Relaxed);
        }

        match waited {
            Waited::Done => Ok(flight.wants_dispatch() && !deadline.is_over()),
            Waited::TimedOut => Ok(!deadline.is_over()),
            Waited::Killed => Err(EINTR),
        }
    }

    /// Spins for `cycles` from `start` at most, with preemption on.
    ///
    /// Nobody is kept waiting: it ends when another task wants this CPU, and when a target cannot
    /// answer because its virtual CPU is not running.
    fn spin<W: Work>(&self, flight: &mut Flight<W>, start: u64, cycles: u32) -> Spun {
        if cycles == 0 {
            return Spun::GaveUp;
        }
        let rounds = flight.may_need_rounds();
        loop {
            if flight.try_wait() {
                return Spun::Through;
            }
            if rounds && flight.wants_dispatch() {
                return Spun::Ready;
            }
            if task::is_resched_wanted() || regs::rdtsc().wrapping_sub(start) >= cycles.into() {
                return Spun::GaveUp;
            }
            if flight.is_called_cpu_preempted() && !self.spinning.for_preempted() {
                self.stats.add(Counter::Preempted, 1);
                return Spun::GaveUp;
            }
            cpu_relax();
        }
    }

    /// Waits until the user has been sparing enough with the CPUs that are to be called, or the time
    /// is over, or a fatal signal comes ([`EINTR`]).
    pub(super) fn throttle<W: Work>(
        &self,
        flight: &Flight<W>,
        user: &User,
        deadline: Deadline,
    ) -> Result<bool> {
        let mut throttled = false;
        loop {
            let waits = flight.cpus_to_call().map(|cpu| user.wait_ns(cpu));
            let wait = waits.max().unwrap_or(0);
            if deadline.is_over() {
                return Ok(false);
            }
            if wait == 0 {
                return Ok(true);
            }
            if !throttled {
                self.stats.add(Counter::Throttled, 1);
                throttled = true;
            }
            task::sleep_killably_until(deadline.or_in_ms(wait.div_ceil(1_000_000)));
            if task::is_being_killed() {
                return Err(EINTR);
            }
        }
    }

    /// Sleeps, unless a CPU has another round to do.
    fn sleep<W: Work>(&self, flight: &mut Flight<W>, deadline: Deadline) -> Option<Waited> {
        // While one CPU keeps the caller waiting, others may be through with a round and have
        // another to do; nobody tells, so look now and then.
        let end = if !flight.may_need_rounds() {
            deadline.0
        } else if flight.wants_dispatch() {
            return None;
        } else {
            Some(deadline.or_in_ms(LOOK_MS))
        };
        self.stats.add(Counter::Sleeps, 1);
        Some(flight.wait(end))
    }
}
