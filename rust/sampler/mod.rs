// SPDX-License-Identifier: GPL-2.0

//! Samplers: registers that each CPU reads of its own, again and again, into memory that user space
//! sees.
//!
//! Whatever is done to a CPU's part is done by its timer, or by a task in its turn that has claimed
//! the part; see [`crate::kapi::claim`]. A timer that finds its part claimed misses a sample.

mod group;
mod part;
mod registry;

pub(crate) use registry::Samplers;

use crate::{
    engine::{
        Caller,
        Engine,
        Manner, //
    },
    kapi::{
        call_group::Work,
        cpu_timer::{
            tick_ns,
            CpuTimer,
            Precision, //
        },
        errno::ecanceled,
        events::Events,
        pages::SharedPages,
        regs,
        uapi::{
            self,
            Op, //
        },
    },
    logic::{
        round::SamplerStretch,
        sampling::{
            map::{
                Map,
                Shape, //
            },
            schedule::{
                whole_ticks,
                INTERVAL_NS, //
            },
            watch::Condition,
        },
    },
    policy::{
        Access,
        Narrowing, //
    },
};
use core::mem::replace;
use group::Grouped;
use kernel::{
    mm::virt::VmaNew,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use part::Part;

/// Most past samples of each CPU.
const MAX_RING: u32 = 65_536;

/// Largest mapping, in bytes.
const MAX_MAP: u64 = 64 << 20;

/// Most conditions on results of one CPU: each costs time in its interrupts.
const MAX_CONDITIONS: usize = 64;

/// What a sampler is to be.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// How exact its timers are.
    pub(crate) precision: Precision,
    /// Time between samples.
    pub(crate) interval_ns: u64,
    /// Past samples of each CPU.
    pub(crate) ring_samples: u32,
}

/// What all CPUs' parts share.
#[pin_data]
struct Common {
    engine: Arc<Engine>,
    samplers: Arc<Samplers>,
    access: Access,
    interval_ns: u64,
    precision: Precision,
    map: Map,
    pages: SharedPages,
    #[pin]
    events: Events,
}

/// A sampler.
#[pin_data]
pub(crate) struct Sampler {
    common: Arc<Common>,
    parts: KVVec<Pin<KBox<CpuTimer<Part>>>>,
    /// Held by the task whose turn it is to change the parts.
    #[pin]
    turn: Mutex<()>,
}

/// The work of starting a CPU's part, by the part's number.
struct StartPart;

impl Work for StartPart {
    type Op = u32;
    type Shared = Arc<Sampler>;

    fn is_joined(_: &Self::Op) -> bool {
        false
    }

    fn perform(sampler: &Arc<Sampler>, part: &mut u32, since: u64) {
        if let Some(part) = sampler.parts.get(*part as usize) {
            Sampler::start_here(part, since);
        }
    }
}

impl Sampler {
    /// Makes a sampler of operations, and starts it with the CPUs that the calling task may have
    /// interrupted. It runs until [`Self::end`].
    ///
    /// [`EINVAL`] and [`ENXIO`] for a malformed request or operation; [`E2BIG`] for too much;
    /// [`ENOMEM`]; [`EINTR`] on a fatal signal.
    #[inline(never)]
    pub(crate) fn new(
        engine: Arc<Engine>,
        samplers: Arc<Samplers>,
        access: Access,
        request: Request,
        ops: &mut [Op],
    ) -> Result<Arc<Self>> {
        if ops.is_empty() || !INTERVAL_NS.contains(&request.interval_ns) {
            return Err(EINVAL);
        }
        if request.ring_samples > MAX_RING {
            return Err(E2BIG);
        }
        let grouped = Grouped::new(&access, ops)?;
        let shape = Shape {
            header: size_of::<uapi::Map>() as u64,
            cpus: grouped.used as u32,
            largest: grouped.largest(),
            ring_samples: request.ring_samples,
        };
        let map = Map::new(shape, MAX_MAP).ok_or(E2BIG)?;
        let interval_ns = match request.precision {
            Precision::Exact => request.interval_ns,
            Precision::Deferrable => whole_ticks(request.interval_ns, tick_ns()),
        };
        let pages = SharedPages::new(map.size as usize)?;
        let request = Request {
            interval_ns,
            ..request
        };
        Self::write_header(&pages, &map, grouped.used as u32, request)?;
        let common = Arc::pin_init(
            pin_init!(Common {
                engine,
                samplers,
                access,
                interval_ns,
                precision: request.precision,
                map,
                pages,
                events <- Events::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let parts = Self::parts(&common, &grouped, request.precision)?;
        let sampler = Arc::pin_init(
            pin_init!(Self {
                common,
                parts,
                turn <- new_mutex!((), "cpupeek_sampler"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        sampler.common.samplers.add(sampler.clone())?;
        // The list may have become shorter before the sampler was told about it.
        sampler.recheck();
        if let Err(error) = sampler.start() {
            sampler.end();
            return Err(error);
        }
        Ok(sampler)
    }

    #[inline(never)]
    fn parts(
        common: &Arc<Common>,
        grouped: &Grouped,
        precision: Precision,
    ) -> Result<KVVec<Pin<KBox<CpuTimer<Part>>>>> {
        let mut parts = KVVec::with_capacity(grouped.used, GFP_KERNEL_ACCOUNT)?;
        for (index, slice) in grouped.slices().enumerate() {
            let first = slice.first as usize;
            let range = first..first.saturating_add(slice.len as usize);
            let mut entries = KVVec::new();
            let given = grouped.entries.get(range).ok_or(EINVAL)?;
            entries.extend_from_slice(given, GFP_KERNEL_ACCOUNT)?;
            let part = Part::new(common.clone(), index as u32, slice.cpu, entries)?;
            let timer = CpuTimer::new(precision, part);
            parts.push(
                KBox::pin_init(timer, GFP_KERNEL_ACCOUNT)?,
                GFP_KERNEL_ACCOUNT,
            )?;
        }
        Ok(parts)
    }

    #[inline(never)]
    fn write_header(pages: &SharedPages, map: &Map, nr_slots: u32, request: Request) -> Result {
        let exact = request.precision == Precision::Exact;
        let header = uapi::Map {
            size: size_of::<uapi::Map>() as u32,
            flags: if exact {
                uapi::CPUPEEK_SAMPLER_EXACT
            } else {
                0
            },
            nr_slots,
            slot_size: map.slot_size as u32,
            slots: map.slots,
            ring: map.ring,
            ring_samples: map.ring_samples,
            tsc_khz: regs::tsc_khz(),
            interval_ns: request.interval_ns,
        };
        pages.write(0, &header)
    }

    /// Starts sampling on every CPU that anything may be read of, and takes the first sample.
    #[inline(never)]
    fn start(self: &Arc<Self>) -> Result {
        let mut cpus = KVVec::with_capacity(self.parts.len(), GFP_KERNEL_ACCOUNT)?;
        for (i, timer) in self.parts.iter().enumerate() {
            let turn = self.turn.lock();
            let wanted = timer.target().state.claim(&turn).is_any_admitted();
            drop(turn);
            if wanted {
                cpus.push((timer.target().cpu, i as u32), GFP_KERNEL_ACCOUNT)?;
            }
        }
        let caller = Caller {
            user: self.common.access.user(),
            manner: Manner::Adaptive,
            // Nobody else would start what was not called.
            is_patient: true,
        };
        if cpus.is_empty() {
            return Ok(());
        }
        let engine = &self.common.engine;
        engine.on_each::<StartPart>(self.clone(), &cpus, caller)?;
        let turn = self.turn.lock();
        for timer in &self.parts {
            let part = timer.target();
            let mut state = part.state.claim(&turn);
            if !state.running && !self.common.samplers.is_present(part.cpu) {
                part.clear(&mut state, ENXIO);
            }
        }
        Ok(())
    }

    /// Starts a part on this CPU, which has its interrupts off and has been busy since the TSC value `since`,
    /// if it is the part's and wants it. If somebody is changing the part at this moment, its timer does
    /// that later.
    fn start_here(timer: &CpuTimer<Part>, since: u64) {
        let part = timer.target();
        let time = match part.state.try_claim() {
            Some(mut state) if part.may_start(&state) => {
                part.begin(&mut state, &mut SamplerStretch::new(since))
            }
            Some(_) => None,
            // Who has a part claimed ends it, if at all, before cancelling the timer; should that have been
            // already, the timer finds the part ended.
            None => part.start_later(),
        };
        if let Some(time) = time {
            timer.start_here(time);
        }
    }

    fn parts_of(&self, cpu: u32) -> impl Iterator<Item = &CpuTimer<Part>> {
        let timers = self.parts.iter().map(|timer| &**timer);
        timers.filter(move |timer| timer.target().cpu == cpu)
    }

    /// A CPU is online. Runs on that CPU.
    fn online(&self, cpu: u32) {
        let _turn = self.turn.lock();
        for timer in self.parts_of(cpu) {
            // Whoever has the turn finds nobody but interrupts of this CPU, which are off.
            regs::with_irqs_off(|_| Self::start_here(timer, regs::rdtsc()));
        }
    }

    /// A CPU goes offline. Runs on that CPU.
    fn offline(&self, cpu: u32) {
        let turn = self.turn.lock();
        for timer in self.parts_of(cpu) {
            let part = timer.target();
            let mut state = part.state.claim(&turn);
            if !state.ended {
                part.clear(&mut state, ENXIO);
            }
            drop(state);
            timer.cancel();
        }
    }

    /// Takes away what the descriptor may no longer read.
    fn recheck(&self) {
        let turn = self.turn.lock();
        for timer in &self.parts {
            let part = timer.target();
            let mut state = part.state.claim(&turn);
            let access = &self.common.access;
            let taken = part.take_away(&mut state, |op| {
                access.check(op)?;
                access.check_narrowed_cpu(op.cpu)
            });
            let Some(error) = taken else {
                continue;
            };
            let over = !state.is_any_admitted();
            if over {
                part.clear(&mut state, error);
            }
            drop(state);
            self.common.events.add();
            if over {
                timer.cancel();
            }
        }
    }

    /// Restricts the sampler.
    pub(crate) fn narrow(&self, to: Narrowing) -> Result {
        self.common.access.narrow(to)?;
        self.recheck();
        Ok(())
    }

    /// Replaces the conditions that make a sample matter.
    ///
    /// [`EINVAL`] if one is on what is not sampled, [`E2BIG`] if they are too many on one CPU.
    #[inline(never)]
    pub(crate) fn watch(&self, conditions: &[(Option<u32>, Condition)]) -> Result {
        let mut lists = KVVec::with_capacity(self.parts.len(), GFP_KERNEL_ACCOUNT)?;
        let turn = self.turn.lock();
        let mut found = KVVec::from_elem(false, conditions.len(), GFP_KERNEL_ACCOUNT)?;
        for timer in &self.parts {
            let part = timer.target();
            let results = part.state.claim(&turn).entries.len();
            let mut list = KVVec::new();
            for ((cpu, condition), found) in conditions.iter().zip(found.iter_mut()) {
                let is_here = cpu.is_none_or(|cpu| cpu == part.cpu);
                if is_here && (condition.result as usize) < results {
                    if list.len() == MAX_CONDITIONS {
                        return Err(E2BIG);
                    }
                    list.push(*condition, GFP_KERNEL_ACCOUNT)?;
                    *found = true;
                }
            }
            lists.push(list, GFP_KERNEL_ACCOUNT)?;
        }
        if found.iter().any(|found| !found) {
            return Err(EINVAL);
        }
        for (timer, list) in self.parts.iter().zip(lists.iter_mut()) {
            let mut state = timer.target().state.claim(&turn);
            // What is replaced is freed with the lists, by this task.
            *list = replace(&mut state.conditions, replace(list, KVVec::new()));
            state.watching = !conditions.is_empty();
        }
        self.common.events.forget();
        Ok(())
    }

    /// The events of samples that matter.
    pub(crate) fn events(&self) -> &Events {
        &self.common.events
    }

    /// Shows the slots in a new mapping, which must be of all of them.
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        if vma.end() - vma.start() != self.map_size() {
            return Err(EINVAL);
        }
        self.common.pages.map(vma)
    }

    /// The size of a mapping, in bytes.
    pub(crate) fn map_size(&self) -> usize {
        self.common.pages.size()
    }

    /// The time between samples, in nanoseconds.
    pub(crate) fn interval_ns(&self) -> u64 {
        self.common.interval_ns
    }

    /// Ends sampling, for good. No timer reads anything any more when this returns.
    pub(crate) fn stop(&self) {
        let turn = self.turn.lock();
        for timer in &self.parts {
            let part = timer.target();
            let mut state = part.state.claim(&turn);
            if !state.ended {
                state.ended = true;
                part.clear(&mut state, ecanceled());
            }
            drop(state);
            timer.cancel();
        }
        drop(turn);
        self.common.events.end();
    }

    /// Stops a sampler that nobody will use any more.
    pub(crate) fn end(self: &Arc<Self>) {
        self.common.samplers.remove(self);
        self.stop();
    }
}
