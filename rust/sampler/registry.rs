// SPDX-License-Identifier: GPL-2.0

//! The samplers that there are, and what all of them are told.

use super::Sampler;
use crate::{
    kapi::{
        cpu_timer::Precision,
        task, //
    },
    logic::round::SamplerStretch,
};
use kernel::{
    cpu::nr_cpu_ids,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
};

/// All samplers.
///
/// Locks are taken in this order: the CPU hotplug lock, which is the kernel's; the list; what a
/// sampler's tasks take in turn. So whoever has the list locked does not wait for the hotplug lock.
#[pin_data]
pub(crate) struct Samplers {
    /// With numbers that increase.
    #[pin]
    list: Mutex<KVec<(u64, Arc<Sampler>)>>,
    open: Atomic<u64>,
    /// How many there have been; added to with the list locked.
    numbered: Atomic<u64>,
    permille: Atomic<u32>,
    cpus: KVVec<CpuTimers>,
}

/// What there is about a CPU.
struct CpuTimers {
    /// Timers may be started there.
    present: Atomic<bool>,
    /// What samplers have done there last, of each [`Precision`].
    stretches: [Kept; 2],
}

/// A stretch that is kept for whoever comes next. Only those who have one write it, one after the other.
struct Kept {
    number: Atomic<u64>,
    start: Atomic<u64>,
    served: Atomic<u32>,
    waiting: Atomic<u32>,
}

impl Kept {
    const fn new() -> Self {
        Self {
            number: Atomic::new(0),
            start: Atomic::new(0),
            served: Atomic::new(0),
            waiting: Atomic::new(0),
        }
    }
}

impl Samplers {
    /// None yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let mut cpus = KVVec::with_capacity(nr_cpu_ids() as usize, GFP_KERNEL)?;
        for _ in 0..nr_cpu_ids() {
            let absent = CpuTimers {
                present: Atomic::new(false),
                stretches: [const { Kept::new() }; 2],
            };
            cpus.push(absent, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "cpupeek_samplers"),
                open: Atomic::new(0),
                numbered: Atomic::new(0),
                permille: Atomic::new(100),
                cpus,
            }),
            GFP_KERNEL,
        )
    }

    /// How many there are.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }

    /// How much of a CPU's time each sampler may use, in permille.
    pub(crate) fn permille(&self) -> u32 {
        self.permille.load(Relaxed)
    }

    /// Sets that; [`EINVAL`] if it is out of range.
    pub(crate) fn set_permille(&self, permille: u64) -> Result {
        if !(1..=1000).contains(&permille) {
            return Err(EINVAL);
        }
        self.permille.store(permille as u32, Relaxed);
        Ok(())
    }

    /// Whether timers may be started on a CPU; asked on that CPU with interrupts off.
    pub(super) fn is_present(&self, cpu: u32) -> bool {
        let timers = self.cpus.get(cpu as usize);
        timers.is_some_and(|timers| timers.present.load(Acquire))
    }

    fn kept(&self, cpu: u32, precision: Precision) -> Option<&Kept> {
        let [exact, deferrable] = &self.cpus.get(cpu as usize)?.stretches;
        Some(match precision {
            Precision::Exact => exact,
            Precision::Deferrable => deferrable,
        })
    }

    /// What samplers have done since timers with this `number` have begun to expire, if another one does
    /// at the TSC value `now`. On `cpu`, with interrupts off.
    pub(super) fn stretch(
        &self,
        cpu: u32,
        precision: Precision,
        number: u64,
        now: u64,
    ) -> SamplerStretch {
        let kept = self.kept(cpu, precision);
        match kept.filter(|kept| kept.number.load(Relaxed) == number) {
            Some(kept) => SamplerStretch {
                start: kept.start.load(Relaxed),
                served: kept.served.load(Relaxed),
                waiting: kept.waiting.load(Relaxed),
            },
            None => SamplerStretch::new(now),
        }
    }

    /// That is what it has come to.
    pub(super) fn hand_on(
        &self,
        cpu: u32,
        precision: Precision,
        number: u64,
        stretch: SamplerStretch,
    ) {
        if let Some(kept) = self.kept(cpu, precision) {
            kept.number.store(number, Relaxed);
            kept.start.store(stretch.start, Relaxed);
            kept.served.store(stretch.served, Relaxed);
            kept.waiting.store(stretch.waiting, Relaxed);
        }
    }

    /// Has a sampler told about CPUs and the policy, until it is removed.
    pub(super) fn add(&self, sampler: Arc<Sampler>) -> Result {
        let mut list = self.list.lock();
        // Above those that there are, and those that a recheck which has begun will ask about.
        let number = self.numbered.fetch_add(1u64, Relaxed);
        list.push((number, sampler), GFP_KERNEL_ACCOUNT)?;
        self.open.add(1u64, Relaxed);
        Ok(())
    }

    /// Undoes that.
    pub(super) fn remove(&self, sampler: &Arc<Sampler>) {
        let mut removed = None;
        let mut list = self.list.lock();
        if let Some(place) = list
            .iter()
            .position(|(_, other)| Arc::ptr_eq(other, sampler))
        {
            removed = list.remove(place).ok();
            self.open.fetch_sub(1u64, Relaxed);
        }
        drop(list);
        drop(removed);
    }

    /// The allowlist is another one: takes away what is not on it.
    pub(crate) fn recheck(&self) {
        // Wiping what was sampled may take long: nobody who makes or ends a sampler waits for that, nor a
        // CPU that comes or goes. Those that are made meanwhile look at the list by themselves; without an
        // end, whoever makes some all the time would keep this going.
        let Some(last) = self.list.lock().last().map(|(last, _)| *last) else {
            return;
        };
        let mut next = 0;
        while let Some((number, sampler)) = self.beyond(next).filter(|(number, _)| *number <= last)
        {
            next = number.wrapping_add(1);
            sampler.recheck();
            task::cond_resched();
        }
    }

    /// The first sampler with this number or a later one.
    fn beyond(&self, first: u64) -> Option<(u64, Arc<Sampler>)> {
        let list = self.list.lock();
        let mut later = list.iter().filter(|(number, _)| *number >= first);
        later.next().cloned()
    }

    /// A CPU is online. Runs on that CPU.
    pub(crate) fn online(&self, cpu: u32) {
        let list = self.list.lock();
        if let Some(timers) = self.cpus.get(cpu as usize) {
            timers.present.store(true, Release);
        }
        for (_, sampler) in list.iter() {
            sampler.online(cpu);
        }
    }

    /// A CPU goes offline. Runs on that CPU.
    pub(crate) fn offline(&self, cpu: u32) {
        let list = self.list.lock();
        if let Some(timers) = self.cpus.get(cpu as usize) {
            timers.present.store(false, Release);
        }
        for (_, sampler) in list.iter() {
            sampler.offline(cpu);
        }
    }
}
