// SPDX-License-Identifier: GPL-2.0

//! The cache: named values of every CPU, with an age, and at most one refresh in flight per CPU.
//!
//! A CPU's values come from one snapshot of all the registers that they need, taken in one call. A
//! snapshot that is young enough costs nobody an interrupt; when it is too old, the first reader
//! takes another and the others wait for that. That nothing could be read is remembered like a
//! value. Nobody reads, nothing runs; but for energy, which has to be counted along for a while.

mod cpu;
mod energy;
mod sweep;

use crate::{
    engine::{
        Engine,
        Group, //
    },
    kapi::{
        cpu_files::{
            CpuDirectory,
            CpuFiles, //
        },
        errno::enodata,
        hotplug::Hotplug,
        regs, task,
        ticker::{
            Tick,
            Ticker, //
        },
    },
    logic::catalogue::{
        Number,
        Scope, //
    },
};
use cpu::CpuState;
use energy::Energy;
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

/// How old a served value may be, in milliseconds.
const CACHE_MS: core::ops::RangeInclusive<u64> = 100..=60_000;

/// How long energy is counted along after it was last read, in seconds.
const ENERGY_HOLD_S: core::ops::RangeInclusive<u64> = 0..=604_800;

/// A file of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum File {
    /// Milliseconds since the snapshot.
    Age,
    /// Number of the snapshot.
    Generation,
    /// The value with this place among the CPU's.
    Value(usize),
}

/// One CPU number's part of the cache.
#[pin_data]
struct Slot {
    /// `None` while the CPU is offline.
    #[pin]
    state: Mutex<Option<KBox<CpuState>>>,
    #[pin]
    directory: Mutex<Option<CpuDirectory<Cache>>>,
    /// The CPU is going offline: whoever waits for the state is not to start anything.
    leaving: Atomic<bool>,
}

/// Everything but what makes it tick.
pub(crate) struct Values {
    engine: Arc<Engine>,
    slots: KVVec<Pin<KBox<Slot>>>,
    energy: Pin<KBox<Mutex<Energy>>>,
    cache_ms: Atomic<u64>,
    energy_hold_s: Atomic<u64>,
    refresh_isolated: Atomic<u64>,
}

impl Values {
    fn slot(&self, cpu: u32) -> Result<&Slot> {
        Ok(self.slots.get(cpu as usize).ok_or(ENXIO)?)
    }

    /// Whether a CPU's snapshot may be taken by the current task: not if that interrupts an isolated
    /// CPU, unless the setting says that it may.
    fn may_refresh(&self, cpu: u32) -> bool {
        !task::is_isolated(cpu)
            || regs::current_cpu() == cpu
            || self.refresh_isolated.load(Relaxed) != 0
    }

    /// How old a served value may be.
    fn max_age_ms(&self) -> u64 {
        self.cache_ms.load(Relaxed)
    }
}

/// The cache of all CPUs' named values.
#[pin_data]
pub(crate) struct Cache {
    values: Arc<Values>,
    /// Memory for the next call to all CPUs; held by whoever makes one.
    #[pin]
    sweeping: Mutex<Option<Group>>,
    /// How often that has come to its end.
    swept: Atomic<u64>,
    #[pin]
    ticker: Ticker<Values>,
}

impl Cache {
    /// An empty cache that reads through `engine`.
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Arc<Self>> {
        let mut slots = KVVec::with_capacity(nr_cpu_ids() as usize, GFP_KERNEL)?;
        for _ in 0..nr_cpu_ids() {
            let slot = pin_init!(Slot {
                state <- new_mutex!(None, "cpupeek_cpu"),
                directory <- new_mutex!(None, "cpupeek_directory"),
                leaving: Atomic::new(false),
            });
            slots.push(KBox::pin_init(slot, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let values = Values {
            engine,
            slots,
            energy: KBox::pin_init(new_mutex!(Energy::new(), "cpupeek_energy"), GFP_KERNEL)?,
            cache_ms: Atomic::new(1000),
            energy_hold_s: Atomic::new(3600),
            refresh_isolated: Atomic::new(0),
        };
        let values = Arc::new(values, GFP_KERNEL)?;
        let cache = pin_init!(Self {
            ticker <- Ticker::new(values.clone()),
            sweeping <- new_mutex!(None, "cpupeek_sweeping"),
            swept: Atomic::new(0),
            values,
        });
        Arc::pin_init(cache, GFP_KERNEL)
    }

    /// How old a served value may be, in milliseconds.
    pub(crate) fn cache_ms(&self) -> u64 {
        self.values.max_age_ms()
    }

    /// Sets how old a served value may be; [`EINVAL`] if that is out of range.
    pub(crate) fn set_cache_ms(&self, ms: u64) -> Result {
        if !CACHE_MS.contains(&ms) {
            return Err(EINVAL);
        }
        self.values.cache_ms.store(ms, Relaxed);
        Ok(())
    }

    /// How long energy is counted along after it was last read, in seconds.
    pub(crate) fn energy_hold_s(&self) -> u64 {
        self.values.energy_hold_s.load(Relaxed)
    }

    /// Sets how long energy is counted along; [`EINVAL`] if that is out of range.
    pub(crate) fn set_energy_hold_s(&self, seconds: u64) -> Result {
        if !ENERGY_HOLD_S.contains(&seconds) {
            return Err(EINVAL);
        }
        self.values.energy_hold_s.store(seconds, Relaxed);
        Ok(())
    }

    /// Whether isolated CPUs may be interrupted to refresh their values: 0 or 1.
    pub(crate) fn refresh_isolated(&self) -> u64 {
        self.values.refresh_isolated.load(Relaxed)
    }

    /// Sets that; [`EINVAL`] if it is neither 0 nor 1.
    pub(crate) fn set_refresh_isolated(&self, on: u64) -> Result {
        if on > 1 {
            return Err(EINVAL);
        }
        self.values.refresh_isolated.store(on, Relaxed);
        Ok(())
    }
}

impl CpuFiles for Cache {
    type Key = File;

    fn show(&self, cpu: u32, file: File) -> Result<Number> {
        let values = &self.values;
        let slot = values.slot(cpu)?;
        let mut state = slot.state.lock();
        let state = (*state).as_mut().ok_or(ENODEV)?;
        if slot.leaving.load(Relaxed) {
            return Err(ENODEV);
        }
        match file {
            File::Age => Ok(Number::Unsigned(state.age_ms().ok_or_else(enodata)?)),
            File::Generation => Ok(Number::Unsigned(state.generation())),
            File::Value(index) => {
                let number = state.value(values, index)?;
                if let Some(ms) = state.tick_ms(index) {
                    self.ticker.arm(ms);
                }
                Ok(number)
            }
        }
    }
}

impl Cache {
    fn online(&self, cpu: u32) -> Result {
        let slot = self.values.slot(cpu)?;
        *slot.state.lock() = Some(CpuState::probe(cpu)?);
        slot.leaving.store(false, Relaxed);
        Ok(())
    }

    fn offline(&self, cpu: u32) {
        let Ok(slot) = self.values.slot(cpu) else {
            return;
        };
        // Those who wait for a refresh end with the one in flight, which this CPU still answers;
        // then the directory waits for them, and then nobody uses the state.
        slot.leaving.store(true, Relaxed);
        let directory = slot.directory.lock().take();
        drop(directory);
        let state = slot.state.lock().take();
        drop(state);
    }
}

impl Tick for Values {
    fn tick(&self) -> Option<u64> {
        let now = task::now_ms();
        let next = self.energy.lock().tick_ms(now)?;
        for slot in &self.slots {
            if let Some(state) = &mut *slot.state.lock() {
                if !slot.leaving.load(Relaxed) {
                    state.count_along(self, now);
                }
            }
        }
        Some(next)
    }
}

/// Makes a cache's directories as CPUs come online.
pub(crate) struct Directories {
    cache: Arc<Cache>,
    /// The module is being loaded, and isolated CPUs are left alone. One that comes online later has
    /// not begun what it is isolated for.
    sparing: Atomic<bool>,
}

impl Directories {
    /// For `cache`. Isolated CPUs that are online already get a directory only if `probe_isolated`.
    pub(crate) fn new(cache: Arc<Cache>, probe_isolated: bool) -> Result<Arc<Self>> {
        let directories = Self {
            cache,
            sparing: Atomic::new(!probe_isolated),
        };
        Ok(Arc::new(directories, GFP_KERNEL)?)
    }

    /// The module has been loaded.
    pub(crate) fn loaded(&self) {
        self.sparing.store(false, Relaxed);
    }
}

impl Hotplug for Directories {
    fn online(&self, cpu: u32) -> Result {
        if self.sparing.load(Relaxed) && task::is_isolated(cpu) {
            return Ok(());
        }
        self.cache.online(cpu)?;
        let made = self.make(cpu);
        if made.is_err() {
            self.cache.offline(cpu);
        }
        made
    }

    fn offline(&self, cpu: u32) {
        self.cache.offline(cpu);
    }
}

impl Directories {
    #[inline(never)]
    fn make(&self, cpu: u32) -> Result {
        let slot = self.cache.values.slot(cpu)?;
        let mut files = KVec::new();
        files.push((c"age_ms", 0o444, File::Age), GFP_KERNEL)?;
        files.push((c"generation", 0o444, File::Generation), GFP_KERNEL)?;
        if let Some(state) = &*slot.state.lock() {
            for (i, entry) in state.entries().enumerate() {
                let file = (entry.name, entry.access.mode(), File::Value(i));
                files.push(file, GFP_KERNEL)?;
            }
        }
        let directory = CpuDirectory::new(&self.cache, cpu, c"cpupeek", files.into_iter())?;
        *slot.directory.lock() = Some(directory);
        Ok(())
    }
}

/// What a CPU shares a value with, told apart from others of that scope by a number.
fn shared_by(cpu: u32, scope: Scope) -> u64 {
    let here = regs::location(cpu);
    let within = match scope {
        Scope::Thread | Scope::Core => here.core,
        Scope::Die => here.die,
        Scope::Package => 0,
    };
    u64::from(here.package) << 32 | u64::from(within)
}
